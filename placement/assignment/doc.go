// Package assignment is the shared memory of the nodes of a cluster, for strategies that depend on earlier
// tables ([placement.Stateful]). An assignment is a document that every node holds and the coordinator
// writes. Different versions can be merged.
//
// [Record] records the holders in a table, and [Level] the moves of a pass. Agents of package cluster call
// both, and exchange the encoded document. The strategy only sees the holder of each partition.
//
// A partition has an owner and, while the owner is away, a deputy. The owner gets the partition back when it
// returns, so a restart does not move partitions permanently.
//
// The package is a pure core like placement: it has no goroutine, lock, clock, I/O, logger or randomness.
//
// # Guarantees
//
//  1. Nodes that see the same members and hold the same [Assignment] have the same table.
//  2. Assignments of several writers merge to the same assignment, in any order and any number of times,
//     because the later entry of each partition wins ([Assignment.Merge]). A writer's change is only lost for
//     partitions that another writer changed at the same time.
//  3. A node that finds no cluster begins an assignment. Of two assignments without a common beginning, the
//     older one is kept.
//  4. [Assignment.Quorum] is true on the side of a split that has most of the voters of the last change. The
//     caller must only write with a quorum, because otherwise the entries of a minority could be later and
//     win.
//  5. [Level] moves a partition again only after all nodes have applied its last move.
//  6. [Decode] accepts an encoding as a whole or rejects it with [ErrMalformed].
//     Equal assignments have equal encodings ([Assignment.Encode]).
//
// docs/dev/design/assignments.md has the reasons.
package assignment
