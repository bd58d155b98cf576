package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// wait is how long a partition has waited for other nodes, or for its run to return.
type wait struct {
	since time.Time
	what  waitFor
	over  bool // the bound has passed
}

type waitFor uint8

const (
	toRun    waitFor = iota // the table names this node
	toStop                  // the table names another node, which has not demanded it
	toReturn                // its run was stopped
)

// reconcileWaits forgets the waits that are over, and returns what is waited for now. It runs
// at each new table, too: a partition that goes and comes back begins a wait of its own.
func (h *handing) reconcileWaits() (waiting map[placement.Partition]waitFor) {
	waiting = make(map[placement.Partition]waitFor)
	for _, p := range h.state.Waiting() {
		waiting[p] = toStop
		if h.state.Waits(p) {
			waiting[p] = toRun
		}
	}
	for _, p := range h.state.Stopping() {
		waiting[p] = toReturn
	}
	maps.DeleteFunc(h.waits, func(p placement.Partition, w *wait) bool {
		what, still := waiting[p]
		return !still || what != w.what
	})
	return waiting
}

// endWaits ends the waits that exceed the bound, and reports whether there are others.
func (n *Node) endWaits(now time.Time) (any bool) {
	h := &n.handing
	waiting := h.reconcileWaits()
	overdue := make(map[string][]placement.Partition) // by the log line
	for _, p := range slices.Sorted(maps.Keys(waiting)) {
		w := h.waits[p]
		if w == nil {
			w = &wait{since: now, what: waiting[p]}
			h.waits[p] = w
		}
		if w.over || now.Sub(w.since) < h.bound {
			continue
		}
		w.over = true
		key := fmt.Sprint(w.what, h.names(h.state.Missing(p)))
		overdue[key] = append(overdue[key], p)
	}
	for _, key := range slices.Sorted(maps.Keys(overdue)) {
		n.overdue(now, overdue[key])
	}
	return len(waiting) > 0
}

// overdue ends the waits of partitions that wait for the same.
func (n *Node) overdue(now time.Time, partitions []placement.Partition) {
	h, first := &n.handing, partitions[0]
	w := h.waits[first]
	attrs := []any{"partition", first, "partitions", len(partitions), "waited", now.Sub(w.since)}
	switch w.what {
	case toRun:
		n.stats.HandoffOverruns += uint64(len(partitions))
		n.log(Warn, "handoff overdue: running without the answer of another node", append(attrs, "missing", h.names(h.state.Missing(first)))...)
	case toStop:
		n.log(Warn, "handoff overdue: stopping a run that its next owner has not demanded", attrs...)
	case toReturn:
		n.log(Warn, "handoff overdue: a stopped run has not returned", attrs...)
	}
	if w.what != toReturn {
		for _, p := range partitions {
			h.state.Overdue(p)
		}
	}
}

// overdueRuns returns the partitions whose runs were stopped, and have not returned within the bound, in order.
func (h *handing) overdueRuns() (partitions []placement.Partition) {
	for p, w := range h.waits {
		if w.what == toReturn && w.over {
			partitions = append(partitions, p)
		}
	}
	slices.Sort(partitions)
	return partitions
}

// names returns the ids of members, the first few of many.
func (h *handing) names(members []lease.Handle) string {
	const few = 3
	var names []string
	for _, m := range members[:min(few, len(members))] {
		names = append(names, string(h.ids[m]))
	}
	if more := len(members) - few; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
