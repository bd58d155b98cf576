// Package affinity pins rooms to nodes by capacity, because hashing alone ignores size. One room of 50
// participants costs its node 2,450 forwarded streams, as much as 1,225 rooms of two.
//
// A room can have any key. Each node runs a [Resolver] next to its agent, and all Resolvers share a
// [pinstore.Store]. Call Resolve on any node to get the node of a room. On the node that is about to serve
// the room, call Host, which checks that the room lives there and keeps its pin:
//
//	rooms, err := affinity.Start(agent, store, affinity.Config{})
//	…
//	a, err := rooms.Resolve(ctx, "room-17", affinity.Demand{Size: 4})  // on any node
//	…
//	hosting, err := rooms.Host(ctx, "room-17", affinity.Demand{Size: 4})  // on a.Node
//	…
//	<-hosting.Lost() // the room lives elsewhere now: see hosting.Err()
//	…
//	agent.Leave(ctx) // ends the rooms here at the right moment, and then leaves, so other nodes take them immediately
//
// Serve calls Host for each participant, counts the participants, and releases the room after the last one
// has left. A signalling server uses Follow to receive each new node of a room. Call Report when a client has
// lost the connection to the node of its room.
//
// Before an event with many participants, call Reserve. Then the room has a node that keeps the units free.
//
// The states of a room's pin:
//
//	        Resolve, Host                         its node dies, or Move
//	(none) ───────────────▶ names an incarnation ───────────────▶ names another one
//	   ▲                      │        ▲  │                        (greater epoch)
//	   └──────────────────────┘        └──┘
//	    Release, or PinTTL             refreshed by its host
//	    without a refresh              every PinTTL/3
//
// # Guarantees
//
//  1. If many instances resolve a room at the same time, one claim wins, and all instances return its node.
//  2. A pin names an incarnation of a node. A pin is only changed or deleted by compare-and-swap, and its
//     epoch grows whenever it names a new incarnation. So a node that lost a room cannot take it back by
//     mistake. If a room was released or moved and later returns to its node, it gets a new Hosting, because
//     the old Hosting has ended.
//  3. No room moves because a node joins, or, without [Config.Rebalance], because a room grows. When a node
//     dies, only its rooms move, even if the node that moves them dies, too.
//  4. A node is considered dead when it has left, when its failure is confirmed, or when both its lease in
//     gossip and its heartbeat in the store have expired. During a network partition of gossip, no room moves
//     as long as both sides reach the store. Resolve never names a member that has left.
//  5. After a pause longer than its lease, a node loses all its hostings before Host returns.
//  6. Resolve and Host return within Config.Budget, no matter what the store does. Hosted rooms stay hosted
//     while the store is unreachable, and their hosts restore the pins when the store is back. New rooms get
//     nodes again about 1.2 s later. If the connection was lost, the store may have lost data. In this case,
//     new rooms wait up to a lease's TTL, until all live nodes have reported in the store that they have
//     restored their pins. A restored room's pin may name a dead incarnation, because its node has died or
//     because the store has older data. The host then replaces the pin. For up to a lease's TTL, the store
//     cannot tell whether the incarnation is dead. During this time the room stays on its host.
//  7. Memory is limited by MaxKnown, by the rooms hosted here, and by a fixed number of rooms for each
//     subscriber.
//  8. The demand of a room (Size or Publishers and Subscribers or Units, Prefer, Require) is stored with its
//     pin, so it also decides which node gets the room if its node dies. A node that does not meet a
//     requirement only gets the room by Move or Pin, or if the store loses the requirement.
//  9. If a node's number of partitions, key prefix in the store, or room costs differ from those of the
//     running nodes, its calls fail with an [ErrSettings] that names the setting. The nodes of another
//     cluster with the same prefix get an ErrSettings, too.
//  10. The Resolver holds no lock while it runs a callback (Cost, Selector, Counter, Tracer, the log
//     handler).
//
// # What it does not promise
//
// Without the store, instances answer Degraded, with the last known node or the owner of the room's
// partition. The answers of different instances can differ, so two nodes may host the same room until the
// store is back. Then one of the two nodes loses the room with an [ErrSplit].
//
// Two nodes can also host the same room when the store loses confirmed data, as in a Redis failover. Hosts
// restore lost pins, but if another node has already claimed the room, its claim wins. Until an older host
// has restored its pin, it has the smaller epoch. If a node has claimed a room after the store lost its data
// but before the node learned of the loss, the node withdraws the claim. A host that reads the claim before
// the node withdraws it loses the room, without ErrSplit if the host has not learned of the loss either.
//
// A store that evicts single pins may not notify their hosts. Then two nodes can host a room until the first
// host reads the pin again. With Redis, this takes at most 150 s. To avoid it, set maxmemory-policy to
// noeviction.
//
// With Config.HardCeiling, Redis withdraws a claim for a node that is full, but other nodes can read the
// claim for one round trip. If Host is called on the full node at this moment, that node hosts the room
// although another node gets it. The full node loses the room as soon as Redis notifies it, or within 5 s
// without notifications.
//
// A move breaks the connections of the room's clients, and each client needs a new connection (see package
// reconnect). So rooms only move on request, when their node dies, or with Config.Rebalance.
//
// # Reading the code
//
// Follow a Resolve through the files: resolve.go looks up the room in internal/pincache. If the room is not
// cached, flight.go merges concurrent calls for it, and claim.go picks a node with internal/capacity. Then
// learn.go calls the store via internal/storeclient, caches the answer, and publishes a move (moved.go).
// Finally claim.go checks the node of the pin with internal/liveness, and assignment.go completes the answer.
//
// The files host.go, hosttable.go and serve.go manage the rooms that this node serves. The goroutine in
// keep.go and confirm.go maintains the pins of these rooms, and moves rooms away if the node is overloaded
// (relieve.go). The goroutine in sweep.go fails over the rooms of dead nodes. rooms.go contains calls for
// operators and tools. ahead.go contains reservations. report.go checks a node when a client reports that it lost
// the connection to that node.
package affinity
