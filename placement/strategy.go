package placement

import "github.com/roost-cluster/roost/lease"

// Node is a candidate for ownership.
type Node struct {
	ID     lease.NodeID
	Weight uint32 // share relative to the other nodes; 0 owns nothing
	Zone   string // where it is, for [Zoned]; "" if nobody said
}

// Strategy decides which node owns which partition. Every node of the cluster
// decides for itself, so an implementation answers equal arguments equally, in
// every process and on every CPU: no randomness, clock, map order or floating
// point. It is safe for concurrent use.
//
// The nodes that it is given are sorted by id and distinct, at least one, and
// each of weight > 0. It must neither modify nor keep the slice.
type Strategy interface {
	// Name says which strategy this is, with its parameters. Nodes whose
	// strategies have different names refuse each other.
	Name() string

	// Assign returns, for each of the partitions, the index into nodes of its
	// owner.
	Assign(nodes []Node, partitions int) ([]int, error)

	// Rank returns min(n, len(nodes)) distinct indexes into nodes, best first:
	// the owner of p, then the node that would own p without the owner, and
	// so on.
	Rank(nodes []Node, p Partition, n int) []int
}
