package node

import (
	"cmp"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

const (
	// goneAfter is the number of TTLs after which an absent owner loses its partitions to its deputies
	// permanently. An owner that comes back earlier gets its partitions back.
	goneAfter = 10

	// aloneFor is the number of TTLs (an hour) after which nodes without a quorum consider the other nodes
	// gone.
	aloneFor = 600

	// For youngFor TTLs after its start, the first coordinator may level without a limit. Nodes that start one after
	// another during this time count as a single start, in which partitions may still move freely.
	youngFor = 5
)

// assign computes a table. On the coordinator, assign also records the holders of the partitions in the
// assignment.
func (a *assigner) assign(now time.Time, v *lease.View, in placement.Input) (*placement.Table, error) {
	if !a.on {
		return a.cfg.Compute(in)
	}
	in.Memory = a.current
	table, err := a.cfg.Compute(in)
	if err != nil {
		return nil, err
	}
	c, ok := a.coordinator(now, v)
	if !ok {
		return table, nil
	}
	next := assignment.Record(table, c)
	if next == a.current {
		return table, nil
	}
	a.current, in.Memory = next, next
	return a.cfg.Compute(in)
}

// coordinates reports whether this node writes the assignment. The writer is the active member that has been
// running longest, so newcomers do not take over the role.
func (a *assigner) coordinates(v *lease.View) bool {
	if a.life.phase != Active {
		return false
	}
	var first *lease.Member
	for i := range v.Members {
		m := &v.Members[i]
		if m.State == lease.Active && (first == nil ||
			cmp.Or(cmp.Compare(m.Incarnation, first.Incarnation), cmp.Compare(m.ID, first.ID)) < 0) {
			first = m
		}
	}
	return first != nil && first.ID == a.self
}

// coordinator returns the data with which this node would write the assignment, and reports whether it may write.
//
// The coordinator may write while the members that it sees, in any state, form a quorum of the current voters. It may
// also write if it has been without a quorum for aloneFor. The voters of the next quorum are the active members, and
// the current voters that have just disappeared. Members that have disappeared remain voters because they may only be
// cut off. Otherwise, if more members vanished one by one, the remaining members could become a majority of the
// remaining voters.
func (a *assigner) coordinator(now time.Time, v *lease.View) (assignment.Coordinator, bool) {
	c := assignment.Coordinator{ID: a.self, Since: a.set.Self().Incarnation}
	seen := make([]lease.NodeID, len(v.Members))
	for i := range v.Members {
		seen[i] = v.Members[i].ID
		if v.Members[i].State == lease.Active {
			c.Voters = append(c.Voters, seen[i])
		}
	}
	c.Active = len(c.Voters)
	for _, id := range a.current.Voters() {
		if _, ok := slices.BinarySearch(seen, id); !ok {
			c.Voters = append(c.Voters, id)
		}
	}
	slices.Sort(c.Voters)
	if a.current.Quorum(seen) {
		a.quorum = now
	}
	without := now.Sub(a.quorum)
	return c, a.coordinates(v) && (without == 0 || without > aloneFor*a.cfg.LeaseTTL)
}

// level runs a leveling pass if this node coordinates and no publication is scheduled. level only moves a
// partition if all nodes have followed its last move.
func (a *assigner) level(now time.Time) {
	if !a.on || !a.when.publish.IsZero() || a.tables.table == nil {
		return
	}
	view := a.set.View()
	c, ok := a.coordinator(now, view)
	if !ok {
		a.followed, a.away = 0, nil
		return
	}
	c.Gone = a.gone(now, view, goneAfter*a.cfg.LeaseTTL)
	c.Voters = slices.DeleteFunc(c.Voters, c.Gone)
	next := assignment.Record(a.tables.table, c)
	if next == a.current {
		if a.set.Differing(TableDigest(a.tables.table)) == 0 {
			a.followed = next.Version()
		}
		young := next.BegunBy(c) && now.Sub(a.started) < youngFor*a.cfg.LeaseTTL
		var err error
		if next, err = assignment.Level(a.tables.table, c, a.followed, young); err != nil {
			a.tables.reportProblem(now, err)
		}
	}
	a.adopt(now, next)
}

// gone returns a function that reports whether an owner or voter has been away for so long that it is not
// expected to come back.
func (a *assigner) gone(now time.Time, v *lease.View, after time.Duration) func(lease.NodeID) bool {
	here := make(map[lease.NodeID]bool)
	for _, m := range v.Members {
		here[m.ID] = m.State == lease.Active
	}
	away := make(map[lease.NodeID]time.Time)
	for _, id := range slices.Concat(a.current.Owners(), a.current.Voters()) {
		if here[id] {
			continue
		}
		away[id] = now
		if since, ok := a.away[id]; ok {
			away[id] = since
		}
	}
	a.away = away
	return func(id lease.NodeID) bool {
		since, ok := away[id]
		return ok && now.Sub(since) >= after
	}
}
