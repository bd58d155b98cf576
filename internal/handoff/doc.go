// Package handoff decides on each node when a run of a partition may start and when it ends. Two nodes on the
// same side of a split therefore never run the same partition at the same time. The package is pure: it uses
// no goroutines, locks, I/O, clock or randomness. docs/dev/design/handoff.md explains the reasons and the
// rejected alternatives.
//
// # The rule
//
// Before a node starts to run a partition, it asks all other live members. A member answers "free" if its own
// table does not assign the partition to it and it has no run of the partition. Otherwise its answer depends
// on its table and its run:
//
//	its table         its run        answer
//	names another     none           free
//	names another     runs           runs; once the asker has all other answers, it
//	                                 demands the end of the run, and the member
//	                                 answers free when the run has returned
//	names itself      any            none; the tables do not agree yet
//
// An answer is only valid under three conditions:
//
//   - The answer repeats the number of an ask that was sent after the table assigned the partition to the
//     asker. So if the partition left the asker and came back, earlier answers are not valid.
//   - The asker and the member know the same live members when the member answers. So the partition cannot be
//     running on a member that the asker does not know.
//   - The answer comes from the incarnation that was asked.
//
// The asker does not wait for a member whose lease has ended.
//
// # The states of a partition on a node
//
//	                     all answers              table names another
//	not owned ──▶ waiting ──────────▶ running ────────────────────────▶ kept
//	    ▲                                ▲                                │ demand
//	    │                                │ table names this node          ▼
//	    └────────────────────────────────┴────────────────────────── stopping
//	      the run has returned: free
//
// If the table gives a kept partition back to this node, its run continues, because this node has not
// answered "free" to any other node. If a run was stopped, the node must ask again before it starts another
// run, because after a split the node that demanded the stop may already be running the partition.
//
// # Guarantees
//
//  1. Two nodes that have answered each other never run a partition at the same time, even if messages are
//     lost, duplicated, delayed or reordered.
//  2. A slow run only delays its own partition, and only after another node has demanded that the run end.
//  3. The run on the old owner continues from a planned change until the new owner demands the partition.
//
// # Not guaranteed
//
// After the maximum wait, [Handoff.Overdue] starts a run without the answers of silent members. In a split,
// the members on each side consider the members on the other side gone.
package handoff
