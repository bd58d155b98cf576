// Package sim runs whole clusters of cores (internal/node) over a virtual network,
// in one goroutine and without a timer: a virtual minute of 100 nodes takes about a
// second. Tests of decisions belong here: which nodes are live, which node owns a
// partition, when a node publishes. The package chaos in this folder draws faults at random.
//
// A [Cluster] has a queue of events, sorted by time: arrivals of packets, deadlines of cores, ends of
// exchanges. [Cluster.Run] handles them one by one. A [Process] represents the agent around a core, with its
// address and clock. The states that it publishes are checked at once. roost sim prints the result of
// [Cluster.Measure].
//
// # Guarantees
//
//  1. Two runs with the same seed are identical, bit for bit.
//  2. Packets arrive after Delay plus a share of Jitter, or not at all. The fate of a
//     packet does not depend on cuts.
//  3. A crashed process sends and receives nothing, and its address refuses connections. A paused process
//     receives up to 2 MiB of packets, which it reads when it is resumed, and accepts connections without
//     answering.
//  4. A step of a wall clock does not change the monotonic clock of the process.
//
// # Left out
//
// memberlist is not simulated: its packets, its full exchanges every half minute, and its limits. A full
// exchange only takes its round trips, even if the states are large. Tests of package cluster run agents over
// memberlist.
package sim
