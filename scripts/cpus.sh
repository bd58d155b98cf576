#!/usr/bin/env bash
# Runs tests of the core and of decoders for other CPUs: nodes of one cluster may have different CPUs
# and must compute the same tables.
set -euo pipefail

cd "$(dirname "$0")/.."
export CGO_ENABLED=0
export GOGC=400 # as in make long

# The golden vectors of all strategies, which every CPU must reproduce.
printf -- '-- arm64\n'
emulate=(-exec qemu-aarch64)
[[ $(go env GOHOSTARCH) == arm64 ]] && emulate=()
GOARCH=arm64 go test "${emulate[@]}" -run '^TestGolden$' ./placement ./placement/ring

# An int has 32 bits here, which shows overflows. An amd64 machine runs such programs
# without an emulator.
if [[ $(go env GOHOSTARCH) == amd64 ]]; then
	printf -- '-- 386\n'
	GOARCH=386 go test -short ./events ./internal/wire ./placement/...
	GOARCH=386 go test -short -skip ConfirmedFailure ./lease -rapid.checks 20 # the model of confirmed failures takes long, and counts little
	GOARCH=386 go test -short -run 'Message|Head|Harmless|Handshake|Hello' ./internal/gossip ./internal/gossip/firewall
fi
