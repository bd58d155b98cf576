package placement

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement/ring"
)

// ClassicRing returns the strategy that places partitions by [ring.New], each by
// its number in decimal as the key. Choose it to agree with other programs that
// place so; [Rendezvous] balances better (shares of 1,024 partitions on 10 nodes vary
// by 9 % there and by 12 % here), and respects weights. A join moves partitions only to
// the joiner, a leave only the leaver's.
//
// Weights above 0 have no influence: a node of weight 2 gets as much as one of
// weight 1.
//
// Assign costs 160 hashes a node and a sort of them all, then a lookup per
// partition: 0.4 ms for 10 nodes and 1,024 partitions, 35 ms for 1,000 nodes. The
// ring of the last call is kept, and Rank on the same nodes costs as much as
// [ring.Ring.Owners], plus a comparison per node.
func ClassicRing() Strategy {
	return &onRing{name: "classic-ring", of: func(nodes []Node) (*ring.Ring, error) {
		ids := make([]lease.NodeID, len(nodes))
		for i, n := range nodes {
			ids[i] = n.ID
		}
		return ring.New(ids...)
	}}
}

// VnodeRing returns the strategy of a ring with weights and a fast hash: a node
// has 150 points for each 100 of its weight, point v at the xxHash64 of its id, a
// colon and v, and a partition belongs to the node of the first point at or after
// the hash of its number in decimal. A machine of twice the weight gets about
// twice as much, a join moves partitions only to the joiner, and a change of one
// weight only to or from that node.
//
// It spreads less evenly than [Rendezvous], because arcs differ in length: of 1,024
// partitions on 10 nodes, shares vary by 11 % and not by 9. It also costs more: Assign
// makes the points, sorts them all and looks up each
// partition, 2 ms for 100 nodes and 22 ms for 1,000. Choose it to agree with other
// programs that place so. Rank on the same nodes costs what [ring.Ring.Owners] does.
// Weights are absolute here: with all of them at 1 each node has a single point.
// Assign fails beyond four million points.
func VnodeRing() Strategy {
	return &onRing{name: "vnode-ring", of: func(nodes []Node) (*ring.Ring, error) {
		points := make(map[lease.NodeID]int, len(nodes))
		for _, n := range nodes {
			points[n.ID] = int(min(max(1, uint64(n.Weight)*150/100), math.MaxInt32))
		}
		r, err := ring.NewWeighted(points)
		if err != nil {
			return nil, fmt.Errorf("%w: use weights around 100", err)
		}
		return r, nil
	}}
}

// onRing is the strategy of a kind of ring.
type onRing struct {
	name string
	of   func(nodes []Node) (*ring.Ring, error)

	// last only saves time: a table ranks on the nodes that it was assigned
	// for, and the ring of 1,000 nodes takes 40 ms to compute.
	last atomic.Pointer[placed]
}

// placed is a ring and the nodes that it was made of.
type placed struct {
	nodes []Node
	ring  *ring.Ring
}

func (s *onRing) Name() string { return s.name }

func (s *onRing) Assign(nodes []Node, partitions int) ([]int, error) {
	if len(nodes) == 0 {
		return nil, errNoNodes
	}
	r, err := s.ring(nodes)
	if err != nil {
		return nil, err
	}
	owners := make([]int, partitions)
	for p := range owners {
		owners[p] = r.Index(strconv.Itoa(p))
	}
	return owners, nil
}

func (s *onRing) Rank(nodes []Node, p Partition, n int) []int {
	r, err := s.ring(nodes)
	if err != nil { // an imported table may have nodes that Assign rejects
		return nil
	}
	return r.Rank(strconv.FormatUint(uint64(p), 10), n)
}

// Explain implements [Explainer].
func (s *onRing) Explain(nodes []Node, _ Partition, owner int) string {
	return fmt.Sprintf("on the ring of %d nodes, the first point at or after its hash is one of %s", len(nodes), nodes[owner].ID)
}

// samePoints reports whether two nodes have the same points on a ring.
func samePoints(a, b Node) bool { return a.ID == b.ID && a.Weight == b.Weight }

func (s *onRing) ring(nodes []Node) (*ring.Ring, error) {
	if last := s.last.Load(); last != nil && slices.EqualFunc(last.nodes, nodes, samePoints) {
		return last.ring, nil
	}
	r, err := s.of(nodes)
	if err != nil {
		return nil, err
	}
	s.last.Store(&placed{slices.Clone(nodes), r})
	return r, nil
}
