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

	// Capacity and Labels are for your own strategies. The built-in strategies ignore both.
	Capacity int64             `json:"capacity,omitempty"` // units of load that the node can carry; 0 = unknown
	Labels   map[string]string `json:"labels,omitempty"`   // shared: must not be modified
}

// Equal reports whether all fields of n and o are equal.
func (n Node) Equal(o Node) bool {
	return n.ID == o.ID && n.Weight == o.Weight && n.Zone == o.Zone &&
		n.Capacity == o.Capacity && maps.Equal(n.Labels, o.Labels)
}

// Strategy decides which node owns which partition. Every node of the cluster decides by itself, so an
// implementation must return equal results for equal arguments, in every process and on every CPU. An
// implementation must not depend on randomness, a clock, map order or floating point. It must be safe for
// concurrent use, and return quickly, because an agent waits for the result. To test an implementation, use
// package placementtest.
//
// If a strategy panics or returns an invalid result, Compute fails with an error that names the strategy. An
// agent then logs the error and keeps its last valid table.
//
// The methods receive at least one node. The nodes are distinct, sorted by id, and have a weight above 0. The
// strategy must not modify or keep the slice.
type Strategy interface {
	// Name identifies the strategy and its parameters. A node rejects other nodes if their strategy
	// has a different name.
	Name() string

	// Assign returns the owner of each partition as an index into nodes.
	Assign(nodes []Node, partitions int) ([]int, error)

	// Rank returns min(n, len(nodes)) distinct indexes into nodes, best first: the owner of p, then the node
	// that would own p without the owner, and so on. n is at least 1. If owners depend on the load of nodes,
	// Rank cannot know the owner of p. In this case Rank can return another node first, because a Table
	// always puts the owner first.
	Rank(nodes []Node, p Partition, n int) []int
}

// Explainer is a [Strategy] that can explain, in a sentence for operators, why the node with the index owner
// owns p.
type Explainer interface {
	Explain(nodes []Node, p Partition, owner int) string
}

// Stateful is a [Strategy] whose owners also depend on the last holder of each partition. Agents with a
// Stateful strategy share an assignment (package assignment), so that all agents know the same holders.
//
// The rules for Assign also apply to Keep and Level: return equal results for equal arguments, and don't
// modify or keep the arguments.
type Stateful interface {
	// Keep returns the owners, as Assign does. held[p] is the recorded holder of p as an index into nodes, or
	// -1 if p has no holder or the holder is absent. A partition with a holder must stay with it, because
	// only Level moves partitions. If no partition has a holder, the owners must be those of Assign.
	Keep(nodes []Node, held []int) ([]int, error)

	// Level returns the moves of a pass, or none if the owners are balanced. If all is set, Level returns the
	// moves of all passes together, which an agent requests while a cluster starts. Only the movable
	// partitions may move, and each at most once. The movable partitions are sorted by the time of their last
	// move, oldest first.
	Level(nodes []Node, owners []int, movable []Partition, all bool) []Move
}

// Memory contains the last holders for a [Stateful] strategy. Agents use the Memory of package assignment. A
// Memory must be immutable and safe for concurrent use.
type Memory interface {
	// Held returns the holder of each partition as an index into nodes, or -1 if it has no holder among them.
	// The nodes are sorted by id. Held returns nil if nothing is recorded.
	Held(nodes []Node) []int

	// Why explains, in a sentence for operators, how the holder got p. It returns "" if no holder is
	// recorded.
	Why(p Partition, holder lease.NodeID) string
}

// Remembers reports whether the owners of s depend on a [Memory], because s is [Stateful] or wraps a Stateful
// strategy ([Zoned]).
func Remembers(s Strategy) bool {
	_, ok := placing(s).(Stateful)
	return ok
}
