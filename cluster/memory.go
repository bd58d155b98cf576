package cluster

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// memory is what a node keeps for a strategy that remembers; see
// placement.Stateful. All nodes hold the same assignment: one of them, the
// coordinator, writes it, and it spreads from node to node. Each message carries a
// stamp of the sender's assignment; whoever is told of one that is at least as new
// and differs exchanges full states with the sender, by the stream that joins use.
// Assignments merge, so it does no harm if two nodes believe that they coordinate,
// or if news overtakes other news.
type memory struct {
	assigned *assignment.Assignment
	fetching int              // exchanges that are under way
	fetchAt  time.Time        // when the next one may begin
	fetched  placement.Digest // what the last one was for
	retryAt  time.Time        // when it may be tried again

	quorum time.Time // when this node saw one last

	// What only the coordinator needs.
	settled uint64                     // the version that all nodes had followed last
	away    map[lease.NodeID]time.Time // owners and voters that are away, and since when
}

const (
	maxFetches = 3 // one may hang until it times out, if its peer has just died

	// goneAfter is how many TTLs an owner may be away before its deputies take
	// over for good. Until then a node that comes back gets back what it had.
	goneAfter = 10

	// aloneFor is how many TTLs (an hour) nodes that are no quorum wait until they
	// take it that the others are gone.
	aloneFor = 600

	// youngFor is for how many TTLs after its start the first coordinator levels
	// without a limit: nodes that start one by one are one start, and there is
	// nothing yet that must not move.
	youngFor = 5
)

// startWaiting has a node that knew nothing of the others for a while begin anew to
// wait for them: it was itself that was away.
func (m *memory) startWaiting(now time.Time) { m.quorum, m.away = now, nil }

// What Extra holds, by its first byte.
const (
	extraStamp      = 1 // version and digest of an assignment
	extraAssignment = 2 // a whole one
)

// maxStampBytes is how much room a stamp takes in a packet, with what msgpack adds.
const maxStampBytes = 3 + 1 + binary.MaxVarintLen64 + 8

// encode returns m with this node's stamp.
func (l *loop) encode(m *lease.Message) []byte {
	if l.memory != nil {
		a := l.memory.assigned
		m.Extra = binary.AppendUvarint([]byte{extraStamp}, a.Version())
		m.Extra = binary.BigEndian.AppendUint64(m.Extra, uint64(a.Digest()))
	}
	return lease.Encode(m)
}

// budget is how many bytes a packet may have before it is stamped.
func (l *loop) budget() int {
	if l.memory != nil {
		return l.node.Budget() - maxStampBytes
	}
	return l.node.Budget()
}

// encodeState returns all that this node knows.
func (l *loop) encodeState(now time.Time) []byte {
	m := l.set.Sync(now)
	if l.memory != nil && l.memory.assigned != nil {
		m.Extra = append([]byte{extraAssignment}, l.memory.assigned.Encode()...)
	}
	if len(m.Extra) > lease.MaxExtraBytes { // no cluster that works gets there
		l.log.Debug("the assignment is too large to be told", "bytes", len(m.Extra))
		m.Extra = nil
	}
	return lease.Encode(m)
}

// remember takes in what another node says of its assignment.
func (l *loop) remember(now time.Time, m *lease.Message) {
	if l.memory == nil || len(m.Extra) == 0 || m.Settings != l.settings {
		return
	}
	switch body := m.Extra[1:]; m.Extra[0] {
	case extraStamp:
		version, n := binary.Uvarint(body)
		if n <= 0 || len(body) != n+8 {
			l.stats.DecodeErrors++
			return
		}
		l.hearStamp(now, version, placement.Digest(binary.BigEndian.Uint64(body[n:])), l.set.AddrOf(m.From))
	case extraAssignment:
		heard, err := assignment.Decode(body, l.cfg.Partitions)
		if err == nil {
			heard, err = l.memory.assigned.Merge(heard)
		}
		if err != nil {
			l.stats.DecodeErrors++
			l.log.Debug("unreadable assignment", "err", err)
			return
		}
		l.adopt(now, heard)
	}
}

// hearStamp exchanges states with whoever has another assignment that is not
// older. If it is older, it is the other one who asks. A stamp costs a stranger
// nothing, so exchanges are spaced, and the same one is not tried again at once.
func (l *loop) hearStamp(now time.Time, version uint64, digest placement.Digest, addr string) {
	m := l.memory
	if version < m.assigned.Version() || digest == m.assigned.Digest() || addr == "" {
		return
	}
	if m.fetching >= maxFetches || now.Before(m.fetchAt) || (digest == m.fetched && now.Before(m.retryAt)) {
		return
	}
	m.fetchAt, m.fetched, m.retryAt = now.Add(l.cfg.GossipInterval), digest, now.Add(l.cfg.HeartbeatInterval)
	l.memory.fetching++
	l.stats.AssignmentFetches++
	a := l.agent
	a.wait.Go(func() {
		a.env.Gate()
		err := a.node.Join(addr)
		_ = a.do(context.Background(), func(l *loop) { // the error means that the agent has ended
			l.memory.fetching--
			if err != nil {
				l.log.Debug("assignment not fetched; trying again with the next message", "addr", addr, "err", err)
			}
		})
	})
}

// digestOf identifies a table and the assignment behind it: what nodes must have in
// common to go on alike.
func digestOf(t *placement.Table) uint32 {
	return uint32(t.Digest()) ^ uint32(assignment.From(t).Digest())
}

// adopt goes by an assignment from now on.
func (l *loop) adopt(now time.Time, a *assignment.Assignment) {
	if a == l.memory.assigned {
		return
	}
	l.memory.assigned = a
	l.dirty = true
	if l.placing() && l.table != nil && l.publish.IsZero() {
		l.publish = now
	}
}

// coordinates reports whether this node is the one that writes the assignment:
// of the active members the one that has run for longest, so that newcomers do
// not take over.
func (l *loop) coordinates(v *lease.View) bool {
	if l.memory == nil || l.phase != PhaseActive {
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
	return first != nil && first.ID == l.agent.self
}

// coordinator returns this node as the one who writes, and whether it is and may.
// The members that it sees, whatever their state, are its quorum. The next quorum
// is of those who are active, and of those who have just gone: if they are cut off,
// and others vanish one after the other, what is left must not be its own majority.
func (l *loop) coordinator(v *lease.View) (assignment.Coordinator, bool) {
	if l.memory == nil {
		return assignment.Coordinator{}, false
	}
	a := l.memory.assigned
	c := assignment.Coordinator{ID: l.agent.self, Since: l.set.Self().Incarnation}
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
	now := l.agent.now()
	if a.Quorum(seen) {
		l.memory.quorum = now
	}
	without := now.Sub(l.memory.quorum)
	return c, l.coordinates(v) && (without == 0 || without > aloneFor*l.cfg.LeaseTTL)
}

// level makes a pass, if this node is the one to do so and nothing is waiting to
// be published. It moves only what all nodes have followed.
func (l *loop) level(now time.Time) {
	if l.memory == nil || !l.publish.IsZero() || l.table == nil {
		return
	}
	c, ok := l.coordinator(l.set.View())
	if !ok {
		l.memory.settled, l.memory.away = 0, nil
		return
	}
	c.Gone = l.goneNodes(now)
	c.Voters = slices.DeleteFunc(c.Voters, c.Gone)
	next := assignment.Record(l.table, c)
	if next == l.memory.assigned {
		if l.agent.snap.Load().Converged() {
			l.memory.settled = next.Version()
		}
		young := next.BegunBy(c) && now.Sub(l.agent.startedAt()) < youngFor*l.cfg.LeaseTTL
		var err error
		if next, err = assignment.Level(l.table, c, l.memory.settled, young); err != nil {
			l.reportFault(err)
		}
	}
	l.adopt(now, next)
}

// goneNodes tells which owners and voters have been away for so long that they are
// not expected back.
func (l *loop) goneNodes(now time.Time) func(lease.NodeID) bool {
	here := make(map[lease.NodeID]bool)
	for _, m := range l.set.View().Members {
		here[m.ID] = m.State == lease.Active
	}
	away := make(map[lease.NodeID]time.Time)
	for _, id := range slices.Concat(l.memory.assigned.Owners(), l.memory.assigned.Voters()) {
		if here[id] {
			continue
		}
		away[id] = now
		if since, ok := l.memory.away[id]; ok {
			away[id] = since
		}
	}
	l.memory.away = away
	return func(id lease.NodeID) bool {
		since, ok := away[id]
		return ok && now.Sub(since) >= goneAfter*l.cfg.LeaseTTL
	}
}
