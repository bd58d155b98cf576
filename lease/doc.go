// Package lease decides which nodes are alive. It is a pure core: no goroutine,
// lock, socket, clock or randomness; time is an argument.
//
// Every node renews its own lease by a [Heartbeat] and relays the heartbeats of other nodes
// in gossip messages ([Message]). A node is live in a [Set] while the age of its latest
// heartbeat is at most the TTL. A heartbeat carries the node's [State]; a heartbeat with state
// Left is the node's leave message.
//
//	             heartbeat     age > TTL, or confirmed failure
//	record ──▶ pending ──▶ live ───────────────────────▶ expired
//	              │        ▲  │                          │  │
//	              │        └──┼──────────────────────────┘  │
//	              │           │       newer heartbeat       │
//	              ▼           ▼                             │
//	              └──────▶ retired ◀────────────────────────┘
//	         leave message, or a heartbeat of a later incarnation
//
// Every heartbeat has a [Stamp], the cluster time at which it was sent. A node that holds
// the same live set as the sender of a message needs only the stamps of all leases,
// rounded: half a byte each ([Bucket]). Rows ([Heartbeat]) say what else has changed.
//
// A node that watches another one and finds that it has ended sends a [FailureReport]. Reports
// of two watchers confirm the failure, unless the incarnation sent a heartbeat after the time
// that they state.
//
// # Guarantees
//
//  1. Only a heartbeat with a later stamp renews a lease. A node's state is the state in
//     its latest heartbeat. Duplicated, delayed and reordered messages change nothing.
//  2. The age of a heartbeat is the cluster time since its stamp. Wall clocks are never
//     compared to decide liveness, and relaying a heartbeat never makes it younger. Other
//     nodes may count it as older by a sixteenth of the TTL.
//  3. An ended lease stays ended: neither a full sync nor a relayed old heartbeat
//     revives a node. A set remembers an ended lease for ten TTLs, at least a
//     minute. A set that forgot all others ([Set.ExpireOthers]) takes a lease back
//     that has not ended elsewhere.
//  4. A later incarnation of a node replaces the earlier one for good. A leave message
//     ends an incarnation for good, however old the leave message is. All nodes that
//     have the node's record relay the leave message, even if they never saw the node
//     live. A process that has been replaced stops if the later incarnation is
//     alive. Otherwise the later incarnation was an earlier process of the same
//     node, before the clock was set back, and the process takes an incarnation
//     that is later still.
//  5. A heartbeat stamped more than MaxSkew ahead of the cluster's clock is rejected
//     and overwrites nothing.
//  6. Two sets with equal View digests hold the same live nodes with the same
//     records and states.
//  7. Memory is bounded by MaxNodes for any input. Decoding never panics.
//  8. Recorded messages that are sent again, at any later time and to any node,
//     revive, end and fence no node. A message counts only if its sender is live here, or
//     answers a challenge with a random number. Then its stamps are true, and all in it is as old as they
//     say. So a newcomer's wrong wall clock changes nothing, and neither does a restart
//     of the whole cluster.
//  9. Two sets with the same messages hold the same cordons ([Cordon]). A cordoned node
//     that is Active is Draining in a View, until the same moment of cluster time in all
//     sets, unless no other node could own anything.
//  10. Among three or more nodes, the report of one watcher ends no incarnation. Heartbeats
//     and failure reports may arrive in any order and any number of times: a set comes to
//     the same conclusion. An incarnation that was reported although it runs is live again
//     with its heartbeat of the next sixteenth of a TTL.
//
// # Not guaranteed
//
// The cluster time of a node lags behind the latest one by up to the time that a
// message takes to it. So a heartbeat looks younger there by as much. A set that does not know
// the sender yet takes the sender for live, for one TTL at most.
package lease
