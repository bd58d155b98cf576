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
	// goneAfter is how many TTLs an owner may be away before its deputies take over
	// for good. Until then a node that comes back gets back what it had.
	goneAfter = 10

	// aloneFor is how many TTLs (an hour) nodes without a quorum wait until they take
	// the others for gone.
	aloneFor = 600

	// youngFor is for how many TTLs after its start the first coordinator levels
	// without a limit: nodes that start one by one are one start, and there is
	// nothing yet that must not move.
	youngFor = 5
)

// assign computes a table. A coordinator also writes down who got what.
func (n *Node) assign(now time.Time, v *lease.View, in placement.Input) (*placement.Table, error) {
	if n.assigner == nil {
		return n.cfg.Compute(in)
	}
	in.Memory = n.assigner.current
	table, err := n.cfg.Compute(in)
	if err != nil {
		return nil, err
	}
	c, ok := n.coordinator(now, v)
	if !ok {
		return table, nil
	}
	next := assignment.Record(table, c)
	if next == n.assigner.current {
		return table, nil
	}
	n.assigner.current, in.Memory = next, next
	return n.cfg.Compute(in)
}

// coordinates reports whether this node writes the assignment. The writer is the
// active member that has run for longest, so that newcomers do not take over.
func (n *Node) coordinates(v *lease.View) bool {
	if n.life.phase != Active {
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
	return first != nil && first.ID == n.self
}

// coordinator returns this node as the writer of the assignment, and whether it is
// and may be. The members that it sees, in any state, are its quorum. The
// next quorum consists of the active members and of the ones just gone: if
// they are cut off, and others vanish one after the other, the rest must not be its
// own majority.
func (n *Node) coordinator(now time.Time, v *lease.View) (assignment.Coordinator, bool) {
	a := n.assigner.current
	c := assignment.Coordinator{ID: n.self, Since: n.set.Self().Incarnation}
	seen := make([]lease.NodeID, len(v.Members))
	for i := range v.Members {
		seen[i] = v.Members[i].ID
		if v.Members[i].State == lease.Active {
			c.Voters = append(c.Voters, seen[i])
		}
	}
	c.Active = len(c.Voters)
	for _, id := range a.Voters() {
		if _, ok := slices.BinarySearch(seen, id); !ok {
			c.Voters = append(c.Voters, id)
		}
	}
	slices.Sort(c.Voters)
	if a.Quorum(seen) {
		n.assigner.quorum = now
	}
	without := now.Sub(n.assigner.quorum)
	return c, n.coordinates(v) && (without == 0 || without > aloneFor*n.cfg.LeaseTTL)
}

// level makes a pass, if this node coordinates and no publication is planned. It
// moves only what all nodes have followed.
func (n *Node) level(now time.Time) {
	if n.assigner == nil || !n.when.publish.IsZero() || n.table == nil {
		return
	}
	view := n.set.View()
	c, ok := n.coordinator(now, view)
	if !ok {
		n.assigner.followed, n.assigner.away = 0, nil
		return
	}
	c.Gone = n.assigner.gone(now, view, goneAfter*n.cfg.LeaseTTL)
	c.Voters = slices.DeleteFunc(c.Voters, c.Gone)
	next := assignment.Record(n.table, c)
	if next == n.assigner.current {
		if n.set.Differing(TableDigest(n.table)) == 0 {
			n.assigner.followed = next.Version()
		}
		young := next.BegunBy(c) && now.Sub(n.started) < youngFor*n.cfg.LeaseTTL
		var err error
		if next, err = assignment.Level(n.table, c, n.assigner.followed, young); err != nil {
			n.reportProblem(now, err)
		}
	}
	n.adopt(now, next)
}

// gone returns which owners and voters have been away for so long that they are not
// expected back.
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
