// Package lease decides which nodes are alive. It is a pure kernel: no goroutine,
// lock, socket, clock or randomness; time is an argument.
//
// Every node renews its own lease by a [Beat] and relays the beats of other nodes
// in digests ([Message]). A node is live in a [Set] while the age of its latest
// beat is at most the TTL. A beat carries the node's [State]; a beat with state
// Left is the node's farewell.
//
//	              beat                    age > TTL
//	record ──▶ pending ──▶ live ─────────────────────▶ expired
//	              │         ▲  │                        │  │
//	              │         └──┼────────────────────────┘  │
//	              │            │       newer beat          │
//	              ▼            ▼                           │
//	              └───────▶ retired ◀──────────────────────┘
//	               farewell, or a beat of a later incarnation
//
// # Guarantees
//
//  1. Only a beat with a greater sequence number renews a lease. A node's state is
//     the state in its latest beat. Duplicated, delayed and reordered messages
//     change nothing.
//  2. The age of a beat is the age in the message plus the time since the message
//     arrived. Clocks of two nodes are never compared to decide liveness, and
//     relaying a beat never makes it younger.
//  3. An ended lease stays ended: neither a full sync nor a relayed old beat
//     revives a node. A set remembers an ended lease for ten TTLs, at least a
//     minute.
//  4. A later incarnation of a node replaces the earlier one for good. A farewell
//     ends an incarnation for good, however old the farewell is. All nodes that
//     have the node's record relay the farewell, even if they never saw the node
//     live. A process that has been replaced stops if the later incarnation is
//     alive. Otherwise the later incarnation was an earlier process of the same
//     node, before the clock was set back, and the process takes an incarnation
//     that is later still.
//  5. A beat stamped more than MaxSkew ahead of the cluster's clock is rejected
//     and overwrites nothing.
//  6. Two sets with equal View digests hold the same live nodes with the same
//     records and states.
//  7. Memory is bounded by MaxNodes for any input. Decoding never panics.
//
// # Not guaranteed
//
// A message does not state how long it was in transit: a beat that was delayed by
// the network, or in the buffer of a stopped process, looks younger than it is. The
// sequence number keeps a delayed beat from renewing a newer lease. A set that does
// not know the sender yet takes the sender for live, for one TTL at most.
package lease
