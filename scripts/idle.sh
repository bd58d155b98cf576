#!/usr/bin/env bash
# Prints what an idle `roost agent` costs among NODES (100) processes on loopback, over
# FOR (40) seconds: CPU and memory by /proc, packets and bytes by the agents' own counters.
# The binary is built as scripts/release.sh builds it, without the C library.
# Linux only. The machine should be idle otherwise.
set -euo pipefail

nodes=${NODES:-100} seconds=${FOR:-40}
dir=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait; rm -rf "$dir"' EXIT
bin=$dir/roost
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$bin" ./cmd/roost

seeds=127.0.0.1:20001,127.0.0.1:20002,127.0.0.1:20003
for ((i = 1; i <= nodes; i++)); do
	"$bin" agent --id "n$i" --bind "127.0.0.1:$((20000 + i))" --http "127.0.0.1:$((22000 + i))" --join "$seeds" 2>"$dir/$i.log" &
	pids+=($!)
done
sleep 40 # until all agree and the work of the start is over

ticks() { for p in "${pids[@]}"; do sed 's/.*) //' "/proc/$p/stat"; done | awk '{ sum += $12 + $13 } END { print sum }'; }
resident() {
	for p in "${pids[@]}"; do cat "/proc/$p/status"; done | awk '
		/^RssFile/ { shared += $2 }
		/^VmRSS/ { sum += $2; n++; if ($2 > max) max = $2 }
		END { printf "%.1f MiB resident, %.1f of them of the binary, which all share; at most %.1f\n", sum / n / 1024, shared / n / 1024, max / 1024 }'
}
sent() {
	for ((i = 1; i <= nodes; i++)); do curl -fsS "http://127.0.0.1:$((22000 + i))/metrics"; done |
		awk '/^roost_packets_sent_total/ { p += $2 } /^roost_packets_sent_bytes_total/ { b += $2 } END { printf "%d %d\n", p, b }'
}
echo "$("$bin" members --addr 127.0.0.1:22001 --output json | jq '.members | length') members"
used=$(ticks) began=$EPOCHREALTIME
sleep "$seconds"
awk -v used=$(($(ticks) - used)) -v hz="$(getconf CLK_TCK)" -v n="$nodes" -v from="$began" -v to="$EPOCHREALTIME" \
	'BEGIN { printf "%.2f %% of a core\n", used / hz / n / (to - from) * 100 }'
resident

began=$EPOCHREALTIME
read -r packets bytes < <(sent)
sleep "$seconds"
ended=$EPOCHREALTIME
read -r packets2 bytes2 < <(sent)
awk -v p=$((packets2 - packets)) -v b=$((bytes2 - bytes)) -v n="$nodes" -v from="$began" -v to="$ended" \
	'BEGIN { t = n * (to - from); printf "%.1f packets and %.2f kB a second sent by each\n", p / t, b / t / 1000 }'
