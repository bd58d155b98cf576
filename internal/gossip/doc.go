// Package gossip carries roost's messages between nodes. It wraps memberlist, which it
// uses for three things: UDP packets between nodes, the full exchange over TCP at a join
// and at intervals afterwards, and the rejection of nodes with another cluster name, key
// or settings. memberlist's failure detector is not used: leases decide which nodes are
// alive.
//
// It adds to memberlist:
//
//   - Names are resolved here, with a context and SRV records.
//   - Errors of a join say what to do (see Join).
//   - memberlist's log lines go to slog, a few per second at most.
//   - A guard in front of the listeners (guard.go) drops packets that no agent sends,
//     and bounds the work that unauthenticated senders can cause.
//   - The head of a stream is checked before its bytes are kept (stream.go). All streams share slots
//     and 32 MiB of memory; where these are short, some are closed (admission.go). memberlist gets a
//     message when it is complete, and with a key only if the key has sealed it (message.go).
//   - The rules of package firewall bound sources, sockets and new names, and what memberlist sends to addresses without
//     a live lease. With a key, only its holders can add names.
//   - Watch streams (watch.go) show the end of another process at once. They start with a
//     type byte of their own, and never reach memberlist.
//   - A Node can be left and closed in any order and more than once.
package gossip
