// Package lease decides which nodes are alive. It is a pure core: it has no goroutine, lock, socket, clock or
// randomness. Time is an argument.
//
// Every node renews its own lease with a [Heartbeat], and relays the heartbeats of other nodes in gossip
// messages ([Message]). A node is live in a [Set] while the age of its latest heartbeat is at most the TTL. A
// heartbeat carries the node's [State]; a heartbeat with state Left is the node's leave message.
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
// Every heartbeat has a [Stamp], the cluster time at which it was sent. A node that holds the same live set
// as the sender of a message only needs the rounded ages of all leases, which take half a byte each
// ([Bucket]). Rows ([Heartbeat]) have what else has changed.
//
// A node that watches another node and finds that it has ended sends a [FailureReport]. Reports of two
// watchers confirm the failure, unless the incarnation sent a heartbeat after the time in the reports.
//
// # Guarantees
//
//  1. Only a heartbeat with a later stamp renews a lease. A node's state is the state in its latest
//     heartbeat. So duplicated, delayed and reordered messages do no harm.
//  2. The age of a heartbeat is the cluster time since its stamp. Wall clocks are never compared to decide
//     liveness, and relaying a heartbeat never makes it younger. Other nodes may count it as up to a
//     sixteenth of the TTL older.
//  3. An ended lease stays ended: neither a full sync nor a relayed old heartbeat revives a node. A set
//     remembers an ended lease for ten TTLs, but at least a minute. After [Set.ExpireOthers], a set accepts
//     leases again that have not ended at other nodes.
//  4. A later incarnation of a node permanently replaces the earlier one. A leave message permanently ends an
//     incarnation, however old the message is. All nodes that have the node's record relay the leave message,
//     even if they never saw the node live. A process that has been replaced stops if the later incarnation
//     is alive. Otherwise the later incarnation belongs to an earlier process of the same node, which ran
//     before the clock was set back. The process then takes an even later incarnation.
//  5. A heartbeat from a clock more than MaxSkew ahead of the cluster's clock is rejected and overwrites
//     nothing.
//  6. Two sets with equal View digests hold the same live nodes with the same
//     records and states.
//  7. Memory is bounded by MaxNodes for any input. Decoding never panics.
//  8. Recorded messages that are sent again, at any later time and to any node, do not revive, end or fence a
//     node. A message only counts if its sender is live here, or answers a challenge with a random number.
//     Then its stamps are true, and everything in the message is as old as they say. This holds even if a
//     newcomer's wall clock is wrong, and when the whole cluster restarts.
//  9. Two sets with the same messages hold the same cordons ([Cordon]). A View shows an Active node as
//     Draining while it is cordoned, until the same moment of cluster time in all sets, unless no other node
//     could own anything.
//  10. Among three or more nodes, the report of only one watcher does not end an incarnation. Sets come to
//     the same conclusion in whatever order and however often heartbeats and failure reports arrive. An
//     incarnation that was reported although it runs is live again with its heartbeat in the next sixteenth
//     of a TTL.
//
// # Not guaranteed
//
// The cluster time of a node lags behind the latest cluster time by up to the time that a message takes to
// reach the node. So a heartbeat looks younger there by this lag. If the set does not know the sender yet,
// the sender counts as live for at most one TTL.
package lease
