// Package auditor judges a fleet from outside. It knows what a test harness did to the nodes, and what the nodes answer
// over HTTP and report to their applications. Its rules follow docs/guarantees.md and docs/concepts.md, with looser limits.
// It imports no other package of roost, so a mistake in roost cannot hide itself here.
//
// A harness calls [Auditor.Observe] regularly. Each rule that does not hold adds an [Objection] with a sentence.
//
// # Rules
//
// What a node tells its application:
//
//   - sum: the batches of a watcher add up to what the node owns, also for a watcher that reads seldom.
//   - reason: a member leaves with the reason "left" if and only if it was told to leave.
//   - fence: a node that was paused for longer than its lease, or counts a fence, has released everything.
//   - awake: a node whose host was suspended releases what other nodes have taken over, within a second or two.
//   - idle: a node owns nothing if it is draining, unhealthy, without weight, or not active yet.
//   - runs: with handoff, no two nodes run the same partition.
//   - wait: no node waits longer than the handoff's timeout to run a partition.
//
// Which members a node has:
//
//   - alive: no node loses another node if both run and nothing has disturbed them.
//   - gone: a process that ended, left or hangs does not stay a member, and does not come back. A node that fences
//     itself loses it in the fence, and may take it back while its lease lasts.
//   - invented: each member is a process that has run.
//   - cordon: nodes obey operators who cordon a node. A cordon ends in time, and stays ended.
//   - twin: of two processes with the same id, the earlier process ends soon, and owns nothing soon.
//
// Who owns what:
//
//   - table: nodes with the same candidates have the same table, and each candidate is a member.
//   - movement: a partition only moves from a node that has lost weight or gone, or to one that has gained weight or is new.
//   - double: in a fleet at peace, two nodes soon stop owning the same partition.
//   - agree: some time after the last fault, all nodes that reach each other see each other. Each partition has one
//     owner. Exactly the nodes that may own partitions are candidates.
//   - shares: the numbers of partitions follow the weights.
//   - rest: after that, nothing changes.
//
// Two nodes are at peace if, for two TTLs, the harness gave neither a reason to lose the other, and neither found out
// that its host had been suspended. See peace.go.
package auditor
