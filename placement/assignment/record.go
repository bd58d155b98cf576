package assignment

import (
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Coordinator is the node that writes an assignment.
type Coordinator struct {
	ID     lease.NodeID
	Since  uint64         // incarnation of the node; among assignments that were started independently, the older wins
	Voters []lease.NodeID // the voters for the next quorum, sorted
	Active int            // number of active members

	// Gone reports whether an owner is not expected to return. Default: no owner is gone.
	Gone func(lease.NodeID) bool
}

// Record returns an assignment that matches t. If a partition has no owner, its holder becomes the owner. If
// the owner is absent, the holder becomes the deputy, so that a later change of nodes does not move the
// partition again. If the owner is gone permanently, the deputy becomes the owner. If the owner returns, the
// partition no longer has a deputy.
//
// If t's own assignment already matches, Record returns it. The caller must check Quorum before c writes the
// result. Record costs O(partitions).
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

// record records the current holder of the partition.
func (e *entry) record(holder lease.NodeID, c Coordinator, version uint64) {
	switch {
	case e.owner == "":
		*e = entry{owner: holder, version: version, by: c.ID}
	case e.owner == holder && e.deputy != "":
		e.deputy, e.stand = "", version // otherwise the former deputy would inherit the partition when the owner leaves years later
	case e.owner == holder:
	case c.Gone != nil && c.Gone(e.owner):
		*e = entry{owner: holder, version: version, from: e.owner, by: c.ID, cause: causeGone}
	case e.deputy != holder:
		e.deputy, e.stand = holder, version
	}
}

// draft returns a copy of a with the next version, for c to modify. It fails if a has the highest version.
func (a *Assignment) draft(c Coordinator, partitions int) (*Assignment, bool) {
	if a == nil {
		return &Assignment{genesis: genesis{c.Since, c.ID}, entries: make([]entry, partitions), version: 1}, true
	}
	next := *a
	next.version++
	next.entries = slices.Clone(a.entries)
	return &next, next.version <= maxVersion
}
