package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// batchLines has one line for each change: a member, or the partitions that took
// the same way.
func batchLines(at time.Time, b events.Batch) (lines []line) {
	add := func(what, format string, args ...any) {
		lines = append(lines, textLine(fmt.Sprintf("%s  v%-4d  %-8s  %s", at.Format(time.TimeOnly), b.Version, what, fmt.Sprintf(format, args...))))
	}
	for _, id := range b.Left {
		add("left", "%s", id)
	}
	for _, id := range b.Joined {
		add("joined", "%s", id)
	}
	type way struct{ from, to lease.NodeID }
	ways := make(map[way][]placement.Partition)
	for _, m := range b.Moved {
		w := way{m.From, m.To}
		ways[w] = append(ways[w], m.Partition)
	}
	for _, w := range slices.SortedFunc(maps.Keys(ways), func(a, b way) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	}) {
		add("moved", "%s -> %s: %s", orNobody(w.from), orNobody(w.to), listed(ways[w]))
	}
	if len(b.Released) > 0 {
		add("released", "here: %s", listed(partitionsOf(b.Released)))
	}
	if len(b.Acquired) > 0 {
		add("acquired", "here: %s", listed(partitionsOf(b.Acquired)))
	}
	return lines
}

func partitionsOf(owned []events.Ownership) []placement.Partition {
	ps := make([]placement.Partition, len(owned))
	for i := range owned {
		ps[i] = owned[i].Partition
	}
	return ps
}

func orNobody(id lease.NodeID) string { return cmp.Or(string(id), "nobody") }

// listed says how many partitions there are and names the first few: a line has
// to fit a terminal.
func listed(ps []placement.Partition) string {
	const most = 5
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%d (", len(ps))
	for i, p := range ps[:min(len(ps), most)] {
		if i > 0 {
			b.WriteByte(' ')
		}
		_, _ = fmt.Fprint(&b, p)
	}
	if len(ps) > most {
		b.WriteString(" …")
	}
	b.WriteByte(')')
	return b.String()
}
