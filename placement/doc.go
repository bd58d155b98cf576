// Package placement decides which node owns which key.
//
// A key belongs to one [Partition] ([Of]), and a [Table] has the owner of each
// partition. [Compute] derives the table from the nodes present and their weights
// alone: every node computes the table for itself, and nodes that see the same
// members hold the same table without a message.
//
// A table can be written and read again ([Table.Export]) and compared with another
// one ([Diff], [KeysMoved]): the moves, and the least number of moves that the change
// requires. Compute and Diff together show the moves of a change before it is made.
//
// The package is a pure core: no goroutine, lock, clock, I/O, logger or
// randomness. A Table is immutable; a change of members is a new Table.
//
// # Guarantees
//
// Of every strategy that keeps its contract:
//
//  1. Equal inputs give equal tables: in every process, on every CPU, in any order
//     of the nodes. No floating point takes part.
//  2. While there is a node of weight > 0, every partition has exactly one
//     owner, and it is one of those nodes. Otherwise partitions have no owner:
//     lookups say so, and that is not an error.
//  3. [Table.Rank] begins with the owner and lists no node twice.
//  4. [Table.Digest] is equal exactly when partitions, strategy name and all
//     owners are, except for a collision of 64-bit hashes.
//  5. No argument makes a method panic. A strategy that returns nonsense
//     makes Compute fail, not a lookup.
//
// Of [Rendezvous], the default:
//
//  6. A join moves partitions only to the joiner, and a leave only the leaver's,
//     which spread over the rest. No other partition moves.
//  7. Shares are in proportion to weights. Raising a node's weight moves
//     partitions only to it, lowering it only from it.
//  8. Rank(p, n) without its first k nodes is the Rank after those k nodes left: the
//     second node takes over from the first.
//  9. Equal weights give the owners that github.com/dgryski/go-rendezvous gives
//     for the ids in sorted order and the partition in decimal, hashed by
//     xxHash64. Only the ratios of weights matter.
//
// Of [ClassicRing], for agreement with programs that place by such a ring ([ring.New]):
//
//  10. 6 and 8 hold too. Weights above 0 all count alike, so 7 does not, and
//     shares vary more than below.
//
// Of [LeastPartitions], with tables that also depend on a [Memory]:
//
//  11. A leave moves only the leaver's partitions, and a join none. A pass moves no
//     more than its limit, and none when all nodes are within the threshold.
//
// docs/dev/benchmarks.md compares all strategies by numbers.
//
// # Not promised
//
// Shares are not exactly equal: they are random draws, and with n nodes and P
// partitions vary by about √((n−1)/P) of their mean. [Table.Balance] reports it;
// more partitions help. A node can own no partition when partitions are few.
// (Two ids with one xxHash64 always draw alike, so that one of them owns none;
// it takes 2^32 names to expect such a pair.)
//
// The hash is fast and well mixed, not secret: an attacker who chooses keys can
// choose them all in one partition.
//
// A table knows no other tables. While nodes see different members, two of them can
// each believe that they own a partition; compare the digests of their tables to see that.
//
// # Costs
//
// Measured on one core of a shared virtual machine; only their proportions carry
// over to another. A lookup, Of and [Table.Owner], takes about 10 ns for any
// number of nodes, and does not allocate. A table of 1,024 partitions takes
// 4 kB. Computing it takes some 0.06 ms for 10 nodes, 0.2 ms for 100 and 1.4 ms
// for 1,000; with weights little more while few different ones occur, and 10 ms
// for 1,000 nodes of 1,000 different weights. It grows with nodes × partitions.
// With Input.Base the change of a node or two costs some 10 ns a partition and 50 ns
// a node: 16,384 partitions on 1,000 nodes take 0.3 ms instead of 22; such tables share
// 8 bytes a partition. A Rank of three nodes takes some 50 ns for any number of nodes,
// but the first for a partition scores every node, as a Rank of more does: 0.3 µs for 10
// nodes, 4 µs for 1,000. Those of ClassicRing are at ring.Ring.
package placement
