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
//   - Package firewall stands between the network and memberlist. It drops what no agent sends, and bounds the work that
//     unauthenticated senders can cause. With a key, only its holders can add names.
//   - A hello comes first on each stream of memberlist (hello.go). So two nodes learn early why they should not exchange states.
//   - Watch streams (watch.go) show the end of another process at once. They start with a
//     type byte of their own, and never reach memberlist.
//   - A Node can be left and closed in any order and more than once.
package gossip
