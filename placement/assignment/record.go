package assignment

import (
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Coordinator is the node that writes an assignment.
type Coordinator struct {
	ID     lease.NodeID
	Since  uint64         // its incarnation; of two separate beginnings, the older one counts
	Voters []lease.NodeID // the nodes that count for the next quorum, sorted
	Active int            // number of active members

	// Gone reports whether an owner is not expected to come back. Default: no owner is gone.
	Gone func(lease.NodeID) bool
}

// Record returns the assignment that agrees with t. A node that holds a partition without an owner becomes
// its owner. A node that holds a partition of an absent owner becomes its deputy, so that a later change of
// nodes does not move the partition again. If the owner is gone for good, the deputy becomes the owner. If
// the owner returns, the partition has no deputy any more.
//
// The result is t's own assignment if that agrees already. The caller must use Quorum to decide whether c may
// write. Record costs O(partitions).
func Record(t *placement.Table, c Coordinator) *Assignment {
	a := From(t)
	if len(t.Nodes()) == 0 {
		return a
	}
	next, ok := a.draft(c, t.Partitions())
	if !ok {
		return a
	}
	changed := a == nil
	for p := range next.entries {
		e := &next.entries[p]
		before := *e
		holder, _ := t.Owner(placement.Partition(p))
		e.record(holder, c, next.version)
		changed = changed || *e != before
	}
	q := quorum{next.version, slices.Clone(c.Voters), uint64(c.Active)}
	if q.active != next.quorum.active || !slices.Equal(q.voters, next.quorum.voters) {
		next.quorum, changed = q, true
	}
	if !changed {
		return a
	}
	return next.finish()
}

// record records the present holder of the partition.
func (e *entry) record(holder lease.NodeID, c Coordinator, version uint64) {
	switch {
	case e.owner == "":
		*e = entry{owner: holder, version: version, by: c.ID}
	case e.owner == holder && e.deputy != "":
		e.deputy, e.stand = "", version // otherwise it would inherit the partition when the owner goes years later
	case e.owner == holder:
	case c.Gone != nil && c.Gone(e.owner):
		*e = entry{owner: holder, version: version, from: e.owner, by: c.ID, cause: causeGone}
	case e.deputy != holder:
		e.deputy, e.stand = holder, version
	}
}

// draft returns a copy of a with the next version, for c to change. It fails after
// the last version.
func (a *Assignment) draft(c Coordinator, partitions int) (*Assignment, bool) {
	if a == nil {
		return &Assignment{genesis: genesis{c.Since, c.ID}, entries: make([]entry, partitions), version: 1}, true
	}
	next := *a
	next.version++
	next.entries = slices.Clone(a.entries)
	return &next, next.version <= maxVersion
}
