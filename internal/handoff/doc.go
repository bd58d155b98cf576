// Package handoff decides on a node when a run of a partition may begin and when it ends, so that two nodes
// on the same side of a split never run a partition at the same time. It is pure: it has no goroutine, lock,
// I/O, clock or randomness. docs/dev/design/handoff.md has the reasons and rejected alternatives.
//
// # The rule
//
// Before a node begins to run a partition, it asks all other live members. A member answers "free" if its own
// table does not name it and it has no run of the partition. Otherwise it keeps the partition for now:
//
//	its table         its run        answer
//	names another     none           free
//	names another     runs           runs; once the asker has all other answers, it
//	                                 demands the end of the run, and the member
//	                                 answers free when the run has returned
//	names itself      any            none; the tables do not agree yet
//
// Three conditions make an answer count:
//
//   - It repeats the number of an ask that was sent after the table named the asker. If the partition left
//     the asker and came back, an answer from before does not count.
//   - The asker and the member know the same live members when the member answers. So no member that is
//     unknown to the asker can run the partition.
//   - It comes from the incarnation that was asked.
//
// The asker does not wait for a member whose lease has ended.
//
// # The life of a partition on a node
//
//	                     all answers              table names another
//	not owned ──▶ waiting ──────────▶ running ────────────────────────▶ kept
//	    ▲                                ▲                                │ demand
//	    │                                │ table names this node          ▼
//	    └────────────────────────────────┴────────────────────────── stopping
//	      the run has returned: free
//
// If the table gives a kept partition back to this node, its run continues, because the node has not answered
// free to any other. If a run was stopped, the node asks before it begins again, because after a split the
// node that demanded its end may already run the partition.
//
// # Guarantees
//
//  1. Two nodes that have answered each other never run a partition at the same time, even if messages are
//     lost, duplicated, delayed or reordered.
//  2. A slow run only delays its own partition, and only after its end has been demanded.
//  3. Between a planned change and the demand, the old owner's run continues.
//
// # Not guaranteed
//
// After the maximum wait, [Handoff.Overdue] begins a run without the answers of silent members. In a split,
// each side treats the members of the other side as gone.
package handoff
