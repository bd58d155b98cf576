// Package events tells a program what changed: which partitions its node has
// acquired and released, which moved elsewhere, which nodes came and went.
//
// A node publishes a [State] whenever it knows something new, and a watcher gets
// the difference between the last state that it was told of and the newest one,
// a [Batch]. Nothing is queued. A watcher that is slow skips the states in
// between; it cannot fall behind by more than one batch, nor use more memory
// than that, nor hold anybody up.
//
// There are three ways to watch. [Watch] is a sequence to range over, [Subscribe]
// a channel for select loops, and [RunOwned] runs a function for each partition
// for as long as it is owned. All read from a [Feed] by a [Reader], which a program
// may also use itself.
//
// # Guarantees
//
// To each watcher, whatever the others do:
//
//  1. The first batch is full: it has everything that the node owns at that
//     moment as Acquired and every live node as Joined. It comes even if both are
//     empty.
//  2. Later batches tell only of real changes. A refresh, such as a renewed
//     lease or a table computed again, sends nothing.
//  3. Released and Acquired alternate for each partition, and Released comes
//     before Acquired within a batch. A partition that was lost and regained
//     while nobody looked is in both.
//  4. The last batch leads to the newest state, however many states were
//     skipped, and Version rises from batch to batch. When the feed ends, the
//     watcher gets to its final state, then to the end.
//  5. Publishing never waits for a watcher, and no watcher waits for another.
//  6. Membership and ownership are separate: nodes come and go without a
//     partition changing hands, and the other way round.
//  7. A watcher ends with its context or its feed. No goroutine survives them,
//     even if nobody reads the channel.
//  8. Two runs of one partition under one [RunOwned] never overlap.
//
// The life of a partition under RunOwned:
//
//	            acquired             released
//	not owned ────────────▶ running ──────────▶ winding down
//	    ▲                      │                     │ f returned
//	    │ released             │ f returned          ├─▶ running, if owned again
//	    └────────────────── finished                 └─▶ not owned, if not
//
// # What is not promised
//
// Ownership is each node's own view, and views agree only eventually. While
// nodes come and go, two of them may both own a partition for a moment, or
// neither: the one acquires when it learns of the change, the other releases
// when it does, and neither waits for the other. So handlers must be idempotent
// and bear a twin: write what may be written twice, or guard it where it is
// written, by a compare-and-set or a fencing token from whatever stores it.
//
// Batches are no history. What came and went between two of them is not told,
// but for the one case of guarantee 3, which concerns the node's own partitions.
// A watcher that needs to know all owners reads the table of the newest state;
// adding up Moved from some later start does not give it.
package events
