// Package cluster embeds a roost node into a Go program. The program looks up which node owns a key, and
// learns which partitions its own node acquires and releases. There is no central store.
//
// Nodes renew leases by gossip, so all nodes converge on the same set of live members. From that set, each
// node computes the same owner for each of a fixed number of partitions. The hash of a key determines its
// partition.
//
//	agent, err := cluster.Start(ctx, cluster.Config{ID: "node-1", Join: seeds})
//	if err != nil {
//		return err
//	}
//	defer agent.Leave(context.Background()) // the others take over immediately
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
// Lookups: call [Agent.Place] or [Agent.Owners] for the owners of a key. The node that receives a request
// calls [Agent.IsOwner] or [Agent.Arrived]. [Agent.OwnersNear] and [Agent.Subset] select replicas and the
// nodes of a tenant. [Agent.Members] and [Agent.Snapshot] return everything else. [Agent.Scope] returns a
// ring over some of the members, for example the members of one role.
//
// Ownership: [Agent.RunOwned] runs a function for each partition, [Agent.Watch] and [Agent.Subscribe] deliver
// changes, and [Agent.Owned] lists the partitions that the node owns now.
//
// Lifecycle: [Agent.Drain], [Agent.Undrain] and [Agent.Leave] announce a change to the other nodes, and
// [Agent.Close] stops the agent without a message. [Agent.Ready] and [Agent.Done] report that the agent is
// ready or has stopped.
//
// Announcements: the application sets what its node tells the others with [Agent.SetLoad], [Agent.SetUse],
// [Agent.SetWeight], [Agent.SetLabels] and [Agent.ReportHealth].
//
// Operation: tools such as package clusterhttp use [Agent.Cordon], [Agent.InstallKey], [Agent.UseKey],
// [Agent.RemoveKey], [Agent.SetKeys], [Agent.SetJoin], [Agent.History], [Agent.Rejections], [Agent.LoopAge]
// and [Agent.WaitConverged].
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
// An agent owns partitions only while it is active. An agent drains if you call Drain, and while its
// application is unhealthy (Config.Health). An agent also drains while its node is flapping, which means that
// the node crashed or was lost and came back too often (Config.DisableFlapDamping). All members treat a
// cordoned node as draining.
//
// # Guarantees
//
//  1. After the last change, all nodes have the same table, and each partition is owned by exactly one live,
//     active node.
//  2. If a node joins, only the partitions that it now owns move. If a node leaves, crashes or drains, only
//     the partitions of that node move.
//  3. If a process ends, other nodes notice within about half a second, because four of them keep TCP
//     connections to it. If a host vanishes, other nodes notice after half a LeaseTTL. If nothing confirms
//     that a node is gone, its lease expires LeaseTTL after the last heartbeat. A drain or leave takes effect
//     as fast as gossip spreads.
//  4. Watchers receive the difference between their last batch and the newest state. A slow watcher can miss
//     intermediate states, but it always gets the newest state, and it delays no other watcher. A partition
//     that was lost and regained appears as both released and acquired.
//  5. In a process that was paused for longer than LeaseTTL, IsOwner returns false before anything else
//     happens. The agent releases everything and joins again.
//  6. If the wall clock of a node is more than MaxSkew ahead of the cluster's, the node releases everything
//     until its clock is right. Otherwise clocks do not matter.
//  7. Lookups are lock-free reads of an immutable snapshot.
//  8. Memory is bounded, even if an attacker sends packets.
//  9. If a log handler is slow or blocked, the agent only loses log lines, and Close takes up to a second
//     longer. If a Strategy does not return, the node loses its lease: see [Agent.LoopAge].
//
// # What gossip cannot promise
//
// Ownership converges, but it is not exclusive. Two nodes may both believe that they own a partition, or a
// table may still name a node that has ended. Such a state lasts a few hundred milliseconds while a change
// spreads, and up to LeaseTTL after a network failure or an unconfirmed crash. During a split (a network
// partition), the nodes disagree until the split ends. Handlers must be idempotent. An action that must not
// happen twice needs a lock or a fencing token from a store with consensus. In a split, each side with at
// least Config.MinMembers members assigns all keys to its own nodes.
//
// With Config.Handoff, a partition runs on one node at a time during planned changes and after crashes.
// Handoff guarantees nothing during a split, or if a process was paused.
//
// If the monotonic clock of a virtual machine stops during a pause, the node cannot notice the pause. The
// node learns what changed when messages from other nodes arrive.
//
// Without Config.Key, gossip is not encrypted or authenticated.
package cluster
