// Package events reports what changed on a node: which partitions it acquired and
// released, which partitions moved elsewhere, which nodes joined and left.
//
// A node publishes a [State] whenever its knowledge changes. A watcher receives the
// difference between the last state that it received and the newest one, a [Batch].
// Nothing is queued: a slow watcher skips the states in between. It is never more
// than one batch behind, uses no more memory than that, and delays no other watcher.
//
// There are three ways to watch: [Watch] is a sequence to range over, [Subscribe] a
// channel for select loops, and [RunOwned] runs a function for each partition while
// the node owns it. All three read a [Feed] by a [Reader], which a program may also
// use directly.
//
// # Guarantees
//
// For each watcher, independently of the others:
//
//  1. The first batch is full: Acquired has all partitions that the node owns at that
//     moment, and Joined has all live nodes. The first batch arrives even if both are
//     empty.
//  2. Later batches contain changes only. A refresh, such as a renewed lease or a
//     table that was computed again, sends nothing.
//  3. Released and Acquired alternate for each partition, and Released comes before
//     Acquired within a batch. A partition that was lost and regained between two
//     batches is in both fields of the later one.
//  4. The last batch leads to the newest state, for any number of skipped states.
//     Version rises from batch to batch. When the feed ends, the watcher receives the
//     final state, then the end.
//  5. Publishing never waits for a watcher, and no watcher waits for another.
//  6. Membership and ownership are separate: nodes can join and leave without a
//     change of ownership, and ownership can change without a join or leave.
//     Changed has members with another state, weight or other detail, owners or not. A load is no change.
//  7. A watcher ends with its context or its feed. No goroutine outlives them, even if
//     no receiver reads the channel.
//  8. Two runs of one partition in one [RunOwned] never overlap.
//
// The life of a partition in RunOwned:
//
//	            acquired             released
//	not owned ────────────▶ running ──────────▶ winding down
//	    ▲                      │                     │ f returned
//	    │ released             │ f returned          ├─▶ running, if owned again
//	    └────────────────── finished                 └─▶ not owned, if not
//
// # Not guaranteed
//
// Ownership is each node's own view, and views agree only eventually. While nodes
// join and leave, two nodes may both own a partition for a moment, or none may: one
// node acquires the partition when it learns of the change, the other releases it
// when it learns of the change, and neither waits for the other. So handlers must be
// idempotent and tolerate a concurrent run on another node: either the writes may
// happen twice, or the storage guards them by compare-and-set or a fencing token.
//
// With handoff (cluster.Config.Handoff), Acquired means that this node may run the
// partition now, and Released that it must stop. The next owner waits for runs of
// [RunOwned] alone, so that a program that follows Watch or Subscribe has no time to wind
// down. [State.Waits] has what the table gives to this node and another one still runs.
//
// Batches are no history. A change that was undone between two batches is in neither,
// except for guarantee 3, which covers the node's own partitions. A watcher that
// needs all owners reads the table of the newest state; the sum of Moved since some
// later start does not have all owners.
package events
