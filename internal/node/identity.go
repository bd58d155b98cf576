package node

import (
	"errors"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// An address does not say who is there. The address of a dead member may belong to another cluster by now,
// with the same name, settings and even node ids. So a cluster has an identity, its founders, which each
// message carries. See docs/dev/design/founders.md.
//
//   - The member with the smallest id founds a cluster that has no identity yet.
//   - A process that has none adopts the identity of the node that it joins.
//   - Configured seeds are trusted. If they lead to another cluster, the two become one, and its identity has
//     the founders of both.
//   - Everything else that leads to another cluster is ignored: addresses of lost members, and packets of
//     senders that are not members here. But questions are answered, and such a packet may tell this node
//     that it was suspended.

// Errors of Met.
var (
	ErrSelf         = errors.New("that address leads to this node itself: it is another address of this host, or a proxy sends the connection back")
	ErrOtherCluster = errors.New("another cluster answers there, or a node that has restarted and found no seed")
)

// meets decides whether to exchange states with a node that was reached at an address, and returns the new
// identity of this node. known means that the other node is a member, or that this node has challenged it
// because of its full state.
func meets(ours, theirs lease.ClusterID, seed, known bool) (lease.ClusterID, error) {
	if !seed && !known && !ours.Same(theirs) {
		return ours, ErrOtherCluster
	}
	union := ours.Union(theirs)
	if len(theirs) > 0 && !union.Same(theirs) { // the list is full, and the other side must be able to recognize what this node sends
		union = append(slices.Clone(union[:len(union)-1]), theirs[0])
	}
	return union, nil
}

// admits decides whether a message belongs to this cluster. A full state comes over a stream, and its sender
// has reached this node at an address that it trusts. A packet may come from a sender that mistakes this node
// for the earlier owner of its address. So a node without an identity does not adopt one from a packet,
// unless it knows the sender. A sender without an identity is a newcomer, or belongs to a cluster that is
// only starting and cannot have lost an address yet.
func admits(ours, theirs lease.ClusterID, stream, known bool) bool {
	return known || len(theirs) == 0 || ours.Same(theirs) || (len(ours) == 0 && stream)
}

// founds reports whether a node founds the cluster of which it is a member.
func founds(ours lease.ClusterID, settled, smallest bool) bool {
	return len(ours) == 0 && settled && smallest
}

// Peer is the node that answers at an address.
type Peer struct {
	Node    lease.Handle
	Cluster lease.ClusterID
}

// Peer returns how this node identifies itself at its address.
func (n *Node) Peer() Peer { return Peer{n.set.Handle(), n.identity.cluster} }

// Met reports the node that answers at the address of an exchange, before states are exchanged. If Met fails,
// the exchange must end. The error wraps ErrSelf or ErrOtherCluster. An Exchange without a target is one that
// memberlist begins by itself, with a member.
func (n *Node) Met(now time.Time, x Exchange, p Peer) error {
	n.checkLease(now)
	if p.Node == n.set.Handle() {
		return ErrSelf
	}
	seed := x.target != nil && x.target.kind == seedAddr
	id, err := meets(n.identity.cluster, p.Cluster, seed, n.identity.knows(p.Node))
	if err != nil {
		return err
	}
	if len(n.identity.cluster) > 0 && len(p.Cluster) > 0 && !n.identity.cluster.Same(p.Cluster) {
		n.log(Warn, "uniting with the cluster of a seed", "seed", x.Addr)
	}
	n.identity.setCluster(id)
	return nil
}

// identity decides which cluster this node belongs to.
type identity struct {
	*Node
	cluster lease.ClusterID
}

// knows reports whether a process is a member, or was challenged because of its full state.
func (i *identity) knows(h lease.Handle) bool {
	return i.set.AddrOf(h) != "" || i.waiting.sender(h) != nil
}

// ours reports whether a message may count. It must belong to this cluster, and must not come from this node
// itself, which can happen if others advertise its address.
func (i *identity) ours(now time.Time, m *lease.Message, stream bool) bool {
	switch {
	case m.From == i.set.Handle():
		i.stats.FromSelf++
		i.reach.loops = i.reach.loops || !stream
	case admits(i.cluster, m.Cluster, stream, i.knows(m.From)):
		return true
	default:
		i.stats.OtherCluster++
		if !stream {
			i.foreign(now, m)
		}
	}
	return false
}

// foreign handles a packet of another cluster. While this node was suspended, all other members may have been
// restarted and founded a new cluster. So this node asks members. The same may have happened to the sender,
// so this node tells it the time.
func (i *identity) foreign(now time.Time, m *lease.Message) {
	// If a member answers, this node was not suspended, and the other cluster just has another time.
	if i.asleep.unanswered > fewUnanswered && i.set.Overslept(now, m) {
		i.asleep.wake(now)
	}
	if to := i.set.EchoTo(m); to != "" {
		i.send(Packet{To: to, Bytes: i.encode(i.set.Echo(now, m))})
	}
}

func (i *identity) setCluster(id lease.ClusterID) {
	if len(id) != len(i.cluster) || !slices.Equal(id, i.cluster) {
		i.cluster, i.out.Cluster = id, id
	}
}

// found gives the cluster an identity if it has none and this node is the one to do so, because it has
// settled and has the smallest id. The others adopt the identity from messages.
func (i *identity) found(time.Time) {
	settled := i.life.phase == Active || i.life.phase == Isolated || i.life.clockFenced
	if len(i.cluster) > 0 || !settled {
		return
	}
	for smallest := range i.set.Members {
		if founds(i.cluster, settled, smallest.ID == i.self) {
			i.setCluster(lease.ClusterID{i.set.Handle()})
			i.log(Info, "founded a cluster")
		}
		return
	}
}
