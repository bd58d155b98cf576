// Package redisstore keeps pins, and who is in which room, on Redis, so that all
// nodes of a fleet share them.
//
//	store, err := redisstore.Open(ctx, redisstore.Options{URL: "redis://localhost:6379"})
//	…
//	defer store.Close()
//
// It works on Redis 7 or newer and on Valkey: one server, Redis Cluster, Sentinel;
// over TLS, with a user of an access list.
//
// # Guarantees
//
//  1. Each op of Swap is atomic on the server. A single op is one command, and so
//     is a batch for one partition; batches share a round trip.
//  2. A pin and its entry in the index of its node's rooms change together. No
//     command scans the keys.
//  3. All keys of a partition are in one slot of Redis Cluster, all keys have a
//     TTL, and all time is the server's.
//  4. An answer is fresh for 30 s at most, for no longer than its pin lasts, and
//     until the server tells of a change by somebody else. When a connection is
//     lost, everything is said to have changed. With client_cache=0 an answer is
//     fresh for 1 s.
//  5. Redis may be down at any time, also at Open. Calls return when their context
//     ends at the latest, with an affinity.ErrStore and its cause. Nothing is tried
//     twice; connections mend themselves.
//  6. What somebody else wrote under a key is an error that names the key.
//  7. No error and no log line has a password in it.
//
// # What it does not promise
//
// A call that failed, or whose context ended, may still be carried out, within
// seconds. Redis replicates asynchronously: a failover may forget the last changes.
// Epochs still grow, unless the clock of the new master is behind that of the old.
//
// # Keys
//
// The number in braces is the partition.
//
//	roost:{17}:r:<room>                 string  node|incarnation|epoch|size: the pin
//	roost:{17}:n:<node>|<incarnation>   zset    room → expiry in ms: a life's rooms
//	roost:{17}:l                        zset    life → greatest expiry: lives with rooms
//	roost:{17}:u:<room>                 zset    participant → last heartbeat in ms
//	roost:lives                         zset    life → until when it signed
//
// A user of an access list needs
//
//	~roost:* +eval +evalsha +get +set +del +mget +exists +pttl +pexpire +time
//	+zadd +zrem +zrange +zrevrange +zscore +zcard +zcount +zrangebyscore
//	+zremrangebyscore +hello +ping +client|tracking
//	+select +cluster|slots +cluster|shards +role
package redisstore
