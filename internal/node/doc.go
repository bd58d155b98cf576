// Package node is the core of an agent. It makes the decisions of a node, without a goroutine, clock, socket
// or logger. A shell passes in messages, commands and the time, and carries out what [Node.Ready] returns.
// The design follows the RawNode of etcd/raft.
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
//  1. Equal seeds and equal calls give equal results, bit for bit.
//  2. [Node.Ready], [Node.Receive], [Node.Sync] and the commands first check whether the node's own lease has
//     expired. So a node that was paused for longer than its lease owns nothing before it reads a message or
//     carries out a command.
//  3. The node's own lease begins with the last heartbeat that was really sent, as reported by [Node.Sent]. A
//     node without peers need not send any.
//  4. An [OwnLease] that expired, or that a fence ended, never holds again.
//  5. A state that ends an ownership always precedes the state that begins it again.
//
// # Time
//
// The monotonic reading of now determines how old a lease is. Its wall clock is only used to measure skew.
// Time must not go backwards between calls.
//
// # What the shell does
//
// The shell begins the exchanges and lookups that Ready asks for, reports their ends ([Node.Exchanged],
// [Node.Resolved]), and limits what waits for the core. A Node is not safe for concurrent use.
package node
