// Package placement decides which node owns which key.
//
//	table, err := placement.Compute(placement.Input{
//		Nodes:      []placement.Node{{ID: "node-a", Weight: 1}, {ID: "node-b", Weight: 2}},
//		Partitions: placement.DefaultPartitions,
//	})
//	…
//	owner, ok := table.Owner(placement.Of("room-17", table.Partitions()))
//
// A key belongs to one [Partition] ([Of]), and a [Table] has the owner of each partition. [Compute] derives
// the table only from the present nodes and their weights. So every node computes the table by itself, and
// nodes that see the same members have the same table without exchanging a message.
//
// You can write a table and read it again ([Table.Export]), and compare it with another one ([Diff],
// [KeysMoved]), which shows the moves and how many of them are necessary. Compute and Diff together show the
// moves of a change before you make it.
//
// The package is a pure core: it has no goroutine, lock, clock, I/O, logger or randomness. A Table is
// immutable. A change of members makes a new Table.
//
// # Guarantees
//
// For every strategy that keeps its contract:
//
//  1. Equal inputs give equal tables in every process, on every CPU, and in any order of the nodes. Nothing
//     uses floating point.
//  2. While there is a node of weight > 0, every partition has exactly one owner, which is one of those
//     nodes. Otherwise partitions have no owner, which lookups report and which is not an error.
//  3. [Table.Rank] begins with the owner and lists no node twice.
//  4. Two tables have the same [Table.Digest] exactly if they have the same number of partitions, strategy
//     name and owners, except for collisions of 64-bit hashes.
//  5. No argument makes a method panic. A strategy that returns nonsense
//     makes Compute fail, not a lookup.
//
// For [Rendezvous], the default:
//
//  6. A join only moves partitions to the joiner. A leave only moves the leaver's partitions, which spread
//     over the rest.
//  7. Shares are proportional to weights. Raising a node's weight only moves partitions to it, and lowering
//     it only moves partitions away from it.
//  8. If the first k nodes of Rank(p, n) leave, the others keep their order, so the second node takes over
//     from the first.
//  9. Equal weights give the same owners as github.com/dgryski/go-rendezvous for the ids in sorted order and
//     the partition in decimal, with xxHash64 as the hash. Only the ratios of weights matter.
//
// For [ClassicRing], which agrees with programs that use such a ring ([ring.New]):
//
//  10. 6 and 8 hold, but 7 does not, because all weights above 0 count the same. Shares vary more than below.
//
// For [LeastPartitions], whose tables also depend on a [Memory]:
//
//  11. A leave only moves the leaver's partitions, and a join moves none. A pass moves at most its limit, and
//     nothing if all nodes are within the threshold.
//
// docs/dev/benchmarks.md compares all strategies with numbers.
//
// # Not promised
//
// Shares are not exactly equal, because they are random draws. With n nodes and P partitions, they vary by
// about √((n−1)/P) of their mean. [Table.Balance] reports the variation, and more partitions reduce it. If
// there are few partitions, a node may own none. (Two ids with the same xxHash64 always draw the same
// numbers, so one of them owns nothing. Such a pair becomes likely only from about 2^32 names on.)
//
// The hash is fast and well mixed, but not secret. An attacker who can choose keys can choose them all in one
// partition.
//
// Tables of different nodes can differ. While nodes see different members, two of them can both believe that
// they own a partition. To detect that, compare the digests of their tables.
//
// # Costs
//
// These were measured on one core of a shared virtual machine. On other machines, only their proportions are
// the same.
//
// A lookup with Of and [Table.Owner] takes about 10 ns for any number of nodes, and does not allocate.
//
// A table of 1,024 partitions takes 4 kB. Computing it costs O(nodes · partitions): about 0.06 ms for 10
// nodes, 0.2 ms for 100 and 1.4 ms for 1,000. A few different weights make it little slower, but 1,000 nodes
// of 1,000 different weights take 10 ms. With Input.Base, a change of one or two nodes costs about 10 ns per
// partition and 50 ns per node. For example, 16,384 partitions on 1,000 nodes take 0.3 ms instead of 22 ms.
// Such tables share 8 bytes per partition.
//
// A Rank of up to three nodes takes about 50 ns for any number of nodes. The first Rank of a partition, and
// each Rank of more nodes, scores every node: 0.3 µs for 10 nodes and 4 µs for 1,000. ring.Ring has the costs
// of ClassicRing.
package placement
