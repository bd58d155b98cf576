// Package events reports what changed on a node. It reports which partitions the node acquired and released,
// which partitions moved between other nodes, and which nodes joined and left.
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
// difference between the last state that the watcher has seen and the newest state. No queue is needed,
// because a slow watcher skips intermediate states. So a slow watcher is never more than one batch behind,
// needs memory for only one batch, and does not delay other watchers.
//
// There are three ways to watch. [Watch] returns a sequence to range over, [Subscribe] returns a channel for
// select loops, and [RunOwned] runs a function for each partition while the node owns it. All three read a
// [Feed] via a [Reader], which you can also use directly.
//
// # Guarantees
//
// Each guarantee holds for every watcher, independently of other watchers:
//
//  1. The first batch is full. Acquired contains all partitions that the node owns at that moment, and Joined
//     contains all live nodes. The first batch arrives even if both fields are empty.
//  2. Later batches only contain changes. A state without changes, for example after a renewed lease or a
//     recomputed table, causes no batch.
//  3. Released and Acquired alternate for each partition, and Released comes before Acquired within a batch.
//     A partition that was lost and regained between two batches is in both fields of the later batch.
//  4. The last batch leads to the newest state, no matter how many states were skipped. Version increases
//     from batch to batch. When the feed ends, the watcher receives the final state before the watch ends.
//  5. Publishing never waits for a watcher, and no watcher waits for another.
//  6. Membership and ownership are independent. Nodes can join and leave without a change of ownership, and
//     ownership can change without a join or leave. Changed lists members whose state, weight or other
//     details changed, whether or not they own anything. A new load is not considered a change.
//  7. A watcher ends when its context or its feed ends. None of its goroutines runs longer, even if nobody
//     reads the channel.
//  8. Within a call of [RunOwned], two runs of the same partition never overlap.
//
// The following diagram shows the states of a partition in RunOwned:
//
//	            acquired             released
//	not owned ────────────▶ running ──────────▶ winding down
//	    ▲                      │                     │ f returned
//	    │ released             │ f returned          ├─▶ running, if owned again
//	    └────────────────── finished                 └─▶ not owned, if not
//
// # Not guaranteed
//
// Each node has its own view of ownership, and the views are only eventually consistent. While nodes join and
// leave, a partition can briefly have two owners or none. The old owner releases the partition and the new
// owner acquires it when each learns of the change, without waiting for the other node. So handlers must be
// idempotent and tolerate a concurrent run on another node. If a repeated write would do harm, the storage
// must protect it with compare-and-set or a fencing token.
//
// With handoff (cluster.Config.Handoff), Acquired means that this node can run the partition now, and
// Released means that this node must stop. The next owner only waits for runs of [RunOwned], so an
// application that uses Watch or Subscribe has no time to wind down. [State.Waits] returns the partitions
// that the table assigns to this node while another node still runs them.
//
// Batches are not a complete history. If a change is undone between two batches, no batch contains it, except
// for the node's own partitions (guarantee 3). To get all owners, read the table of the newest state. You
// cannot reconstruct all owners from Moved, because the first batch contains no moves.
package events
