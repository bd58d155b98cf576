// Package sim runs whole clusters of cores (internal/node) over a virtual network,
// in one goroutine and without a timer: a virtual minute of 100 nodes takes about a
// second. Tests of decisions belong here: which nodes are live, which node owns a
// partition, when a node publishes. The package chaos in this folder draws faults at random.
//
// A [Cluster] has a queue of events, sorted by time: arrivals of packets, deadlines of
// cores, ends of exchanges. [Cluster.Run] handles them one by one. A [Process] stands
// for the agent around a core: the address and the clock. The states that it
// publishes are checked at once. [Cluster.Measure] is what roost sim prints.
//
// # Guarantees
//
//  1. Two runs of one seed are the same, bit for bit.
//  2. Packets arrive after Delay plus a share of Jitter, or not at all. The fate of a
//     packet does not depend on cuts.
//  3. A crashed process sends and receives nothing, and its address refuses
//     connections. A paused one receives up to 2 MiB of packets, reads them when it is
//     resumed, and accepts connections without an answer.
//  4. A step of a wall clock leaves the monotonic clock of the process alone.
//
// # Left out
//
// memberlist: its packets, its full exchanges every half minute, and its limits. A full
// exchange takes its round trips, and no more if the states are large. Tests of package
// cluster run agents over memberlist.
package sim
