#!/usr/bin/env bash
# Runs tests of the kernel on CPUs other than this machine's: nodes of one cluster
# may differ in that and must still compute the same tables.
set -euo pipefail

cd "$(dirname "$0")/.."
export CGO_ENABLED=0

# The vectors that pin every strategy, which any CPU has to reproduce.
printf -- '-- arm64\n'
emulate=(-exec qemu-aarch64)
[[ $(go env GOHOSTARCH) == arm64 ]] && emulate=()
GOARCH=arm64 go test "${emulate[@]}" -run '^TestGolden$' ./placement ./placement/ring

# An int has 32 bits here, which shows what overflows. The kernel of an amd64 machine
# runs such programs by itself.
if [[ $(go env GOHOSTARCH) == amd64 ]]; then
	printf -- '-- 386\n'
	GOARCH=386 go test -short ./lease ./events ./placement/...
fi
