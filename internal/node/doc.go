// Package node is the core of an agent. It makes the decisions of a node, but uses no goroutine, clock,
// socket or logger. A shell passes messages, commands and the time to it, and carries out what [Node.Ready]
// returns. The design follows the RawNode of etcd/raft.
//
//	for {
//		wait for a message, a command or the time ready.Next
//		n.Receive(now, message) // or a command, or nothing
//		ready = n.Ready(now)
//		replace the snapshot if ready.Show, publish ready.State, send ready.Packets, …
//	}
//
// # Guarantees
//
//  1. Equal seeds and equal calls produce identical results.
//  2. [Node.Ready], [Node.Receive], [Node.Sync] and the commands first check whether the node's own lease has
//     expired. So a node that was paused for longer than its lease owns nothing by the time it reads a
//     message or carries out a command.
//  3. The node's own lease starts with the last heartbeat that was actually sent, as reported by [Node.Sent].
//     A node without peers does not need to send heartbeats to keep its lease.
//  4. An [OwnLease] that has expired, or that a fence has ended, never becomes valid again.
//  5. Before a state lets this node own a partition again, an earlier state has ended its previous ownership.
//
// # Time
//
// The age of a lease is measured with the monotonic clock. The wall clock is only used to measure skew. Time
// must not go backwards between calls.
//
// # What the shell does
//
// The shell starts the exchanges and lookups that Ready requests, reports when they finish ([Node.Exchanged],
// [Node.Resolved]), and bounds the queue of messages for the core. A Node is not safe for concurrent use.
package node
