// Package gossip carries roost's messages between nodes. It wraps memberlist,
// which it uses for three things: UDP packets between nodes, the full exchange
// over TCP when a node joins (and now and then afterwards), and the refusal of
// nodes that belong to another cluster, hold another key or run with other
// settings. memberlist's opinion on who is alive is not used: leases decide.
//
// What it adds around memberlist:
//
//   - Names are resolved here, with a context, SRV records included.
//   - Failures to join say what to do (see Join).
//   - memberlist's log lines go through slog, at most a few a second.
//   - A guard before its listeners (guard.go) drops what nobody here sends and
//     bounds what strangers can make it do.
//   - What incoming streams announce, and how fast new names come in, is bounded
//     (stream.go, members.go). With a key, only holders of the key get that far.
//   - It can be left and closed in any order and more than once.
package gossip
