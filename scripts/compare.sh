#!/usr/bin/env bash
# Simulates clusters with this tree and with that of an earlier commit, one after the other:
#   scripts/compare.sh 1c47180
# It prints a line of numbers for each. CPU depends on what else the machine does.
set -euo pipefail

commit=${1:?usage: scripts/compare.sh COMMIT [PATTERN]} pattern=${2:-.}
tree=$(mktemp -d)
trap 'git worktree remove --force "$tree"' EXIT
git worktree add --quiet --detach "$tree" "$commit"
cp internal/sim/rest_test.go "$tree/internal/sim/"
for at in "$tree" .; do
	git -C "$at" log -1 --format='%h %s'
	(cd "$at" && go test -run '^$' -bench "^BenchmarkRest/$pattern" -benchtime 1x -timeout 1h ./internal/sim | grep ^Benchmark)
done
