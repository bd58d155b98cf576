// Package split decides whether this side of a split network may own anything if the policy of the cluster is
// "majority".
//
// A node keeps a [Record] of voters, which are the members that take or took part in placement. A voter first
// gets a seat and later a vote. Because the majority is counted of all seats, two sides cannot both have a
// majority of votes even if their records differ:
//
//   - A member gets a seat as soon as this node sees it take part in placement and no voter is missing.
//   - Its seat becomes a vote once every voter is live and has said, a Spread later, that it has the same
//     table, because then all of them have given the member a seat. If a silent voter returns, this takes a
//     Spread longer, because that voter has not heard of the members that came in the meantime.
//   - A voter that sends a leave message loses its seat, because it no longer supports any side. A voter that
//     falls silent keeps its seat for some time, because a crash and a cut look the same.
//   - A voter whose address refuses connections has crashed, or is behind a firewall that resets them. On a
//     side that may own even if it counts this voter as missing, it loses its seat once all live members have
//     sent a heartbeat half a Spread later, which shows that none of them is behind that firewall.
//
// Guarantees, for sides that have lost sight of each other:
//
//  1. If a node on one side may own because of its record, no node on another side may. Votes on one side
//     have seats on the other, and the majorities of two sets don't both fit into what the sets have in
//     common.
//  2. Of two equal halves, the one with the smallest id may own.
//
// If a cut refuses connections, the first guarantee holds unless the network is cut along other lines before
// it has healed.
//
// The record of a new node does not count. Instead its elders decide, which are the members that took part in
// placement before it did. A node without elders, or whose elders have all sent a leave message, may own. So
// there is no protection if one side has no process from before the split.
//
// A [Record] reads no clock and does no I/O. It is not safe for concurrent use.
package split
