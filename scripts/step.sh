#!/usr/bin/env bash
# step.sh TITLE COMMAND...: runs the command and prints its title and duration.
set -euo pipefail

title=$1
shift
unset MAKEFLAGS MFLAGS # a make that a test starts is no part of this one
printf '== %s\n' "$title"
if "$@"; then
	printf '== %s: ok, %d s\n' "$title" "$SECONDS"
else
	status=$?
	printf '== %s: FAILED, %d s\n' "$title" "$SECONDS"
	exit "$status"
fi
