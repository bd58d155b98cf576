package firewall

// The rule for sources. In v0.5.1, memberlist compares its own list of networks, Config.CIDRsAllowed, with the address
// that a node claims to have (aliveNode). It checks the source of alive messages only (handleAlive), and only after it
// has read and opened the packet. So any source can still send packets and open streams, and this process reads them and keeps
// their bytes. A watch stream never reaches memberlist at all.
//
// The rule can go when memberlist's transport compares the source before it reads a byte.

import (
	"net/netip"
	"slices"
)

// allowed is the list of networks that packets and streams are taken from.
type allowed struct {
	networks   []netip.Prefix // empty = all
	rejections *Rejections
}

// source reports whether this node reads what comes from an address, and counts what it does not read.
func (a *allowed) source(from netip.AddrPort, over Over) bool {
	from = netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port())
	if len(a.networks) == 0 || slices.ContainsFunc(a.networks, func(n netip.Prefix) bool { return n.Contains(from.Addr()) }) {
		return true
	}
	a.rejections.note(NotAllowed, over, from, "")
	return false
}
