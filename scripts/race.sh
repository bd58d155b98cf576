#!/usr/bin/env bash
# Runs the tests of the module in this folder under the race detector, apart from the
# packages in PURE and the tests in ROLLING and MINUTES: make long runs these.
#
# The detector's own runtime crashes now and then on timers of testing/synctest
# (golang/go#78156), in C and with nothing of a test in it. A package in which that
# happened, and nothing else failed, is run again, twice at most.
set -euo pipefail

# By default the detector has each test wait a second at its end, for what other goroutines still do.
export GORACE="atexit_sleep_ms=50 ${GORACE:-}"
# The heaps are small, and with this value the garbage collector leaves a fifth more of the CPU to the tests.
export GOGC=${GOGC:-400}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# bench has one test of a strategy; the detector's build of the peers takes minutes.
race=(-race)
[[ $PWD != */internal/bench ]] || race=()
# With the detector, the media of many calls needs more than two cores. make long has these tests.
[[ $PWD != */examples/sfu ]] || race+=(-short)
mapfile -t packages < <(comm -23 <(go list ./... | sort) <(go list ${PURE:-} 2>/dev/null | sort))
for try in 1 2 3; do
	status=0
	go test "${race[@]}" -timeout 20m -p 3 -skip "^(${ROLLING:-}|${MINUTES:-})\$" "${packages[@]}" 2>&1 | tee "$log" || status=$?
	((status)) || exit 0
	# A nil pointer in Go code is a panic and a failed test; this line is neither.
	grep -qE '^SIGSEGV: segmentation violation$|ThreadSanitizer: CHECK failed' "$log" || exit "$status"
	! grep -qE -- '--- FAIL|DATA RACE|^panic:|\[build failed\]' "$log" || exit "$status"
	mapfile -t packages < <(awk '$1 == "FAIL" && NF > 1 { print $2 }' "$log")
	printf -- '-- the race detector crashed (golang/go#78156), try %d: %s\n' "$try" "${packages[*]}"
done
exit "$status"
