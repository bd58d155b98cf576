// Package placement decides which node owns which key.
//
//	table, err := placement.Compute(placement.Input{
//		Nodes:      []placement.Node{{ID: "node-a", Weight: 1}, {ID: "node-b", Weight: 2}},
//		Partitions: placement.DefaultPartitions,
//	})
//	…
//	owner, ok := table.Owner(placement.Of("room-17", table.Partitions()))
//
// A key belongs to a [Partition] ([Of]), and a [Table] contains the owner of each partition. [Compute]
// derives the table only from the current nodes and their weights. So every node computes the table by
// itself, and nodes that see the same members have the same table without exchanging messages.
//
// You can export and import a table ([Table.Export]). You can also compare two tables ([Diff], [KeysMoved])
// to see which partitions move and how many moves are necessary. To preview a change, compute the new table
// and compare it with the current table.
//
// The package is a pure core: it has no goroutine, lock, clock, I/O, logger or randomness. A Table is
// immutable, so every change of members needs a new Table.
//
// # Guarantees
//
// For every strategy that keeps its contract:
//
//  1. Equal inputs give equal tables in every process, on every CPU, and in any order of the nodes. Nothing
//     uses floating point.
//  2. While there is a node of weight > 0, every partition has exactly one owner, and the owner has a weight
//     > 0. Otherwise partitions have no owner. Lookups report this, but it is not an error.
//  3. [Table.Rank] begins with the owner and lists no node twice.
//  4. Two tables have the same [Table.Digest] exactly if they have the same number of partitions, strategy
//     name and owners, except for collisions of 64-bit hashes.
//  5. No argument makes a method panic. If a strategy returns an invalid result, Compute fails, but lookups
//     never fail.
//
// For [Rendezvous], the default:
//
//  6. A join only moves partitions to the joiner. A leave only moves the leaver's partitions, which spread
//     over the remaining nodes.
//  7. Shares are proportional to weights. Raising a node's weight only moves partitions to it, and lowering
//     it only moves partitions away from it.
//  8. If the first k nodes of Rank(p, n) leave, the remaining nodes keep their order. So the second node
//     takes over from the first.
//  9. With equal weights, the owners are the same as in github.com/dgryski/go-rendezvous with xxHash64,
//     sorted ids as nodes and decimal partition numbers as keys. Only the ratios of weights matter.
//
// For [ClassicRing], which agrees with programs that use such a ring ([ring.New]):
//
//  10. Guarantees 6 and 8 hold. Guarantee 7 does not hold, because the strategy treats all weights above 0
//     the same. Shares vary more than with Rendezvous.
//
// For [LeastPartitions], whose tables also depend on a [Memory]:
//
//  11. A leave only moves the leaver's partitions, and a join moves none. A pass moves at most the configured
//     number of partitions, and none if all nodes are within the threshold.
//
// See docs/dev/benchmarks.md for a comparison of all strategies.
//
// # Not promised
//
// Shares are not exactly equal, because they depend on random draws. With n nodes and P partitions, shares
// vary by about √((n−1)/P) of their mean. [Table.Balance] reports the variation, and more partitions reduce
// it. If there are few partitions, a node may own none. (If two ids have the same xxHash64, they always draw
// the same numbers, so one of the two nodes owns nothing. Such a collision only becomes likely with about
// 2^32 ids.)
//
// The hash is fast and well mixed, but not secret. An attacker who can choose keys can choose them all in one
// partition.
//
// Tables of different nodes can differ. While nodes see different members, two nodes can both consider
// themselves the owner of a partition. To detect this, compare the digests of their tables.
//
// # Costs
//
// The following costs were measured on a single core of a shared virtual machine. On other machines, only the
// proportions are similar.
//
// A lookup with Of and [Table.Owner] takes about 10 ns for any number of nodes, and does not allocate.
//
// A table of 1,024 partitions takes 4 kB. Computing it costs O(nodes · partitions): about 0.06 ms for 10
// nodes, 0.2 ms for 100 and 1.4 ms for 1,000. A few different weights make Compute only slightly slower, but
// 1,000 nodes with 1,000 different weights take 10 ms. With Input.Base, a change of one or two nodes costs
// about 10 ns per partition and 50 ns per node. For example, 16,384 partitions on 1,000 nodes take 0.3 ms
// instead of 22 ms. Tables that are derived from each other share 8 bytes per partition.
//
// A Rank of up to three nodes takes about 50 ns for any number of nodes. The first Rank of a partition, and
// each Rank of more nodes, scores every node: 0.3 µs for 10 nodes and 4 µs for 1,000. For the costs of
// ClassicRing, see ring.Ring.
package placement
