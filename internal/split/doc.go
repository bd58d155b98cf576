// Package split decides whether the nodes on this side of a network partition (a split) may own anything. The
// package is used if the split policy of the cluster is "majority".
//
// A node keeps a [Record] of voters. Voters are the members that take or took part in placement. A voter
// first gets a seat, and its seat later becomes a vote. A majority always means a majority of all seats. So
// two sides cannot both have a majority of votes, even if their records differ:
//
//   - A member gets a seat as soon as this node sees that the member takes part in placement and no voter is
//     missing.
//   - The seat becomes a vote when all voters are live and have reported, more than a Spread later, that they
//     have the same table. By then all voters have given the member a seat. If a silent voter returns, the
//     vote takes another Spread, because that voter does not know the members that joined while it was
//     silent.
//   - A voter that sends a leave message loses its seat, because it no longer supports any side. A voter that
//     becomes silent keeps its seat for some time, because a crash and a network failure look the same.
//   - A voter whose address refuses connections has either crashed, or is behind a firewall that rejects
//     connections. The voter loses its seat under two conditions: This side may own partitions even without
//     the voter, and all live members have sent a heartbeat more than half a Spread after the voter was lost.
//     These heartbeats show that none of the members is behind the same firewall as the voter.
//
// The package guarantees the following for sides that no longer see each other:
//
//  1. If a node on one side may own partitions because of its record, no node on another side may. The reason
//     is that every vote on one side is a seat on the other side. So the votes of both sides together fit
//     into the seats that the sides share, and two majorities would need more seats than that.
//  2. If the sides are equal halves, the side with the smallest id may own partitions.
//
// The first guarantee has an exception if the network refuses connections instead of dropping packets. In
// this case, the guarantee does not hold if the network splits along different lines before it has healed.
//
// The record of a new node is not used. Instead the elders of the node decide. These are the members that
// took part in placement before the new node did. A node may own partitions if it has no elders, or if all
// its elders have sent a leave message. So there is no protection if one side has no process from before the
// split.
//
// A [Record] does not read a clock and does no I/O. It is not safe for concurrent use.
package split
