#!/usr/bin/env bash
# newest.sh [-update]: builds the binary, and vets and tests what programs embed, with the newest versions of the dependencies
# and the newest release of Go. go.mod has the oldest versions, which all other tests use.
# -update first looks which versions are the newest.
set -euo pipefail

cd "$(dirname "$0")/.."
newest=internal/tools/newest.mod
if [[ ${1-} == -update ]]; then
	go get -modfile="$newest" -u -t ./... toolchain@latest
	go mod tidy -modfile="$newest"
fi
GOTOOLCHAIN=$(awk '$1 == "toolchain" { print $2 }' "$newest")
export GOTOOLCHAIN
packages=(./internal/gossip ./internal/gossip/firewall ./cluster ./cluster/clusterprom ./cluster/affinity/redisstore)
if ! why=$(go version 2>&1 && go mod download -modfile="$newest" 2>&1); then
	grep -qE 'dial tcp|no such host|GOPROXY=off|GOPROXY list|Forbidden|timeout|not available' <<<"$why" || { printf '%s\n' "$why" >&2; exit 1; }
	printf 'NOTE: the newest versions are NOT TESTED, because this machine cannot get them: %s\n' "${why##*$'\n'}"
	exit
fi
go vet -modfile="$newest" "${packages[@]}"
go build -modfile="$newest" -o /dev/null ./cmd/roost
go test -modfile="$newest" -short "${packages[@]}"
