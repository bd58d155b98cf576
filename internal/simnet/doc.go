// Package simnet is a network in memory: transports for memberlist that carry the
// packets and streams of a whole cluster inside one process. Tests run the cluster in a
// testing/synctest bubble, where a minute takes milliseconds, and inject loss, delay,
// cuts, crashes and pauses.
//
// A [Network] connects the [Transport]s created by [Network.Listen]. A transport stands
// for the network access of one process:
//
//	Listen           ──▶ running
//	running          ──▶ paused    Pause; Resume returns to running
//	running, paused  ──▶ crashed   Crash
//	any of these     ──▶ shut      Shutdown
//
// # Guarantees
//
//  1. No call waits for another node, except a dial (for its timeout), and a read or
//     write of a stream. The mutexes are held for a few steps, never across a channel
//     operation that could block.
//  2. It starts no goroutine. Waits are on channels and timers only, so they are
//     durable: a bubble's clock advances. Shutdown and Crash end every wait.
//  3. A packet arrives Delay plus a share of Jitter after it was sent, or is lost and
//     counted under the reason. Packets due at one instant arrive in the order in which
//     they were sent, and never inside the sender's call. The receiver gets a copy.
//  4. Each transport draws its losses and jitter from its own generator, seeded from
//     Config.Seed, its address, and the number of earlier transports on that address.
//     Every packet draws the same two numbers under any settings: the n-th packet of a
//     node has the same fate in every run with equal loss and jitter, independently of
//     other nodes and of cuts.
//  5. Sent = delivered + dropped + in flight, in [Stats], at any instant.
//  6. A stream is ordered, lossless and without delay. It has a send window as in TCP: a
//     write returns once the bytes are in the window, and a reader receives all of them
//     before the end of file.
//
// # Faults
//
//   - Cut: packets are dropped, including those in flight. Streams break (both ends fail
//     with ECONNRESET), and a dial waits for its timeout, then fails with a [net.Error]
//     with Timeout true. A one-way cut drops packets in that direction only; streams need
//     both directions, so it breaks them like a full cut.
//   - Crash: as kill -9. Packets sent before still arrive; nothing else is sent or
//     received, streams break, and a dial to the address is refused at once. The code
//     above the transport is not notified: its packets vanish without an error, so its
//     later shutdown sends no leave messages.
//   - Pause: as SIGSTOP. The kernel continues to receive: packets queue, up to 2 MiB with
//     the kernel's overhead, and dials succeed, up to the backlog, but no process reads
//     the content. Beyond these limits, packets are dropped and dials time out. Nothing
//     is sent: packets vanish, dials time out, reads and writes wait, and a close takes
//     effect after Resume. On Resume the queued packets arrive first.
//   - No listener, never or no longer: packets are dropped, and a dial fails at once with
//     ECONNREFUSED.
//
// # Not guaranteed
//
//   - Pause stops a node's network, not its goroutines: its timers continue to fire, so a
//     memberlist above suspects all other nodes during the pause, unlike a stopped
//     process.
//   - Streams have no loss and no delay. Packets have UDP's size limit (65,507 bytes), and
//     no limit of bandwidth and no fragmentation.
//   - A run can be replayed bit for bit only if the code above has the same order of
//     events, which the Go scheduler decides.
//   - A Network belongs to the bubble that first sent a packet through it.
package simnet
