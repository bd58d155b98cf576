#!/usr/bin/env bash
# step.sh TITLE COMMAND...: runs the command, says what it is and how long it took.
set -euo pipefail

title=$1
shift
printf '== %s\n' "$title"
if "$@"; then
	printf '== %s: ok, %d s\n' "$title" "$SECONDS"
else
	status=$?
	printf '== %s: FAILED, %d s\n' "$title" "$SECONDS"
	exit "$status"
fi
