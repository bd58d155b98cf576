#!/usr/bin/env bash
# Runs every fuzz target of the root module for FUZZTIME, one after the other: with FUZZTIME
# by a worker on each CPU, guided by coverage; by default for 300 ms, by one worker, without coverage: to compile for it takes longer.
set -euo pipefail

cd "$(dirname "$0")/.."
flags=(-test.run '^$' -test.fuzzminimizetime 10x -test.fuzztime "${FUZZTIME:=300ms}")
build=(-fuzz .)
[[ $FUZZTIME != 300ms ]] || { flags+=(-test.parallel 1); build=(); }

# Lines "./directory FuzzName". A search in the source needs no build, unlike go test -list.
targets=$(grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort | sed -E 's|/[^/]*:[0-9]+:func | |')

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log
cache=$(go env GOCACHE)/fuzz/$(go list -m) # as go test -fuzz has it
count=0
while read -r package target; do
	[[ -n $target ]] || continue
	count=$((count + 1))
	printf -- '-- %s in %s\n' "$target" "$package"
	program=$work/${package//\//-}.test # go test -fuzz would link it again for each target
	[[ -e $program ]] || go test -c "${build[@]}" -o "$program" "$package"
	status=0
	(cd "$package" && "$program" "${flags[@]}" -test.fuzz "^$target\$" -test.fuzzcachedir "$cache/${package#./}") \
		</dev/null 2>&1 | tee "$log" || status=$?
	[[ $status == 0 ]] && continue
	# Before Go 1.27 the end of the budget can count as a failure (golang/go#75804). A
	# real failure leaves its input.
	if grep -qx '    context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
		printf -- '-- %s: only its budget ended, no failing input\n' "$target"
		continue
	fi
	exit "$status"
done <<<"$targets"
printf '%d fuzz targets, %s each\n' "$count" "$FUZZTIME"
