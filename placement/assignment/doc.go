// Package assignment records the owners of partitions, for strategies that depend on earlier tables
// ([placement.Stateful]). An assignment is a document that every node stores and that only the coordinator
// writes. Nodes can merge different versions of the document.
//
// [Record] records the holders of partitions in a table, and [Level] records the moves of a pass. Agents of
// package cluster call both functions, and exchange the encoded document. The strategy only sees the holder
// of each partition.
//
// A partition has an owner and, while the owner is absent, a deputy. When the owner returns, it gets the
// partition back, so a restart does not move partitions permanently.
//
// The package is a pure core like placement: it has no goroutine, lock, clock, I/O, logger or randomness.
//
// # Guarantees
//
//  1. Nodes that see the same members and have the same [Assignment] compute the same table.
//  2. [Assignment.Merge] keeps the later entry of each partition. So assignments of several writers merge to
//     the same result, in any order and any number of times. A writer's change to a partition is only lost if
//     another writer changes the same partition at the same time.
//  3. A node that finds no cluster starts a new assignment. If two assignments were started independently,
//     Merge keeps the older assignment.
//  4. [Assignment.Quorum] returns true on the side of a split that has most of the voters of the last change.
//     The caller must only write with a quorum, because otherwise later entries of a minority could overwrite
//     the entries of the majority.
//  5. [Level] moves a partition again only after all nodes have applied the last move of the partition.
//  6. [Decode] accepts an encoding as a whole or rejects it with [ErrMalformed].
//     Equal assignments have equal encodings ([Assignment.Encode]).
//
// See docs/dev/design/assignments.md for the design.
package assignment
