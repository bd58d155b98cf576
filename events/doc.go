// Package events reports what changed on a node: which partitions it acquired and
// released, which partitions moved elsewhere, which nodes joined and left.
//
//	for batch := range agent.Watch(ctx) {
//		for _, o := range batch.Released {
//			stop(o.Partition)
//		}
//		for _, o := range batch.Acquired {
//			start(o.Partition)
//		}
//	}
//
// A node publishes a [State] whenever its knowledge changes. A watcher receives a [Batch], which is the
// difference between the last state that the watcher has seen and the newest one. Nothing is queued, because
// a slow watcher skips the states in between. So it is never more than one batch behind, needs memory for
// only one batch, and delays no other watcher.
//
// There are three ways to watch: [Watch] is a sequence to range over, [Subscribe] is a channel for select
// loops, and [RunOwned] runs a function for each partition while the node owns it. All three read a [Feed]
// via a [Reader], which you can also use directly.
//
// # Guarantees
//
// Each of these holds for every watcher, independently of other watchers:
//
//  1. The first batch is full: Acquired has all partitions that the node owns at that moment, and Joined has
//     all live nodes. It arrives even if both are empty.
//  2. Later batches only have changes. A refresh, such as a renewed lease or a table that was computed again,
//     sends no batch.
//  3. Released and Acquired alternate for each partition, and Released comes before
//     Acquired within a batch. A partition that was lost and regained between two
//     batches is in both fields of the later one.
//  4. The last batch leads to the newest state, no matter how many states were skipped. Version rises from
//     batch to batch. When the feed ends, the watcher receives the final state and then the end.
//  5. Publishing never waits for a watcher, and no watcher waits for another.
//  6. Membership and ownership are independent: nodes can join and leave without a change of ownership, and
//     ownership can change without a join or leave. Changed has members whose state, weight or other details
//     changed, whether or not they own anything. A new load is not a change.
//  7. A watcher ends when its context or its feed ends. No goroutine outlives them, even if nobody reads the
//     channel.
//  8. Two runs of a partition in the same [RunOwned] never overlap.
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
// Ownership is each node's own view, and views only agree eventually. While nodes join and leave, a partition
// may have two owners or none for a moment, because one node acquires it and the other releases it when each
// learns of the change, and neither waits for the other. So handlers must be idempotent and tolerate a
// concurrent run on another node. Either writes may happen twice, or the storage guards them with
// compare-and-set or a fencing token.
//
// With handoff (cluster.Config.Handoff), Acquired means that this node may run the partition now, and
// Released means that it must stop. The next owner only waits for runs of [RunOwned], so a program that uses
// Watch or Subscribe has no time to wind down. [State.Waits] has the partitions that the table gives to this
// node and another node still runs.
//
// Batches are not a history. A change that was undone between two batches is in neither, except for the
// node's own partitions (guarantee 3). If you need all owners, read the table of the newest state. Adding up
// Moved does not give all owners, because the first batch has no moves.
package events
