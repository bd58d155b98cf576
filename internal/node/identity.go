package node

import (
	"errors"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// The address of a dead member may be reused by another cluster with the same name, settings and even node
// ids. So an address alone does not identify a node. Therefore each cluster has an identity, which is the
// list of its founders. Each message contains this identity. See docs/dev/design/founders.md.
//
//   - The member with the smallest id founds a cluster that has no identity yet.
//   - A process without an identity adopts the identity of the node that it joins.
//   - Configured seeds are trusted. If a seed leads to another cluster, the two clusters merge, and the new
//     identity contains the founders of both.
//   - Addresses of lost members and packets from non-members are not trusted. If such an address or packet
//     leads to another cluster, this node ignores that cluster. But this node still answers questions, and a
//     packet of another cluster may show this node that it was suspended.

// Errors of Node.Met.
var (
	ErrSelf         = errors.New("that address leads to this node itself: it is another address of this host, or a proxy sends the connection back")
	ErrOtherCluster = errors.New("another cluster answers there, or a node that has restarted and found no seed")
)

// meets decides whether to exchange states with the node that was reached at an address. It returns the new
// identity of this node. The parameter known is true if the other node is a member, or if this node has
// challenged the other node because of its full state.
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

// admits decides whether a message belongs to this cluster.
//
// A full state arrives over a stream, and its sender trusts the address at which it has reached this node. A packet may
// come from a sender that confuses this node with the previous owner of its address. So a node without an identity does
// not adopt an identity from a packet, unless it knows the sender. A sender without an identity is a newcomer, or
// belongs to a cluster that is still starting and so has not lost an address yet.
func admits(ours, theirs lease.ClusterID, stream, known bool) bool {
	return known || len(theirs) == 0 || ours.Same(theirs) || (len(ours) == 0 && stream)
}

// founds reports whether this node founds the cluster. held is whether another member holds the lease of this node, or
// there is no other member. Otherwise the others would ignore this node as soon as it has an identity.
func founds(ours lease.ClusterID, settled, smallest, held bool) bool {
	return len(ours) == 0 && settled && smallest && held
}

// Peer is the node that answers at an address.
type Peer struct {
	Node    lease.Handle
	Cluster lease.ClusterID
}

// Peer returns the identity of the process and of its cluster, for a node that connects to this node.
func (n *Node) Peer() Peer { return Peer{n.set.Handle(), n.identity.cluster} }

// Met reports which node answered at the address of an exchange. The shell calls it before states are exchanged. If Met
// returns an error, the shell must stop the exchange. The error is ErrSelf or ErrOtherCluster. An Exchange without a
// target was started by memberlist, with a member.
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

// identity holds the identity of this node's cluster, and decides which messages belong to it.
type identity struct {
	*Node
	cluster lease.ClusterID
}

// knows reports whether a process is a member, or whether this node has challenged it because of its full
// state.
func (i *identity) knows(h lease.Handle) bool {
	return i.set.AddrOf(h) != "" || i.waiting.sender(h) != nil
}

// ours reports whether a message belongs to this cluster and comes from another node. A message may come from
// this node itself if other nodes advertise its address.
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

// foreign handles a packet of another cluster. While this node was suspended, all other members may have
// restarted and founded a new cluster. So if the packet suggests a suspension, this node asks members whether
// it is still live. The sender may have been suspended as well, so this node sends the sender the cluster
// time.
func (i *identity) foreign(now time.Time, m *lease.Message) {
	// If a member answers, this node was not suspended, and the other cluster simply has a different cluster
	// time.
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

// found creates the identity of a cluster that has no identity yet. Only a settled node that has the smallest id and
// whose lease another member holds does so. A node without other members does so as soon as it has settled. The other
// nodes adopt the identity from messages.
func (i *identity) found(now time.Time) {
	settled := i.life.phase == Active || i.life.phase == Isolated || i.life.clockFenced
	if len(i.cluster) > 0 || !settled {
		return
	}
	for smallest := range i.set.Members {
		held := i.set.PeerCount() == 0 || now.Sub(i.set.Shown()) < i.cfg.LeaseTTL
		if founds(i.cluster, settled, smallest.ID == i.self, held) {
			i.setCluster(lease.ClusterID{i.set.Handle()})
			i.log(Info, "founded a cluster")
		}
		return
	}
}
