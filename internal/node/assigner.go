package node

import (
	"math"
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/wire"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// assigner keeps the assignment of a strategy that has one; see
// placement.Stateful. All nodes hold the same assignment: one of them, the
// coordinator, writes it, and it spreads from node to node. Each message carries a
// stamp of the sender's assignment. The receiver of a stamp that is at least as new
// and differs exchanges full states with the sender, by the stream that joins use.
// Assignments merge, so it does no harm if two nodes believe that they coordinate, or
// if messages overtake each other.
type assigner struct {
	*Node
	on      bool // the strategy has an assignment
	current *assignment.Assignment
	fetch   fetch

	quorum time.Time // when this node saw one last

	// What only the coordinator needs.
	followed uint64                     // the last version that all nodes had followed
	away     map[lease.NodeID]time.Time // absent owners and voters, and since when
}

// startWaiting makes a node that was away itself begin again to wait for the others.
func (a *assigner) startWaiting(now time.Time) { a.quorum, a.away = now, nil }

// What Extra holds, by the first field of its array.
const (
	extraStamp      = 1 // version and digest of an assignment
	extraAssignment = 2 // a whole one
)

// maxStampBytes is the maximum size of a stamp in a packet.
const maxStampBytes = 2 + 1 + 1 + 2*wire.MaxInteger

// stamp returns what tells the assignment of this node from others, or nil.
func (a *assigner) stamp() []byte {
	if !a.on {
		return nil
	}
	return wire.Append(nil, func(w *wire.Writer) {
		w.Array(3)
		w.Uint(extraStamp)
		w.Uint(a.current.Version())
		w.Uint(uint64(a.current.Digest()))
	})
}

// Sync returns all that this node knows: its half of a full exchange over a stream.
func (n *Node) Sync(now time.Time) []byte {
	n.checkLease(now)
	m := n.set.Sync(now)
	m.Cluster = n.identity.cluster
	m.Challenge = n.set.StreamNonce(now, n.random())
	if n.assigner.on && n.assigner.current != nil {
		m.Extra = wire.Append(nil, func(w *wire.Writer) {
			w.Array(2)
			w.Uint(extraAssignment)
			w.Raw(n.assigner.current.Encode())
		})
	}
	if len(m.Extra) > lease.MaxExtraBytes { // no healthy cluster gets there
		n.log(Debug, "assignment exceeds MaxExtraBytes, not sent", "bytes", len(m.Extra))
		m.Extra = nil
	}
	return lease.Encode(m)
}

// applyExtra takes in what a message says of the sender's assignment.
func (a *assigner) applyExtra(now time.Time, m *lease.Message) {
	if !a.on || len(m.Extra) == 0 || m.Settings != a.cfg.Settings {
		return
	}
	var kind, version, digest uint64
	var encoded []byte
	err := wire.Read(m.Extra, func(r *wire.Reader) {
		r.Fields(2, func() {
			switch kind = r.Uint(math.MaxUint64); {
			case kind == extraStamp && r.Left() < 2:
				r.Fail("a stamp without a digest")
			case kind == extraStamp:
				version, digest = r.Uint(math.MaxUint64), r.Uint(math.MaxUint64)
			case kind == extraAssignment:
				encoded = r.Raw()
			}
		})
	})
	switch {
	case err != nil:
		a.stats.DecodeErrors++
	case kind == extraStamp:
		a.compare(now, version, placement.Digest(digest), a.set.AddrOf(m.From))
	case kind == extraAssignment:
		a.merge(now, encoded)
	}
}

// merge takes in an assignment.
func (a *assigner) merge(now time.Time, encoded []byte) {
	received, err := assignment.Decode(encoded, a.cfg.Partitions)
	if err == nil && a.current.ReplacedBy(received) && !a.metAny(received.Voters()) {
		return
	}
	if err == nil {
		received, err = a.current.Merge(received)
	}
	if err != nil {
		a.stats.DecodeErrors++
		a.log(Debug, "unreadable assignment", "err", err)
		return
	}
	a.adopt(now, received)
}

// metAny reports whether one of the nodes is a member, this one among them. An older assignment
// of another cluster replaces this one only if its writer, or a node that the writer saw, is
// here. The writer may be an earlier process of this node.
func (a *assigner) metAny(ids []lease.NodeID) bool {
	return slices.ContainsFunc(a.set.View().Members, func(m lease.Member) bool {
		_, ok := slices.BinarySearch(ids, m.ID)
		return ok
	})
}

// compare begins a full exchange with a sender that has another assignment, at least
// as new as ours. A sender with an older one begins the exchange itself.
func (a *assigner) compare(now time.Time, version uint64, digest placement.Digest, addr string) {
	if version < a.current.Version() || digest == a.current.Digest() || addr == "" || !a.fetch.may(now, digest) {
		return
	}
	a.fetch.begin(now, digest, a.cfg.GossipInterval, a.cfg.HeartbeatInterval)
	a.stats.AssignmentFetches++
	a.out.Exchanges = append(a.out.Exchanges, Exchange{Addr: addr})
}

// fetched notes the end of an exchange.
func (a *assigner) fetched(addr string, err error) {
	a.fetch.running--
	if err != nil {
		a.log(Debug, "assignment not fetched; retrying with the next message", "addr", addr, "err", err)
	}
}

// fetch spaces the exchanges of an assigner: a stamp costs its sender nothing.
type fetch struct {
	running int              // exchanges that are under way
	next    time.Time        // when the next one may begin
	digest  placement.Digest // what the last one was for
	retry   time.Time        // when it may be tried again
}

// maxFetches is how many exchanges run at a time. One may hang until it times out,
// if the other node has just died.
const maxFetches = 3

// may reports whether an exchange for an assignment may begin.
func (f *fetch) may(now time.Time, digest placement.Digest) bool {
	return f.running < maxFetches && !now.Before(f.next) && (digest != f.digest || !now.Before(f.retry))
}

// begin notes that an exchange begins.
func (f *fetch) begin(now time.Time, digest placement.Digest, space, retry time.Duration) {
	f.running++
	f.next, f.digest, f.retry = now.Add(space), digest, now.Add(retry)
}

// adopt makes an assignment the current one.
func (a *assigner) adopt(now time.Time, next *assignment.Assignment) {
	if next == a.current {
		return
	}
	a.current = next
	a.heard = true
	if a.life.places() && a.tables.table != nil && a.when.publish.IsZero() {
		a.when.publish = now
	}
}

// TableDigest identifies a table and the assignment behind it. Nodes with equal digests
// compute equal tables from now on.
func TableDigest(t *placement.Table) uint32 {
	return uint32(t.Digest()) ^ uint32(assignment.From(t).Digest())
}
