package placement

import (
	"maps"

	"github.com/roost-cluster/roost/lease"
)

// Node is a candidate for ownership.
type Node struct {
	ID     lease.NodeID `json:"id"`
	Weight uint32       `json:"weight"`         // share relative to the other nodes; 0 owns nothing
	Zone   string       `json:"zone,omitempty"` // for [Zoned]; "" = not stated

	// Capacity and Labels are for your own strategies. The built-in ones ignore them.
	Capacity int64             `json:"capacity,omitempty"` // units of load that the node can carry; 0 = not stated
	Labels   map[string]string `json:"labels,omitempty"`   // shared: must not be modified
}

// Equal reports whether n and o agree in all fields.
func (n Node) Equal(o Node) bool {
	return n.ID == o.ID && n.Weight == o.Weight && n.Zone == o.Zone &&
		n.Capacity == o.Capacity && maps.Equal(n.Labels, o.Labels)
}

// Strategy decides which node owns which partition. Every node of the cluster decides by itself, so an
// implementation must return equal results for equal arguments, in every process and on every CPU. It must
// not depend on randomness, a clock, map order or floating point. It must be safe for concurrent use, and
// return soon, because an agent waits for it. Package placementtest tests all of that.
//
// If a strategy panics or returns an invalid result, Compute fails with an error that names the strategy. An
// agent then logs the error and keeps its last good table.
//
// The methods get at least one node. The nodes are distinct, sorted by id, and have a weight above 0. The
// strategy must neither modify nor keep the slice.
type Strategy interface {
	// Name identifies the strategy and its parameters. Nodes reject nodes whose strategy has another name.
	Name() string

	// Assign returns the owner of each partition as an index into nodes.
	Assign(nodes []Node, partitions int) ([]int, error)

	// Rank returns min(n, len(nodes)) distinct indexes into nodes, best first: the owner of p, then the node
	// that would own p without the owner, and so on. n is at least 1. If owners depend on the load of nodes,
	// Rank cannot know the owner of p. That is allowed, because a Table always puts the owner first.
	Rank(nodes []Node, p Partition, n int) []int
}

// Explainer is a [Strategy] that can explain to people, in a sentence, why the node with the index owner has
// p.
type Explainer interface {
	Explain(nodes []Node, p Partition, owner int) string
}

// Stateful is a [Strategy] that remembers owners: they also depend on the last holder of each partition.
// Agents with such a strategy share an assignment (package assignment), so that all of them remember the same
// holders.
//
// Both methods obey the rules of Assign: equal arguments give equal results, and the
// arguments are neither modified nor kept.
type Stateful interface {
	// Keep returns the owners, as Assign does. held[p] is the recorded holder of p as an index into nodes, or
	// -1 if there is none or it is absent. A partition with a holder must stay with it, because only Level
	// moves partitions. If no partition has a holder, the owners must be those of Assign.
	Keep(nodes []Node, held []int) ([]int, error)

	// Level returns the moves of one pass, or none if the owners are fine. If all is set, it returns the
	// moves of all passes together, which an agent asks for while a cluster starts. Only movable partitions
	// may move, and each only once. movable is sorted by the partitions' last moves, oldest first.
	Level(nodes []Node, owners []int, movable []Partition, all bool) []Move
}

// Memory has the last holders for a [Stateful] strategy. Agents use the memory of package assignment. A
// Memory never changes, and is safe for concurrent use.
type Memory interface {
	// Held returns the holder of each partition as an index into nodes, or -1. The nodes are sorted by id.
	// Held returns nil if nothing is recorded.
	Held(nodes []Node) []int

	// Why explains to people, in a sentence, how its holder got p. It is empty if no holder is recorded.
	Why(p Partition, holder lease.NodeID) string
}

// Remembers reports whether the owners of s depend on a [Memory], because s or the strategy inside a [Zoned]
// one is [Stateful].
func Remembers(s Strategy) bool {
	_, ok := placing(s).(Stateful)
	return ok
}
