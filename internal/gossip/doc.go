// Package gossip carries roost's messages between nodes. It wraps memberlist, and uses memberlist for three
// things: to send UDP packets between nodes, to exchange full states over TCP at a join and periodically
// afterwards, and to reject nodes with a different cluster name, key or settings. It does not use
// memberlist's failure detector, because leases decide which nodes are alive.
//
// It adds the following to memberlist:
//
//   - Package gossip resolves names itself, with a context and SRV records.
//   - The errors of Node.Join say what to do.
//   - memberlist's log lines go to slog, limited to a few per second.
//   - Package firewall filters all traffic between the network and memberlist. It drops messages that no
//     agent sends, and limits the work that unauthenticated senders can cause. If the cluster has a key, only
//     holders of the key can add names.
//   - The nodes exchange a hello at the start of each memberlist stream (hello.go). So two nodes find out
//     early if they must not exchange states.
//   - Watch streams (watch.go) show immediately when another process ends. They start with their own type
//     byte, and never reach memberlist.
//   - A Node can leave and be closed in any order, and more than once.
package gossip
