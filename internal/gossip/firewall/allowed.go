package firewall

// This is the rule for sources. In v0.5.1, memberlist compares its own list of networks, Config.CIDRsAllowed,
// with the address that a node claims to have (aliveNode). memberlist checks the source of alive messages
// only (handleAlive), and only after it has read and decrypted the packet. So any source can still send
// packets and open streams, and this process reads and buffers their data. Watch streams never reach
// memberlist at all.
//
// The rule can be removed when memberlist's transport checks the source before it reads any data.

import (
	"net/netip"
	"slices"
)

// allowed is the list of networks from which packets and streams are accepted.
type allowed struct {
	networks   []netip.Prefix // empty = all
	rejections *Rejections
}

// source reports whether this node accepts data from an address. If not, source counts a rejection.
func (a *allowed) source(from netip.AddrPort, over Over) bool {
	from = netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port())
	if len(a.networks) == 0 || slices.ContainsFunc(a.networks, func(n netip.Prefix) bool { return n.Contains(from.Addr()) }) {
		return true
	}
	a.rejections.note(NotAllowed, over, from, "")
	return false
}
