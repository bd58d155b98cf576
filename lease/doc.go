// Package lease decides which nodes of a cluster are alive. Create a [Set], send the messages that it composes,
// and apply the messages that you receive:
//
//	set := lease.NewSet(now, lease.Record{Profile: profile}, lease.Params{TTL: 6 * time.Second, MaxSkew: 5 * time.Second})
//	set.Establish() // after joining a cluster, or if there is no cluster to join
//	set.SetState(lease.Active)
//
//	// Several times per TTL, renew the lease and gossip:
//	set.Heartbeat(now, lease.NoLoad, 0)
//	for _, m := range set.Compose(now, 1400, len(peers)) {
//		send(peers, lease.Encode(m))
//	}
//
//	// For each packet that arrives:
//	m, err := lease.Decode(packet)
//	effect := set.Apply(now, m)
//	if effect.Challenge != "" {
//		challenge(effect.Challenge, m) // send set.Challenge to this address, apply m again after the answer
//	}
//	for _, reply := range set.Replies(now, m, effect, 1400) {
//		send(reply.To, lease.Encode(reply.Message))
//	}
//
//	// At the time that set.NextDeadline returns:
//	if set.Expire(now) {
//		use(set.View())
//	}
//
// The package is a pure core. It starts no goroutine, takes no lock, opens no socket, reads no clock and uses no
// randomness. The caller passes the time as an argument.
//
// # Guarantees
//
//  1. Only a heartbeat with a later [Stamp] renews a lease. The state of a node is the state in its latest
//     heartbeat. So duplicated, delayed and reordered messages do no harm.
//  2. The age of a heartbeat is the cluster time since its stamp. A set never compares wall clocks to decide
//     whether a node is live. Relaying a heartbeat never makes it younger, but rounding can make it look older
//     to other nodes, by up to a sixteenth of the TTL.
//  3. An ended lease stays ended. A full sync or a relayed old heartbeat cannot revive a node. A set remembers
//     an ended lease for ten TTLs, but at least a minute. After [Set.ExpireOthers], a set accepts leases again
//     that are still live at other nodes.
//  4. A later [Incarnation] of a node permanently replaces the earlier one. A leave message permanently ends an
//     incarnation, even if the message is old. All nodes that have the node's record relay the leave message,
//     even if they never saw the node live. A process that was replaced stops if the later incarnation is
//     alive. If the later incarnation is an earlier process of the node, from before its clock was set back,
//     the process takes an even later incarnation instead.
//  5. A set rejects a heartbeat from a clock that is more than MaxSkew ahead of the cluster's clock. The
//     rejected heartbeat overwrites nothing.
//  6. Two sets with equal View digests contain the same live nodes with the same records and states.
//  7. Memory is bounded by MaxNodes for any input. Decoding never panics.
//  8. Replayed messages do not revive, end or fence a node, no matter when and to which node they are sent. A
//     set accepts a message only if the sender is live in the set, or if the sender answers a challenge with a
//     random number. The stamps of accepted messages are true, so their content is as old as the stamps say.
//     This guarantee holds even if a newcomer's wall clock is wrong, and when the whole cluster restarts.
//  9. Two sets with the same messages contain the same cordons ([Cordon]). A View shows an Active node as
//     Draining while it is cordoned, and the cordon ends at the same cluster time in all sets. Cordons have no
//     effect if no other node could own anything.
//  10. Among three or more live nodes, a single watcher cannot end the lease of a node. Sets reach the same
//     conclusion in whatever order and however often heartbeats and failure reports arrive. If watchers report
//     a running incarnation, its heartbeat in the next sixteenth of a TTL makes it live again.
//
// # Limits
//
// A node's estimate of cluster time lags behind the latest cluster time by up to the time that a message takes
// to reach the node. A heartbeat looks younger to the node by this lag. If the set does not know the sender yet,
// it considers the sender live for at most one TTL.
//
// A set has at most MaxNodes nodes, and is not safe for concurrent use.
//
// # How it works
//
// Every node renews its own lease with a [Heartbeat], and relays the heartbeats of other nodes in gossip
// messages ([Message]). A node is live in a [Set] while the age of its latest heartbeat is at most the TTL. A
// heartbeat carries the node's [State]. A heartbeat with state Left is the node's leave message.
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
// Every heartbeat has a [Stamp], the cluster time at which it was sent. If the receiver of a message has the same
// live set as the sender, the message only needs the rounded ages of all leases, which take half a byte each
// ([Bucket]). Everything else that changed travels as rows ([Heartbeat]).
//
// Each node watches a few other nodes. When a watcher finds that a node has ended, it sends a [FailureReport].
// Reports of two watchers confirm the failure, unless the incarnation sent a heartbeat after the time in the
// reports.
package lease
