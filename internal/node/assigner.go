package node

import (
	"math"
	"time"

	"github.com/roost-cluster/roost/internal/wire"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// assigner keeps the assignment of a strategy that has an assignment: see placement.Stateful. One node, the
// coordinator, writes the assignment, which then spreads to all nodes.
//
// Each message contains a stamp of the sender's assignment. The receiver compares this stamp with its own. If
// the sender's stamp differs and is at least as new, the receiver exchanges full states with the sender, over
// the same kind of stream as a join. Assignments can be merged. So it is harmless if two nodes act as
// coordinators, or if messages arrive out of order.
type assigner struct {
	*Node
	on      bool // the strategy has an assignment
	current *assignment.Assignment
	fetch   fetch

	quorum time.Time // when this node last saw a quorum

	// The following fields are only used by the coordinator.
	followed uint64                     // the last version that all nodes have followed
	away     map[lease.NodeID]time.Time // absent owners and voters, and since when
}

// startWaiting restarts the wait for absent nodes, because this node was away itself.
func (a *assigner) startWaiting(now time.Time) { a.quorum, a.away = now, nil }

// Kinds of Message.Extra, which are specified by the first field of its array.
const (
	extraStamp      = 1 // version and digest of an assignment
	extraAssignment = 2 // a whole assignment
)

// maxStampBytes is the maximum size of a stamp in a packet.
const maxStampBytes = 2 + 1 + 1 + 2*wire.MaxInteger

// stamp returns the stamp of this node's assignment, or nil if the strategy has no assignment.
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

// Sync returns everything that this node knows. It is this node's half of a full exchange over a stream.
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
	if len(m.Extra) > lease.MaxExtraBytes { // does not happen in a healthy cluster
		n.log(Debug, "assignment exceeds MaxExtraBytes, not sent", "bytes", len(m.Extra))
		m.Extra = nil
	}
	return lease.Encode(m)
}

// applyExtra handles the stamp or assignment in a message.
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

// merge merges a received assignment into this node's assignment.
func (a *assigner) merge(now time.Time, encoded []byte) {
	received, err := assignment.Decode(encoded, a.cfg.Partitions)
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

// compare starts a full exchange with a sender whose assignment differs from this node's assignment and is at least as
// new. A sender with an older assignment starts the exchange itself.
func (a *assigner) compare(now time.Time, version uint64, digest placement.Digest, addr string) {
	if version < a.current.Version() || digest == a.current.Digest() || addr == "" || !a.fetch.may(now, digest) {
		return
	}
	a.fetch.begin(now, digest, a.cfg.GossipInterval, a.cfg.HeartbeatInterval)
	a.stats.AssignmentFetches++
	a.out.Exchanges = append(a.out.Exchanges, Exchange{Addr: addr})
}

// fetched records the end of an exchange.
func (a *assigner) fetched(addr string, err error) {
	a.fetch.running--
	if err != nil {
		a.log(Debug, "assignment not fetched; retrying with the next message", "addr", addr, "err", err)
	}
}

// fetch limits the rate of an assigner's exchanges, because sending a stamp costs its sender nothing.
type fetch struct {
	running int              // exchanges in progress
	next    time.Time        // when the next exchange may begin
	digest  placement.Digest // digest for which the last exchange began
	retry   time.Time        // when this digest may be tried again
}

// maxFetches is the maximum number of concurrent exchanges. It is more than one because an exchange with a node
// that has just died hangs until it times out, and must not delay the others.
const maxFetches = 3

// may reports whether an exchange for an assignment may start.
func (f *fetch) may(now time.Time, digest placement.Digest) bool {
	return f.running < maxFetches && !now.Before(f.next) && (digest != f.digest || !now.Before(f.retry))
}

// begin records that an exchange starts.
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

// TableDigest identifies a table and the assignment that it was computed from. As long as two nodes have
// equal digests, they compute equal tables from the same live set.
func TableDigest(t *placement.Table) uint32 {
	return uint32(t.Digest()) ^ uint32(assignment.From(t).Digest())
}
