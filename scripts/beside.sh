#!/usr/bin/env bash
# beside.sh FIRST SECOND: runs two commands of the shell at once, and prints the output of the
# second one after the first one's.
set -euo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT
bash -c "$2" >"$log" 2>&1 &
second=$!
first=0
bash -c "$1" || first=$?
status=0
wait "$second" || status=$?
cat "$log"
((first)) && exit "$first"
exit "$status"
