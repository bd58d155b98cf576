// Package affinity pins rooms to nodes by capacity, because hashing alone ignores
// size: one room of 50 participants costs its node 2,450 forwarded streams, as much
// as 1,225 rooms of two.
//
// A room is any key. Each node runs a [Resolver] next to its agent, and all of them share a [pinstore.Store].
// Call Resolve on any node to get the node of a room. On the node that is about to serve the room, call Host,
// which checks that the room lives there and keeps its pin:
//
//	rooms, err := affinity.Start(agent, store, affinity.Config{})
//	…
//	a, err := rooms.Resolve(ctx, "room-17", affinity.Demand{Size: 4})  // on any node
//	…
//	hosting, err := rooms.Host(ctx, "room-17", affinity.Demand{Size: 4})  // on a.Node
//	…
//	<-hosting.Lost() // the room lives elsewhere now: see hosting.Err()
//	…
//	agent.Leave(ctx) // ends the rooms here at the right moment, and then leaves: other nodes take them at once
//
// Serve does this for each participant, counts them, and releases the room after the last one. Follow is for
// the signalling server of a client, and yields each new node of a room. Report is for clients that have lost
// the connection to the node of their room.
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
//  1. If many instances resolve a room at once, one claim wins, and all of them return its node.
//  2. A pin names an incarnation of a node. It is only changed or deleted by compare-and-swap, and each new
//     incarnation gets a greater epoch, so a node that lost a room cannot take it back by mistake. A room
//     that was released or moved and comes back to its node gets a new Hosting. The old one has ended.
//  3. A node that joins or a room that grows does not move any room. When a node dies, only its rooms move,
//     even if the node that moves them dies, too.
//  4. A node counts as dead when it has left, when its failure is confirmed, or when both its lease in gossip
//     and its heartbeat in the store have expired. While gossip is cut but both sides reach the store, no
//     room moves. Resolve never names a member that has left.
//  5. After a pause longer than its lease, a node loses all its hostings before Host returns.
//  6. Resolve and Host return within Config.Budget, no matter what the store does. Hosted rooms stay hosted
//     while the store is away, and their pins are restored when it is back. It then takes about 1.2 s until
//     new rooms get nodes again. If the connection was lost, the store may have lost data. Then it takes up
//     to a TTL, until all live nodes have said in the store that they have restored their pins. Pins that
//     name a dead incarnation by then, because its node died in the meantime or the store has older data, are
//     replaced. While the store cannot say whether the incarnation is dead, for up to a lease's TTL, the room
//     stays.
//  7. Memory is limited by MaxKnown, by the rooms hosted here, and by a fixed number of rooms for each
//     subscriber.
//  8. The demand of a room (Size or Publishers and Subscribers or Units, Prefer, Require) is kept with its
//     pin, so it also decides where the rooms of a dead node go. A node that does not meet a requirement only
//     gets the room by Move, or if the store loses the requirement.
//  9. A node is refused if its number of partitions, prefix of the store's keys, or costs differ from those
//     of the running nodes. The [ErrSettings] names the setting. Nodes of another cluster with the same
//     prefix are refused, too.
//  10. No callback (Cost, Selector, Counter, Tracer, the log handler) runs under a lock.
//
// # What it does not promise
//
// Without the store, instances answer Degraded: with the last known node, or the node of the hash. Their
// answers can differ, so two nodes may host the same room until the store is back. Then one of them loses it
// with an [ErrSplit].
//
// The same can happen when a store loses confirmed data, as in a Redis failover: hosts restore lost pins, but
// an earlier claim for another node wins. Until its pin is restored, an older host has the smaller epoch. If a node has
// claimed a room after the store lost its data but before the node learned of the loss, it withdraws the
// claim. A host that reads the claim before that loses the room.
//
// A store that evicts single pins may not notify their hosts. Then two nodes can host a room until the first
// one reads the pin again, with Redis after at most 150 s. So use maxmemory-policy noeviction.
//
// With Config.HardCeiling, Redis withdraws a claim for a node that is full, but others can read the claim for
// the time of a round trip. A Host on that node at this moment hosts the room, which then goes to another
// node. It loses the room as soon as Redis notifies it, or within 5 s without notifications.
//
// A move breaks the connections of the room's clients. They need a new connection and not only a new path
// (see package reconnect). So rooms only move when their node dies or on request.
//
// # Reading the code
//
// On the way to the store, resolve.go asks internal/pincache, flight.go joins callers for the same room,
// and claim.go picks a node with internal/capacity and claims the room. On the way back, learn.go calls
// the store via internal/storeclient, caches the answer and publishes a move (moved.go), claim.go checks
// the node of the pin with internal/liveness, and assignment.go completes the answer.
//
// host.go, hosttable.go and serve.go hold the rooms served here. keep.go and confirm.go have the goroutine
// that keeps them, and sweep.go has the goroutine that fails over the rooms of dead nodes. rooms.go has calls
// for people and tools. report.go checks the node of a room that clients report.
package affinity
