// Package sim runs whole clusters of kernels (internal/node) over a virtual network,
// in one goroutine and without a timer: a virtual minute of 100 nodes takes about a
// second. It is the place for tests about decisions: who is live, who owns what, what
// is published when.
//
// A [Cluster] has a queue of events in the order of their time: packets that arrive,
// kernels that want to be called, exchanges that end. [Cluster.Run] takes one after the
// other. A [Process] is what surrounds a kernel elsewhere: its address, its clock, the
// attempts to join seeds. What it publishes is added up, and checked, as it happens.
//
// # Guarantees
//
//  1. Two runs of one seed are the same, bit for bit.
//  2. Packets arrive after Delay plus a share of Jitter, or not at all. The fate of a
//     packet does not depend on cuts.
//  3. A crashed process sends and receives nothing, and its address refuses
//     connections. A paused one receives up to 2 MiB of packets, reads them when it is
//     resumed, and accepts connections that it does not answer.
//
// # What is left out
//
// memberlist: its packets, its full exchanges every half minute, and its limits. A full
// exchange takes its round trips, and no more if the states are large. Tests of package
// cluster run agents over memberlist.
package sim
