#!/usr/bin/env bash
# Runs every fuzz target of the root module for FUZZTIME, one after the other.
set -euo pipefail

cd "$(dirname "$0")/.."
budget=${FUZZTIME:-3s}

# For each package: the names of its targets, then a line "ok <package> <time>".
listing=$(go test -list '^Fuzz' ./...)
targets=$(awk '/^Fuzz/ { name[n++] = $1 }
	$1 == "ok" { for (i = 0; i < n; i++) print $2, name[i]; n = 0 }' <<<"$listing")

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
