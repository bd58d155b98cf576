// Package handoff decides, on one node, when a run of a partition may begin and when
// it ends, so that no two nodes of one side run a partition at a time. It is pure: no
// goroutine, lock, I/O, clock or randomness. docs/dev/design/handoff.md has the
// reasons, and what was rejected.
//
// # The rule
//
// A node asks all other live members before it begins to run a partition. A member
// answers "free" if its own table does not name it and it has no run of the partition.
// Otherwise it does not give up the partition yet:
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
//   - It repeats the number of an ask that was sent since the table named the asker. An
//     answer from before an earlier change and back does not count.
//   - The asker and the member know the same live members when the member answers. So
//     a member that the asker does not know cannot run the partition.
//   - It comes from the incarnation that was asked.
//
// A member that is gone, because its lease has ended, is not waited for.
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
// A kept partition that the table gives back to this node goes on running: the node has
// answered free to no other one. A run that was stopped asks before it begins again: after
// a split, the node that demanded its end may run the partition already.
//
// # Guarantees
//
//  1. Two nodes that have answered each other never run a partition at the same time.
//     Messages may be lost, doubled, delayed and reordered.
//  2. A slow run delays its own partition alone, and nothing while it has not been
//     demanded.
//  3. Between a planned change and the demand, the old owner's run goes on.
//
// # Not guaranteed
//
// The bound of waiting, [Handoff.Overdue], begins a run without the answer of members
// that are silent. In a split, each side takes the members of the other side for gone.
package handoff
