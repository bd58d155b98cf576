// Package redisstore keeps pins and participants in Redis, for all nodes of a fleet. It implements
// pinstore.Store and presence.Store.
//
//	store, err := redisstore.Open(ctx, redisstore.Options{URL: "redis://localhost:6379", Prefix: "calls:"})
//	…
//	defer store.Close()
//
// It works with Redis 7 or newer and with Valkey, on a single server, a Redis Cluster or with Sentinel, over
// TLS, and with an ACL user.
//
// # Guarantees
//
//  1. Each op of Swap is atomic on the server. A single op is one command, and so is a batch for one
//     partition. Batches share a round trip. Ops that only read take several commands, so their freshness may
//     be that of the next pin, of which the store then notifies.
//  2. A pin and its entry in the index of its node's rooms change together. No command scans the key space.
//  3. All keys of a partition are in one slot of Redis Cluster, all keys have a TTL, and
//     all time is the server's.
//  4. An answer is fresh for at most 30 s, and no longer than its pin lasts or until the
//     server notifies of another client's change. After a lost connection the store
//     notifies of a change of all pins. With client_cache=0 an answer is fresh for 1 s.
//  5. Redis may be down at any time, even during Open. Calls return when their context ends at the latest,
//     with ErrStore and its cause. Calls are not retried, but connections recover by themselves. If a single
//     server has become a replica (READONLY, MASTERDOWN), its connections are closed, so that the next ones
//     go where its name or a load balancer then leads.
//  6. If a key has a value that is not from roost, the error names the key.
//  7. No error and no log line contains a password.
//  8. While a slot of a Redis Cluster moves to another master, Swap works. Index may miss the rooms of that
//     slot, and then returns an error.
//
// # What it does not promise
//
// A call that failed, or ended with its context, may still be carried out within seconds. Redis replicates
// asynchronously, so a failover may lose the last changes. Epochs still grow, unless the clock of the new
// master is behind that of the old one.
//
// # Keys
//
// The number in braces is the partition.
//
//	roost:{17}:r:<room>                 string  node|incarnation|epoch|size|needs: the pin; needs is what else the room's demand states
//	roost:{17}:n:<node>|<incarnation>   zset    room → expiry in ms: the rooms of an incarnation
//	roost:{17}:l                        zset    incarnation → until when it is listed
//	roost:{17}:u:<room>                 zset    participant → last heartbeat in ms
//	roost:{n:<node>|<incarnation>}      zset    quarter of a second → units of the rooms that were claimed in it
//	roost:{n:<node>|<incarnation>}:<room>  string  units that were claimed for a room within five seconds
//	roost:lives                         zset    incarnation → expiry of its heartbeat in ms
//	roost:{cluster}:name                string  the name of the cluster that has these keys ({cluster} as it stands)
//	roost:{cluster}:named               zset    incarnation that states the name → expiry in ms
//	roost:{<cluster>}:fingerprint       string  the settings that all nodes of the cluster must share
//	roost:{<cluster>}:users             zset    incarnation that states them → expiry in ms
//	roost:{<cluster>}:refused           zset    incarnation that states other ones → expiry in ms
//
// The last three begin with roost: for any prefix, so that nodes with different prefixes see each other. If
// an ACL user has no right to them, only the name of the cluster is compared, and the log says so.
//
// An ACL user needs
//
//	~roost:* (and the prefix, if it is another one) +eval +evalsha +get +set +del +mget +exists +pttl +pexpire +time
//	+zadd +zrem +zrange +zrevrange +zscore +zcard +zcount +zrangebyscore
//	+zremrangebyscore +hello +ping +client|tracking +client|caching
//	+select +cluster|slots +cluster|shards +asking +role
//
// Without +client|caching, a batch takes a command for each partition. Without +asking, calls fail for the slots of a
// Redis Cluster that move.
package redisstore
