#!/usr/bin/env bash
# step.sh TITLE COMMAND...: runs the command and prints its title, its duration, and the CPU
# time that it took: a step that is slow for want of CPUs differs by this from one with more work.
set -euo pipefail

title=$1
shift
unset MAKEFLAGS MFLAGS # a make that a test starts is no part of this one
printf '== %s\n' "$title"
TIMEFORMAT="== ${title//%/%%}: %0R s; CPU: %0U s, kernel: %0S s"
status=0
time "$@" || status=$?
((status == 0)) || printf '== %s: FAILED\n' "$title"
exit "$status"
