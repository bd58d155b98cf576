// Package redisstore keeps pins and participants in Redis for all nodes of a fleet. It implements
// pinstore.Store and presence.Store.
//
//	redis, err := rueidisconn.Open(ctx, rueidisconn.Options{URL: "redis://localhost:6379"})
//	…
//	store, err := redisstore.New(redis, redisstore.Options{Prefix: "calls:"})
//	…
//	defer store.Close()
//
// If your program already uses go-redis, pass goredisconn.New(client) in place of the connection.
//
// The store supports Redis 7 or newer and Valkey, as a single server, as a Redis Cluster or with Sentinel. The store
// also supports TLS and ACL users.
//
// # Guarantees
//
//  1. Each op of Swap is atomic on the server. A single op is one command. A batch is also one command, or one
//     command for each partition in a Redis Cluster. Batches share a round trip. Ops that only read take several
//     commands. If a pin changes between these commands, the freshness may be that of the next pin, and the store
//     then notifies of the change.
//  2. A pin and its entry in the index of its node's rooms change together. No command scans the key space.
//  3. In a Redis Cluster, all keys of a partition are in one slot. All keys have a TTL, and all times are measured by
//     the server's clock, except the ends of reservations.
//  4. An answer is fresh for at most 30 s, and only until its pin expires or another client changes the pin. The script
//     that replaces or deletes a pin publishes the room on the channel roost:changes. Every 5 s, the store publishes
//     a message to itself. If these messages do not come back, an answer is fresh for 1 s, because the store
//     might miss changes. [Store.Notified] returns the reason.
//  5. After a lost connection, or when the server has lost the store's latest heartbeat, the store notifies its users
//     that all pins may have changed.
//  6. If roost did not write the value of a key, the error names the key.
//  7. While a slot of a Redis Cluster moves to another master, Swap works. Index may miss the rooms of that slot. If
//     Index misses rooms, it returns an error.
//
// # What it does not promise
//
// If a call fails or its context ends, Redis may still execute the call within seconds. Redis replicates
// asynchronously, so a failover may lose the latest changes. Epochs still increase, unless the clock of the new
// master is behind the clock of the old master.
//
// The store does not detect changes made without its scripts, for example if you delete a key by hand or Redis
// evicts a key. While a Redis Cluster is disturbed, messages between its servers can be lost. In that case, a
// resolver may use the old pin for up to 30 s, and a host may need 150 s to notice that its room has moved.
//
// # Keys
//
// The number in braces is the partition.
//
//	roost:{17}:r:<room>                 string  node|incarnation|epoch|size|needs: the pin; needs is what else the room's demand states
//	roost:n:<node>|<incarnation>        zset    room → partition * 2^32 + expiry in s: the rooms of an incarnation
//	roost:l                             zset    incarnation → until when it is listed in ms
//	roost:{17}:u:<room>                 zset    participant → last heartbeat in ms
//	roost:{n:<node>|<incarnation>}      zset    quarter of a second → units of the rooms that were claimed in it
//	roost:{n:<node>|<incarnation>}:<room>  string  units that were claimed for a room within five seconds
//	roost:lives                         zset    incarnation → expiry of its heartbeat in ms
//	roost:ahead                         zset    end in ms|needs|room of a reservation → its end in ms
//	roost:{cluster}:name                string  the name of the cluster that has these keys (here, {cluster} is literal)
//	roost:{cluster}:named               zset    incarnation that states the name → expiry in ms
//	roost:{<cluster>}:fingerprint       string  the settings that all nodes of the cluster must share
//	roost:{<cluster>}:users             zset    incarnation that states them → expiry in ms
//	roost:{<cluster>}:refused           zset    refused incarnation, which states other settings → expiry in ms
//
// In a Redis Cluster, the second and third key are roost:{17}:n:<node>|<incarnation> and roost:{17}:l. Each
// partition has its own pair of these keys.
//
// The last three keys start with roost: for every prefix, so that nodes with different prefixes can compare their
// settings. If an ACL user has no permission for these keys, only the name of the cluster is compared, and the
// node logs the problem.
//
// An ACL user needs
//
//	~roost:* &roost:* (and your prefix, if you set one) +eval +evalsha +get +set +del +mget +exists +pttl +pexpire +time
//	+zadd +zrem +zrange +zscore +zcard +zcount +zrangebyscore +zrevrangebyscore
//	+zremrangebyscore +publish +subscribe +unsubscribe +hello +ping
//	+select +cluster|slots +cluster|shards +asking +role
//
// Without +asking, calls fail for the slots of a Redis Cluster that move.
package redisstore
