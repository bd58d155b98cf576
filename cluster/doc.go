// Package cluster embeds a roost node into a Go program: it tells the program
// which node owns which key, and what this node acquired and released, without
// a central store.
//
// Nodes renew leases by gossip, so that each converges on the same live set.
// Over that set everyone computes the same rendezvous-hash owner for each of a
// fixed number of partitions; a key belongs to a partition by its hash.
//
//	agent, err := cluster.Start(ctx, cluster.Config{ID: "node-1", Join: seeds})
//	…
//	owner, err := agent.Place("room-17")
//
// The life of an agent:
//
//	Start ─▶ joining ─▶ settling ─▶ active ⇄ draining ─▶ left
//	             ▲          ▲          │
//	             │          └──────────┤ its clock is ahead of the others'
//	             └─────────────────────┘ it was stopped for longer than LeaseTTL
//
// It owns nothing but while it is active.
//
// # Guarantees
//
//  1. After the last change, every node holds the same table, and each
//     partition is owned by exactly one live node that is active.
//  2. A join moves only partitions that the joiner now owns; a leave, a crash or
//     a drain moves only those of the node that goes.
//  3. A crash is noticed when its lease runs out: LeaseTTL after its last
//     heartbeat. A drain or leave takes effect as fast as news spreads.
//  4. Watchers get the difference between what they were told and what is true
//     now. A slow one misses intermediate steps, never the result, and holds
//     nobody up. Losing and regaining a partition shows as both.
//  5. A process that was stopped for longer than LeaseTTL answers IsOwner with
//     false before anything else, releases everything, and joins again.
//  6. A node whose wall clock is more than MaxSkew ahead of the cluster's gives
//     up everything until the clock is right. Otherwise clocks do not matter.
//  7. Lookups are lock-free reads of an immutable snapshot.
//  8. Memory is bounded, whatever arrives from the network.
//
// # What gossip cannot promise
//
// Ownership converges; it is not exclusive. For the moment that news takes to
// spread (some hundred milliseconds), for up to LeaseTTL after a crash or a cut
// of the network, and for as long as a split lasts, two nodes may each believe
// that they own a partition, or one that is gone is still named. Handlers must
// be idempotent; what must not happen twice needs a lock or a fencing token from
// a store with consensus. In a split, each side places everything among its own.
//
// A virtual machine whose monotonic clock stands still while it is paused cannot
// tell that it was: it notices only when the others' news arrives.
//
// Without Config.Key, gossip is neither secret nor authentic.
package cluster
