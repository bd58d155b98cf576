package auditor

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// checkTable checks a new table of a node. A fenced node shows its last table.
func (a *Auditor) checkTable(t *track) {
	table := t.answer.Table
	if table == nil || t.answer.Stale {
		t.strange = 0
		return
	}
	strange := false
	for _, n := range table.Nodes {
		strange = strange || !slices.ContainsFunc(t.answer.Members, func(m Member) bool { return m.ID == n.ID })
	}
	switch {
	case !strange:
		t.strange = 0
	case t.strange == 0:
		t.strange = a.at
	}
	if before := t.table; before != table {
		t.table = table
		if !a.Even {
			a.checkEqual(t, table)
			a.checkMoves(t, before, table)
		}
	}
}

// checkEqual checks that the same candidates always have the same table.
func (a *Auditor) checkEqual(t *track, table *Table) {
	var key strings.Builder
	for _, n := range table.Nodes {
		_, _ = fmt.Fprint(&key, n.ID, ":", n.Weight, " ")
	}
	owners, known := a.tables[key.String()]
	if !known {
		a.tables[key.String()] = table.Owners
	} else if !slices.Equal(owners, table.Owners) {
		a.object("table", "%s has another table of %sthan another node had", t.now.ID, key.String())
	}
}

// checkMoves checks that a partition only moves if its owner has lost weight, or the new owner has gained weight. A node
// that is no candidate has no weight.
func (a *Auditor) checkMoves(t *track, before, after *Table) {
	if before == nil {
		return
	}
	gained := make(map[string]int64)
	for _, n := range before.Nodes {
		gained[n.ID] -= int64(n.Weight)
	}
	for _, n := range after.Nodes {
		gained[n.ID] += int64(n.Weight)
	}
	for p, from := range before.Owners {
		if to := after.Owners[p]; from != to && gained[from] >= 0 && gained[to] <= 0 {
			a.object("movement", "%s: partition %d moved from %s, whose weight has changed by %d, to %s, whose weight has changed by %d",
				t.now.ID, p, from, gained[from], to, gained[to])
		}
	}
}

// checkPairs checks what holds for two processes.
func (a *Auditor) checkPairs() {
	for i, y := range a.running {
		if y.stopped > 0 {
			continue
		}
		for _, x := range a.running[:i] {
			switch {
			case x.stopped > 0:
			case x.twin == y:
				a.checkTwins(x, y)
			default:
				a.checkDouble(x, y)
			}
		}
	}
}

const meets = 20 * time.Second // until nodes that were cut off, or started together, know each other

// checkDouble checks for how long two nodes own the same partition.
func (a *Auditor) checkDouble(x, y *track) {
	key := [2]*track{x, y}
	tr := &a.trouble
	begun := a.at - max(x.began, y.began, tr.seeds, tr.cut)
	if begun < meets || a.peace(x, y) < meets || len(x.mine.common(y.mine)) == 0 {
		delete(a.double, key)
		return
	}
	if a.double[key] == 0 {
		a.double[key] = a.at
	}
	if both := a.at - a.double[key]; both > publish {
		a.object("double", "%s and %s own %v for %v", x.now.ID, y.now.ID, x.mine.common(y.mine), both)
	}
}

// checkTwins checks two processes with the same id. x is the earlier process, which was paused when y started. A member of
// both can tell x that y runs.
func (a *Auditor) checkTwins(x, y *track) {
	quiet := a.at - max(a.trouble.fleet, a.trouble.cut)
	if !common(x, y) || quiet < 2*a.TTL || y.now.Lossy || a.at-a.trouble.seeds < meets {
		x.twins, x.bothOwn = a.at, a.at
		return
	}
	both := x.mine.common(y.mine)
	if len(both) == 0 {
		x.bothOwn = a.at
	}
	ready := max(x.twins, x.active, y.active)
	if a.at-max(ready, x.bothOwn) > time.Second+tolerance {
		a.object("twin", "two processes of %s own %v", x.now.ID, both)
	}
	if run := a.at - ready; run > a.TTL {
		a.object("twin", "two processes of %s run for %v", x.now.ID, run)
	}
}

// common reports whether two processes with the same id have another member in common.
func common(x, y *track) bool {
	for other := range x.met {
		if _, met := y.met[other]; met && other.now.ID != x.now.ID {
			return true
		}
	}
	return false
}

// checkOverlap checks a run that has begun on a node while another node ran the partition. This must not happen if the
// two know each other, neither has lost the other, or given up waiting for an answer, for long, and the hosts have not just
// been suspended together.
func (a *Auditor) checkOverlap(o Overlap) {
	x, y := a.all[o.Begins], a.all[o.Runs]
	if x == nil || y == nil || x.ended > 0 || y.ended > 0 || !a.know(x, y) || a.dozed(x) && a.dozed(y) {
		return
	}
	long := 2*a.TTL + a.Handoff + a.Hang // until all runs that began before have returned
	for _, excuse := range []time.Duration{x.lostAt[y.now.ID], y.lostAt[x.now.ID], x.overran, y.overran} {
		if excuse > 0 && a.at-excuse < long {
			return
		}
	}
	a.object("runs", "%s begins to run partition %d, which %s runs", x.now.ID, o.Partition, y.now.ID)
}

// know reports whether each of two nodes has had the other as a member before this observation.
func (a *Auditor) know(x, y *track) bool {
	there, back := x.met[y], y.met[x]
	return there > 0 && back > 0 && max(there, back) < a.at
}
