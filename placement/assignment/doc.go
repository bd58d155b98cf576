// Package assignment is what the nodes of a cluster remember for a strategy whose
// tables depend on what was before ([placement.Stateful]): a document that every
// node holds, that one node writes, the coordinator, and that merges.
//
// [Record] writes down what a table says, and [Level] what a pass of the strategy
// moves. Agents of package cluster call both, and exchange the encoded document. A
// strategy needs to know none of this: it is given the holder of each partition.
//
// A partition has an owner and, while that is away, a deputy. The owner gets the
// partition back when it returns, so that a restart moves nothing for good.
//
// The package is a pure kernel, like placement: no goroutine, lock, clock, I/O,
// logger or randomness.
//
// # Guarantees
//
//  1. Nodes that see the same members and hold the same [Assignment] hold the same
//     table.
//  2. Assignments that were written apart merge to the same one, in whatever order
//     and however often: partition by partition, the later entry of each wins
//     ([Assignment.Merge]). Two writers lose none of each other's work except where
//     both decided about the same partition.
//  3. Of two assignments that have no common beginning, the older one counts and the
//     other one is forgotten. Nodes that found no cluster begin one of their own.
//  4. [Assignment.Quorum] holds on the side of a split that has most of the voters of
//     the last change. The caller writes with a quorum only: entries that a cut-off
//     minority wrote would be the later ones.
//  5. [Level] moves no partition before all nodes have applied its last move.
//  6. [Decode] accepts an encoding as a whole or rejects it with [ErrMalformed].
//     Equal assignments have equal encodings ([Assignment.Encode]).
//
// docs/decisions/12-an-assignment-that-merges.md says why it is like that.
package assignment
