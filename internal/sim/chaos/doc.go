// Package chaos only has tests. They run clusters of package sim through random schedules of faults, and
// check invariants during and after each. make chaos runs many. docs/dev/testing.md has the commands and the
// results.
//
// A seed decides everything: the cluster, the network, which kinds of faults occur, and when. Two runs with
// the same seed are identical.
//
// schedule_test.go draws a schedule, faults_test.go has the kinds of faults, and host_test.go carries them out on a
// cluster of package sim. The other files check invariants: node_test.go those of one node, sides_test.go those of nodes
// that reach each other. planted_test.go plants bugs, to see that the invariants find them.
//
// # Invariants
//
//   - events: the batches of a node, read one by one or a few at a time, add up to the
//     node's state.
//   - fence: a node that owns partitions again after its own lease ended has released
//     all of them first.
//   - owners: each node in a table is a live member.
//   - lease: no node drops another while both run and the network is calm, and the
//     schedule gives no reason.
//   - dead: a process that ended is dropped within a TTL and a margin, and does not come
//     back. A member that never ran does not appear.
//   - leave: in a calm network all nodes drop a node that left within two seconds.
//   - double: two nodes that can reach each other do not own the same partition for long.
//   - sides: some time after the last fault all nodes of a side have the same members and
//     the table that follows from them, and each partition has exactly one owner.
//   - runs: with handoff, no node begins to run a partition that another one runs, if
//     each has taken the other for live for some time and none has waited for longer than the bound. In the end
//     each node runs what it owns.
//   - wait: no run waits for longer than the bound.
//   - cordon: each cordon in force was decided, ends in time, and does not come back. All
//     nodes of a side have the same ones, which any of them has known.
//   - duplicate: in a calm network, a process that stood still when another one was started under its
//     id ends within a TTL once it runs again, and does not own what that one owns for long.
//   - awake: in a network without cuts, a node that was suspended together with its monotonic clock owns nothing
//     that a member has taken over, a second after it goes on; two seconds where packets get lost.
//   - rest: after that nothing changes, and a strategy that levels has spread the partitions evenly.
//
// A panic is a failure, too. A network is calm when, for two TTLs, no link was cut and at most
// a fifth of the packets were lost; see calm.go.
package chaos
