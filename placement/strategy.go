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

	// Further statements of the node, for strategies of your own. The built-in
	// ones ignore them.
	Capacity int64             `json:"capacity,omitempty"` // units of load that the node can carry; 0 = not stated
	Labels   map[string]string `json:"labels,omitempty"`   // shared: must not be modified
}

// Equal reports whether n and o agree in all fields.
func (n Node) Equal(o Node) bool {
	return n.ID == o.ID && n.Weight == o.Weight && n.Zone == o.Zone &&
		n.Capacity == o.Capacity && maps.Equal(n.Labels, o.Labels)
}

// Strategy decides which node owns which partition. Every node of the cluster
// decides for itself, so an implementation returns equal results for equal arguments,
// in every process and on every CPU: no randomness, clock, map order or floating
// point. It is safe for concurrent use, and returns soon: an agent waits for it.
// Package placementtest tests all of that.
//
// A strategy that panics, or returns nonsense, makes Compute fail with an error
// that names it; an agent reports it and keeps its last good table.
//
// The nodes are sorted by id and distinct, at least one, each of weight > 0. The
// strategy must neither modify nor keep the slice.
type Strategy interface {
	// Name identifies the strategy, with its parameters. Nodes reject nodes with
	// another name.
	Name() string

	// Assign returns, for each of the partitions, the index into nodes of its
	// owner.
	Assign(nodes []Node, partitions int) ([]int, error)

	// Rank returns min(n, len(nodes)) distinct indexes into nodes, best first:
	// the owner of p, then the node that would own p without the owner, and
	// so on. n is at least 1. If owners depend on the load of nodes, Rank cannot
	// know the owner of p: a Table puts the owner first in any case.
	Rank(nodes []Node, p Partition, n int) []int
}

// Explainer is a [Strategy] that explains to people, in a sentence, why the node of
// index owner has p.
type Explainer interface {
	Explain(nodes []Node, p Partition, owner int) string
}

// Stateful is a [Strategy] that remembers: owners also depend on the last holder of
// each partition. Agents with such a strategy share an assignment (package
// assignment), so that all of them remember the same holders.
//
// Both methods obey the rules of Assign: equal arguments give equal results, and the
// arguments are neither modified nor kept.
type Stateful interface {
	// Keep returns the owners, as Assign does. held[p] is the index into nodes of
	// the node that holds p on record, or -1 if no such node is present. A partition
	// that has a holder stays with it: Level is for moving partitions. If none has a
	// holder, the owners are those of Assign.
	Keep(nodes []Node, held []int) ([]int, error)

	// Level returns the moves of one pass, none when owners may stay as they are. If
	// all is set, it returns the moves of all passes together: an agent sets it while
	// a cluster starts. Only movable partitions may move, each once. They are sorted
	// by their last move, the oldest first.
	Level(nodes []Node, owners []int, movable []Partition, all bool) []Move
}

// Memory has the last holders for a [Stateful] strategy. Package assignment has the
// one that agents share. A Memory never changes, and is safe for concurrent use.
type Memory interface {
	// Held returns, for each partition, the index into nodes of its holder, or -1.
	// The nodes are sorted by id. Nil means that nothing is on record.
	Held(nodes []Node) []int

	// Why explains to people, in a sentence, how p came to its holder. It is empty if
	// p is not on record.
	Why(p Partition, holder lease.NodeID) string
}

// Remembers reports whether the owners of s depend on a [Memory]: whether s, or the
// strategy inside a [Zoned] one, is [Stateful].
func Remembers(s Strategy) bool {
	_, ok := placing(s).(Stateful)
	return ok
}
