// Package chaos only has tests. They run clusters of package sim through random schedules of faults, and
// check invariants during and after each schedule. make chaos runs many schedules. docs/dev/testing.md has the commands and the
// results.
//
// A seed decides everything: the cluster, the network, which kinds of faults occur, and when. Two runs with
// the same seed are identical.
//
// schedule_test.go draws a schedule, faults_test.go has the kinds of faults, and host_test.go causes the faults in a
// cluster of package sim. The other files check invariants. For example, node_test.go has the invariants of a single
// node, and sides_test.go has the invariants of nodes that reach each other. audit_test.go shows the same runs to package
// auditor, a second judge that shares no code with roost. planted_test.go plants bugs, to see that both judges find them.
//
// # Invariants
//
//   - events: the batches of a node, read one by one or a few at a time, add up to the
//     node's state.
//   - fence: a node that owns partitions again after its own lease ended has released
//     all of them first.
//   - owners: each node in a table is a live member.
//   - lease: no node drops another node while both run, the network is calm, and the schedule gives no reason.
//   - dead: a process that ended is dropped within a TTL plus a margin, and does not come
//     back. A member that never ran does not appear.
//   - leave: in a calm network, all nodes drop a node within two seconds after it left.
//   - double: two nodes that can reach each other do not own the same partition for long.
//   - sides: some time after the last fault, all nodes of a side have the same members and
//     the table that follows from these members, and each partition has exactly one owner.
//   - runs: with handoff, no node begins to run a partition while another node runs it, if the two have seen each
//     other as live for some time and neither has waited for longer than the bound. In the end, each node runs
//     what it owns.
//   - wait: no run waits for longer than the bound.
//   - cordon: each cordon in force was decided, ends in time, and does not come back. All
//     nodes of a side know the same cordons, including every cordon that one of them has known.
//   - duplicate: in a calm network, if another process is started under the id of a paused process, the paused
//     process ends within a TTL after it continues, and only briefly owns what the other process owns.
//   - awake: in a network without cuts, if a node was suspended and its monotonic clock stood still, it owns nothing
//     that a member has taken over, one second after it continues, or two seconds if packets get lost.
//   - rest: after that, nothing changes, and a strategy that evens out partitions over time has done so.
//
// A panic is a failure, too. A network is calm if, for two TTLs, no link was cut and at most
// a fifth of the packets were lost. See calm_test.go.
package chaos
