#!/usr/bin/env bash
# Prints what `roost sim` measures for clusters of many sizes, as rows of a table in
# Markdown, in the order in which the runs end. All of it takes hours: the time of a run
# grows with the square of the nodes. NODES selects sizes, FOR is the virtual time:
#   NODES="100 300" FOR=2m scripts/scale.sh
# Fewer garbage collections save a third of the time. Each run may take its share of the
# free memory; GOGC and GOMEMLIMIT change both.
set -euo pipefail

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/roost" ./cmd/roost

row() {
	result=$("$bin/roost" sim --output json "$@")
	jq -r --arg flags "$*" --arg took "$SECONDS" '
		def s: if . == null then "never" else "\(. / 10 | round / 100) s" end;
		"| `\($flags)` | \(.false_expiries) | \(.oldest_age_ms | s) | \(.kb_per_s) | \(.packets_per_s) | " +
		(.agree_ms | "\(.start | s) | \(.join | s) | \(.leave | s) | \(.crash | s)") + " | \($took) s |"' <<<"$result"
}
export -f row
export bin
export GOGC=${GOGC:-400}
export GOMEMLIMIT=${GOMEMLIMIT:-$(awk -v runs="$(nproc)" '/^MemAvailable:/ { printf "%.0f", $2 * 1024 * 0.8 / runs }' /proc/meminfo)}

cat <<'HEAD'
| flags of `roost sim` | false expiries | oldest lease | kB/s | packets/s | start | join | leave | crash | real time |
|---|---|---|---|---|---|---|---|---|---|
HEAD
for n in ${NODES:-100 300 500 1000 5000}; do
	time=${FOR:-10m}
	((n < 5000)) || time=${FOR:-1m}
	for loss in 0 5 20; do
		echo "--nodes $n --loss $loss --for $time --crash $((n / 10))"
		((n != 300)) || echo "--nodes $n --loss $loss --for $time --crash $((n / 10)) --network wan"
	done
done | xargs -P "$(nproc)" -I{} bash -c 'row {}'
