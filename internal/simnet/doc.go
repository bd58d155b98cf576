// Package simnet is a network in memory: transports for memberlist that carry the
// packets and streams of a whole cluster inside one process. Tests run the cluster in a
// testing/synctest bubble, where a minute takes milliseconds, and inject loss, delay,
// cuts, crashes and pauses. For decisions of a whole cluster, without memberlist, use
// internal/sim.
//
// A [Network] connects the [Transport]s created by [Network.Listen]. A transport represents the network
// access of one process:
//
//	Listen           ──▶ running
//	running          ──▶ paused    Pause; Resume returns to running
//	running, paused  ──▶ crashed   Crash
//	running, paused  ──▶ vanished  Vanish
//	any of these     ──▶ shut      Shutdown
//
// # Guarantees
//
//  1. No call waits for another node, except a dial (for its timeout), and a read or
//     write of a stream. The only mutex is never held during a wait.
//  2. It starts no goroutine. Waits are on channels and timers only, so they are
//     durable: a bubble's clock advances. Shutdown and Crash end every wait.
//  3. A packet arrives Delay plus a share of Jitter after it was sent, or is lost.
//     Packets due at the same instant arrive in the order in which they were sent, and never
//     inside the sender's call. The receiver gets a copy.
//  4. Each address draws its losses and jitter from its own generator. Every packet draws
//     the same two numbers, so a fault does not change the fate of later packets.
//  5. A stream is ordered, lossless and without delay. A write waits while the other end
//     has a full window of unread bytes. A reader receives all bytes before the end of
//     file.
//
// # Faults
//
//   - Cut: packets are dropped, including those in flight. Streams break (both ends fail
//     with ECONNRESET), and a dial waits for its timeout, then fails with a [net.Error]
//     with Timeout true. A one-way cut drops packets in that direction only; streams need
//     both directions, so it breaks them like a full cut. A stream with a keep-alive is
//     silent instead: an end fails with ETIMEDOUT when its keep-alive gives up, unless the
//     cut is healed before.
//   - Crash: like kill -9. Packets sent before still arrive. Nothing else is sent or received, streams break,
//     and a dial to the address is refused immediately. The code above the transport is not notified: its packets
//     vanish without an error, so its later shutdown sends no leave messages.
//   - Vanish: like a power cut of the host. Unlike after Crash, nothing answers: a dial to the address waits
//     for its timeout, and the other ends of streams are silent until their keep-alive gives up, or their
//     deadline.
//   - Reset: the streams of a node break, but new ones work.
//   - Pause: like SIGSTOP. The kernel continues to receive: up to 4,096 packets queue, and dials succeed, up
//     to the backlog, but no process reads the content. Beyond these limits, packets are dropped and dials
//     time out. Nothing is sent: packets vanish, dials time out, reads and writes wait, and a close takes
//     effect after Resume. On Resume the queued packets arrive first.
//   - No listener at an address: packets are dropped, and a dial fails immediately with
//     ECONNREFUSED.
//
// # Not guaranteed
//
//   - Pause stops a node's network, not its goroutines: its timers continue to fire, so a
//     memberlist above suspects all other nodes during the pause, unlike a stopped
//     process.
//   - A run can be replayed bit for bit only if the code above has the same order of
//     events, which the Go scheduler decides.
//   - A Network belongs to the bubble that first sent a packet through it.
package simnet
