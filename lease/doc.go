// Package lease decides who is alive. It is a pure kernel: no goroutine, lock,
// socket, clock or randomness; time is an argument.
//
// Every node renews its own lease by a [Beat] and passes on the beats of others
// in digests ([Message]). A node is live, in the view of one [Set], while the
// age of its latest beat is at most the TTL. A beat also tells the node's [State];
// one that tells Left is its farewell.
//
//	              beat                    age > TTL
//	record ──▶ pending ──▶ live ─────────────────────▶ expired
//	                        ▲  │                        │  │
//	                        └──┼────────────────────────┘  │
//	                           │       newer beat          │
//	                           ▼                           │
//	                        retired ◀──────────────────────┘
//	               a farewell, or a later incarnation's beat;
//	               it ends a pending life, too
//
// # Guarantees
//
//  1. Only a beat with a greater sequence number renews a lease. A node's state
//     is that of its latest beat. Telling the same news again, late, or in
//     another order changes nothing.
//  2. The age of a beat is the age that the message states plus the time since
//     it arrived. Clocks of two nodes are never compared to decide liveness,
//     and passing a beat on never makes it younger.
//  3. What is over stays over: neither a full sync nor a relayed old beat brings
//     a node back; a set remembers an ended lease for ten TTLs, at least a
//     minute.
//  4. A later incarnation of a node replaces the earlier one for good, and a
//     farewell ends an incarnation for good, however old it is. It is passed on
//     by all who know the node's record, even if they never saw it live. A process
//     that finds itself replaced stops if the later one lives, and outbids it if
//     not: then the later one was its own past, under a clock set back since.
//  5. A beat stamped more than MaxSkew ahead of the cluster's clock is rejected
//     and overwrites nothing.
//  6. Two sets with equal View digests hold the same live nodes with the same
//     records and states.
//  7. Memory is bounded by MaxNodes, whatever arrives; decoding never panics.
//
// # What it does not promise
//
// A message does not say how long it was under way: a beat that the network, or
// a stopped process, held back arrives looking younger than it is. Its sequence
// number keeps it from renewing a newer lease, but a node that never heard of
// the sender before would take it for live, for one TTL at most.
package lease
