// Package simnet is a network in memory: transports for memberlist that carry
// the packets and streams of a whole cluster inside one process, so that tests
// can run it in a testing/synctest bubble, where a minute takes milliseconds,
// and can lose, delay, cut, kill and stop what they like.
//
// A [Network] connects the [Transport]s made by [Network.Listen]. A transport
// is what one process has of the network, and it lives as follows:
//
//	Listen           ──▶ running
//	running          ──▶ paused    Pause, and back by Resume
//	running, paused  ──▶ crashed   Crash
//	any of these     ──▶ shut      Shutdown
//
// # What it guarantees
//
//  1. No call waits for another node, except a dial (for its timeout), and a
//     read or write of a stream. The mutexes are held for a few steps, never
//     across a channel operation that could block.
//  2. It starts no goroutine. Waiting is on channels and timers only, hence
//     durable: a bubble's clock advances. Shutdown and Crash end every wait.
//  3. A packet arrives Delay, plus a share of Jitter, after it was sent, or is
//     lost and counted under the reason. Packets due at one instant arrive in
//     the order in which they were sent. They never arrive inside the sender's
//     call. The receiver gets a copy.
//  4. Each transport draws its losses and jitter from its own generator, seeded
//     from Config.Seed, its address and how often that address was listened on.
//     Every packet draws the same two numbers, whatever the settings: the n-th
//     packet of a node meets the same fate in every run, whatever other nodes
//     do and whatever is cut, as long as loss and jitter are the same.
//  5. Sent = delivered + dropped + in flight, in [Stats], at any instant.
//  6. A stream is ordered, lossless and without delay, with a send window as
//     TCP has it: a write returns once the bytes are under way, and a reader
//     sees them all before the end of file.
//
// # What the faults do
//
//   - Cut: packets are dropped, those in flight too. Streams break (both ends
//     fail with ECONNRESET), and a dial waits for its timeout, then fails with
//     a [net.Error] whose Timeout is true. A cut of one direction stops packets
//     that way only; streams need both, so they fare as in a full cut.
//   - Crash: as kill -9. What had left before still arrives; nothing else goes in
//     or out, streams break, a dial to the address is refused at once. The code
//     above the transport does not know: its packets vanish without an error, so
//     that it can be shut down later without anybody hearing its farewells.
//   - Pause: as SIGSTOP. Its kernel goes on receiving: packets queue, up to 2 MiB
//     as it counts them, and dials succeed, up to the backlog, but nothing reads
//     what they carry. Beyond that, packets are dropped and dials time out.
//     Nothing goes out: packets vanish, dials time out, reads and writes wait, a
//     close shows only later. On Resume the queued packets come first.
//   - Nobody listening (never, or no longer): packets are dropped, a dial fails at
//     once with ECONNREFUSED.
//
// # What it does not promise
//
//   - Pause stops a node's network, not its goroutines: its timers go on firing,
//     so that a memberlist above suspects everyone meanwhile, as a stopped
//     process would not.
//   - Streams know neither loss nor delay, and packets no size limit other than
//     that of UDP (65,507 bytes), no bandwidth, no fragmentation.
//   - Replaying a run bit for bit also takes the same order of events in the
//     code above, which the Go scheduler decides.
//   - A Network belongs to the bubble that first sent through it.
package simnet
