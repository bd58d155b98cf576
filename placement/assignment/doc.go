// Package assignment is the shared memory of the nodes of a cluster, for a strategy
// that depends on earlier tables ([placement.Stateful]): a document that every node
// holds, that the coordinator writes, and that merges.
//
// [Record] notes the holders in a table, and [Level] the moves of a pass. Agents of
// package cluster call both, and exchange the encoded document. The strategy sees
// only the holder of each partition.
//
// A partition has an owner and, while that is away, a deputy. The owner gets the
// partition back when it returns, so that a restart moves no partition for good.
//
// The package is a pure core, like placement: no goroutine, lock, clock, I/O,
// logger or randomness.
//
// # Guarantees
//
//  1. Nodes that see the same members and hold the same [Assignment] hold the same
//     table.
//  2. Assignments of several writers merge to the same one, in any order and any
//     number of times: partition by partition, the later entry wins
//     ([Assignment.Merge]). A writer's work is lost only for partitions that another
//     one changed at the same time.
//  3. Of two assignments without a common beginning, the older one counts and the
//     other one is dropped. A node that finds no cluster begins an assignment.
//  4. [Assignment.Quorum] holds on the side of a split that has most of the voters of
//     the last change. The caller writes with a quorum only: otherwise the entries of a
//     cut-off minority could be the later ones.
//  5. [Level] moves no partition before all nodes have applied its last move.
//  6. [Decode] accepts an encoding as a whole or rejects it with [ErrMalformed].
//     Equal assignments have equal encodings ([Assignment.Encode]).
//
// docs/dev/design/assignments.md has the reasons.
package assignment
