package placement

import (
	"maps"

	"github.com/roost-cluster/roost/lease"
)

// Node is a candidate for ownership.
type Node struct {
	ID     lease.NodeID `json:"id"`
	Weight uint32       `json:"weight"`         // share relative to the other nodes; 0 owns nothing
	Zone   string       `json:"zone,omitempty"` // where it is, for [Zoned]; "" if nobody said

	// What the node states about itself, for strategies that look at it. The
	// built-in ones do not.
	Capacity int64             `json:"capacity,omitempty"` // units of load that it can carry; 0 = not stated
	Labels   map[string]string `json:"labels,omitempty"`   // shared: must not be modified
}

// Equal reports whether n and o agree in all fields.
func (n Node) Equal(o Node) bool {
	return n.ID == o.ID && n.Weight == o.Weight && n.Zone == o.Zone &&
		n.Capacity == o.Capacity && maps.Equal(n.Labels, o.Labels)
}

// Strategy decides which node owns which partition. Every node of the cluster
// decides for itself, so an implementation answers equal arguments equally, in
// every process and on every CPU: no randomness, clock, map order or floating
// point. It is safe for concurrent use, and returns soon: an agent waits for it.
// Package placementtest has a test of all that.
//
// A strategy that panics, or returns nonsense, makes Compute fail with an error
// that names it; an agent reports it and keeps its last good table.
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
	// so on. n is at least 1. If owners depend on what else the nodes have got,
	// p alone does not tell: a Table puts the owner first, whatever Rank says.
	Rank(nodes []Node, p Partition, n int) []int
}
