// Package cluster embeds a roost node into a Go program. The program looks up
// which node owns a key, and learns which partitions its own node acquires and
// releases. There is no central store.
//
// Nodes renew leases by gossip, so that all of them converge on the same live set. From that set, each node
// computes the same owner for each of a fixed number of partitions. The hash of a key determines its
// partition.
//
//	agent, err := cluster.Start(ctx, cluster.Config{ID: "node-1", Join: seeds})
//	if err != nil {
//		return err
//	}
//	defer agent.Leave(context.Background()) // the others take over at once
//	<-agent.Ready()
//
//	owner, err := agent.Place("room-17") // from memory, in nanoseconds
//
//	err = agent.RunOwned(ctx, func(ctx context.Context, p placement.Partition) {
//		<-ctx.Done() // until this node no longer owns p
//	})
//
// # An agent's methods
//
// Lookups: [Agent.Place] and [Agent.Owners] for a key, [Agent.IsOwner] and [Agent.Arrived] on the node that a
// request reaches, [Agent.OwnersNear] and [Agent.Subset] for replicas and tenants, [Agent.Members] and
// [Agent.Snapshot] for everything else. [Agent.Scope] returns a ring over some of the members, such as those of one role.
//
// Ownership: [Agent.RunOwned] runs a function for each partition, [Agent.Watch] and [Agent.Subscribe] deliver changes,
// and [Agent.Owned] lists what the node owns now.
//
// Lifecycle: [Agent.Ready], [Agent.Drain] and [Agent.Undrain], [Agent.Leave], [Agent.Close], [Agent.Done].
//
// What a node tells the others: [Agent.SetLoad], [Agent.SetWeight], [Agent.SetLabels], [Agent.ReportHealth].
//
// Operation, for tools such as package clusterhttp: [Agent.Cordon], [Agent.InstallKey], [Agent.UseKey], [Agent.RemoveKey],
// [Agent.SetKeys], [Agent.SetJoin], [Agent.History], [Agent.Rejections], [Agent.LoopAge], [Agent.WaitConverged].
//
// # The life of an agent
//
//	Start ─▶ joining ─▶ settling ─▶ active ⇄ draining ─▶ left
//	             ▲         │▲         ▲│
//	             │         │└─────────│┤ its clock is ahead of the cluster's
//	             │         └▶ isolated┘│
//	             │              ▲──────┤ it sees fewer than MinMembers
//	             └─────────────────────┘ its own lease expired
//
// An agent owns partitions only while it is active. It drains by command, while its application
// is unhealthy (Config.Health), while it is flapping because it came and went too often
// (Config.DisableFlapDamping), and, in the view of all members, while it is cordoned.
//
// # Guarantees
//
//  1. After the last change, all nodes hold the same table, and each partition is
//     owned by exactly one live, active node.
//  2. A join moves only partitions that the joiner now owns. A leave, a crash or a
//     drain moves only partitions of the node that goes.
//  3. The end of a process is noticed within about half a second, by the TCP connections
//     that four others hold to it; a host that vanishes, after half a LeaseTTL. Without
//     such confirmation, a lease expires LeaseTTL after the last heartbeat. A drain or leave
//     takes effect as fast as gossip spreads.
//  4. Watchers receive the difference between their last batch and the newest state.
//     A slow watcher misses intermediate states, never the newest one, and delays no
//     other watcher. A partition that was lost and regained appears as both.
//  5. In a process that was paused for longer than LeaseTTL, IsOwner returns false
//     before anything else happens. The agent releases everything and joins again.
//  6. A node with a wall clock more than MaxSkew ahead of the cluster's releases
//     everything until the clock is right. Otherwise clocks do not matter.
//  7. Lookups are lock-free reads of an immutable snapshot.
//  8. Memory is bounded, also against hostile packets.
//  9. A slow or blocked log handler only loses log lines, and delays Close by a second. A Strategy that does
//     not return loses the lease: see [Agent.LoopAge].
//
// # What gossip cannot promise
//
// Ownership converges; it is not exclusive. Two nodes may both believe that they own
// a partition, or a table may still name a node that is gone: for some hundred
// milliseconds while news spreads, for up to LeaseTTL after a network cut or an unconfirmed
// crash, and for as long as a split lasts. Handlers must be idempotent. An action that must
// not happen twice needs a lock or a fencing token from a store with consensus. In a split,
// a network partition, each side places all keys on its own nodes, unless it has fewer than
// Config.MinMembers.
//
// With Config.Handoff, a partition runs on one node at a time through all planned changes
// and after crashes. It promises nothing in a split, nor of a process that was paused.
//
// If the monotonic clock of a virtual machine stops during a pause, the node cannot
// notice the pause. It notices the changes when messages of other nodes arrive.
//
// Without Config.Key, gossip is neither secret nor authentic.
package cluster
