// Package split decides whether this side of a split network may own anything, where the
// policy of the cluster is "majority".
//
// A node keeps a [Record] of voters: the members that take or took part in placement. The record counts more
// seats than votes, so that two sides cannot both have most votes even if their records
// differ:
//
//   - A member gets a seat as soon as this node sees it take part in placement, unless a voter is missing: then, once
//     none is.
//   - Its seat becomes a vote once every voter is live and has said, a Spread after that moment, that it runs the same
//     table, since then all of them have given the member a seat. If a voter was silent and returns, this takes a Spread
//     longer, because that voter has not heard of the members that came in the meantime.
//   - A voter that sends a leave message loses its seat, since it supports no side any more. A voter
//     that falls silent keeps it for a time, since a crash and a cut look the same.
//   - A voter whose address refuses connections has crashed, or is behind a firewall that resets them. It loses its seat
//     on a side that may own by counting it as missing, once all live members have sent a heartbeat half a Spread later:
//     none of them is behind that firewall.
//
// Guarantees, for sides that have lost sight of each other:
//
//  1. If a node of one side may own, because its record says so, no node of another side may.
//     Votes of one side have seats on the other, and more than half of two sets do not fit
//     into what the sets have in common.
//  2. Of two equal halves, the one with the smallest id may own.
//
// Where a cut refuses connections, the first one holds until the network is cut along other lines before it has healed.
//
// A node that is new has no record that counts. It owns what its elders let it own: the
// members that took part in placement before it did. A node without elders, or whose elders have all
// sent a leave message, may own. So there is no protection between sides of which one has
// no process from before the split.
//
// A [Record] reads no clock and does no I/O. It is not safe for concurrent use.
package split
