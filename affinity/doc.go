// Package affinity pins rooms to nodes by capacity, where hashing alone is blind
// to size: one room of 50 participants costs its node 2,450 forwarded streams, as
// much as 1,225 rooms of two.
//
// A room is any key. A [Resolver] runs beside the agent of each node and shares a
// [Store] with the others. Whoever needs a room calls Resolve and gets its node;
// the node that is about to serve it calls Host, which checks that it is the one
// and keeps the pin:
//
//	rooms, err := affinity.Start(agent, store, affinity.Config{})
//	…
//	a, err := rooms.Resolve(ctx, "room-17", affinity.Demand{Size: 4})  // anywhere
//	…
//	hosting, err := rooms.Host(ctx, "room-17", affinity.Demand{Size: 4})  // on a.Node
//	…
//	<-hosting.Lost() // it lives elsewhere now: hosting.Err() says where
//
// The life of a room's pin:
//
//	        Resolve, Host                      its node dies, or Move
//	(none) ───────────────▶ pinned to a life ───────────────▶ pinned to another
//	   ▲                      │        ▲  │                        (greater epoch)
//	   └──────────────────────┘        └──┘
//	    Release, or PinTTL             refreshed by its host
//	    without a refresh              every PinTTL/3
//
// # Guarantees
//
//  1. However many instances resolve a room at once, one claim wins, and all
//     answer with its node.
//  2. A pin names one life of a node. It is changed and deleted by comparison
//     only, and each new life gets a greater epoch: whoever lost a room cannot
//     take it back by mistake.
//  3. A node that joins, or a room that grows, moves nothing. When a node dies,
//     exactly its rooms move, wherever the one that moves them dies, too.
//  4. A node is dead when its lease has run out by gossip and by the store. While
//     gossip is cut and both sides reach the store, no room changes hands.
//  5. A node whose lease ran out because its process was stopped has Lost all
//     that it hosted before Host answers anything else.
//  6. Resolve and Host answer within Config.Budget, whatever the store does.
//     Rooms that are hosted stay so while it is gone; when it is back, their pins
//     are made again.
//  7. Memory is bounded: by MaxKnown, by what is hosted here, and for each
//     subscriber by a fixed number of rooms.
//
// # What it does not promise
//
// Without the store, instances answer Degraded: by what they know, else by the
// hash. They can differ, and then two nodes host one room until the store is
// back; one of them has Lost it then, with an [ErrSplit]. The same can happen when
// a store loses data that it had confirmed, such as in a Redis failover: pins that
// are lost are made again by their hosts, but a claim that comes first wins.
//
// A room that moves breaks its clients' connections: they need a new one, not a
// new path (see package reconnect). So nothing but a death or a request moves it.
package affinity
