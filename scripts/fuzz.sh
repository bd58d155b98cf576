#!/usr/bin/env bash
# Runs every fuzz target of the root module for FUZZTIME, one after the other.
set -euo pipefail

cd "$(dirname "$0")/.."
budget=${FUZZTIME:-1s}

# Lines "./directory FuzzName". A search in the source needs no build, unlike go test -list.
targets=$(grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort | sed -E 's|/[^/]*:[0-9]+:func | |')

log=$(mktemp)
trap 'rm -f "$log"' EXIT
count=0
while read -r package target; do
	[[ -n $target ]] || continue
	count=$((count + 1))
	printf -- '-- %s in %s\n' "$target" "$package"
	status=0
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$budget" -fuzzminimizetime 10x "$package" </dev/null 2>&1 | tee "$log" || status=$?
	[[ $status == 0 ]] && continue
	# Before Go 1.27 the end of the budget can count as a failure (golang/go#75804). A
	# real failure leaves its input.
	if grep -qx '    context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
		printf -- '-- %s: only its budget ended, no failing input\n' "$target"
		continue
	fi
	exit "$status"
done <<<"$targets"
printf '%d fuzz targets, %s each\n' "$count" "$budget"
