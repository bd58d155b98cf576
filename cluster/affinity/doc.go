// Package affinity pins rooms to nodes by capacity, because hashing alone ignores
// size: one room of 50 participants costs its node 2,450 forwarded streams, as much
// as 1,225 rooms of two.
//
// A room is any key. A [Resolver] runs next to the agent of each node, and all share
// a [pinstore.Store]. Resolve returns the node of a room, and can be called on
// any node. The node that is about to serve the room calls Host, which checks that
// the room lives there and keeps the pin:
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
// Serve does so for each participant, counts them, and releases the room after the last
// one. Follow is for the signalling server of a client: it yields each node of one room. Report
// is for a client that has lost the node of its room.
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
//  1. However many instances resolve a room at once, one claim wins, and all return
//     its node.
//  2. A pin names one incarnation of a node. It is changed and deleted only by
//     comparison, and each new incarnation gets a greater epoch: a node that lost a
//     room cannot take it back by mistake. A room that was released or moved, and comes
//     back to its node, gets a new Hosting: the old one has ended.
//  3. A node that joins, or a room that grows, moves nothing. When a node dies, exactly
//     its rooms move, even if the node that moves them dies, too.
//  4. A node is dead when it has left, when its failure is confirmed, or when its lease has expired by gossip and its
//     heartbeat in the store, too. While gossip is cut and both sides reach the store, no room moves. Resolve never
//     names a member that has left.
//  5. After a pause that outlasted its lease, a node has Lost all its hostings before
//     Host returns.
//  6. Resolve and Host return within Config.Budget, no matter what the store does.
//     Hosted rooms stay hosted while the store is away, and their pins are restored
//     when it is back. Before new rooms get nodes again, some 1.2 s pass. After a lost
//     connection, and so perhaps lost data, up to a TTL passes while a live node has not
//     said in the store that it has restored its pins. A pin that names a dead incarnation
//     by then, because its node died meanwhile or the store has older data, is replaced.
//     While the store cannot say whether that incarnation is dead, for up to a lease's TTL,
//     the room stays.
//  7. Memory is bounded: by MaxKnown, by the rooms hosted here, and for each subscriber
//     by a fixed number of rooms.
//  8. The demand of a room (Size or Publishers and Subscribers or Units, Prefer, Require) is kept with its
//     pin, and decides where a dead node's rooms go, too. A node that lacks a requirement gets
//     no such room, unless by Move, or if the store loses it.
//  9. Nodes with other numbers of partitions, prefixes of the store's keys or costs than those
//     that run are refused, with an [ErrSettings] that names the setting; and so are those of another
//     cluster with the same prefix.
//  10. No callback (Cost, Selector, Counter, Tracer, the log handler) runs under a lock.
//
// # What it does not promise
//
// Without the store, instances answer Degraded: the last known node, or the node of the hash. The answers can
// differ, and then two nodes host one room until the store is back. One of them then has Lost it, with an
// [ErrSplit]. The same can happen when a store loses confirmed data, as in a Redis failover: hosts restore
// lost pins, but an earlier claim wins. Until its pin is restored, an older host has the smaller epoch. A
// node takes a claim back that came between a loss and the store's notice of it; a host that reads the claim
// before that has Lost the room. A store that evicts single pins may not notify their hosts. Then two nodes
// can host a room until the first one reads the pin again, with Redis after 150 s at most: use
// maxmemory-policy noeviction.
//
// With Config.HardCeiling, Redis takes back a claim of a node that is full, and for a round trip others can read it.
// A Host on that node in this moment hosts the room, which then goes to another node. It has Lost the room as soon as
// Redis notifies, without notifications within 5 s.
//
// A move breaks the connections of the room's clients: they need a new connection, not
// a new path (see package reconnect). So only a death or a request moves a room.
//
// # Reading the code
//
// A room's way to the store: resolve.go asks internal/pincache; claim.go picks a node with
// internal/capacity and claims the room. And back: learn.go calls the store through
// internal/storeclient, caches the answer and publishes a move (moved.go); claim.go checks the
// node of the pin with internal/liveness; assignment.go completes the answer.
//
// host.go, hosttable.go and serve.go hold the rooms served here; keep.go and confirm.go are the
// goroutine that keeps them; sweep.go is the goroutine that fails over the rooms of dead nodes.
// rooms.go has the calls by a room's name, for people and tools. report.go looks at the node
// of a room that clients report.
package affinity
