package gossip

import "github.com/roost-cluster/roost/internal/gossip/firewall"

type (
	// Why is the reason for rejecting a packet or a stream.
	Why = firewall.Why
	// Rejection describes what this node rejected from one source.
	Rejection = firewall.Rejection
)

// The reasons.
const (
	WrongKey     = firewall.WrongKey
	WrongCluster = firewall.WrongCluster
	NotAllowed   = firewall.NotAllowed
)

// Rejections returns what this node rejected because of its key, its cluster or its source. For each reason,
// the result contains up to four of the latest sources over UDP and up to four over TCP, with the latest
// source first.
func (n *Node) Rejections() []Rejection { return n.rejections.All() }

// Rejected returns how many packets and streams this node rejected for a reason.
func (n *Node) Rejected(why Why) uint64 { return n.rejections.Count(why) }
