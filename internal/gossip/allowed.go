package gossip

import (
	"net/netip"
	"slices"
)

// allowed is the list of networks that packets and streams are taken from. memberlist's own list,
// CIDRsAllowed, is read behind the guard, which has kept bytes by then, and is not known to
// watch streams.
type allowed struct {
	networks   []netip.Prefix // empty = all
	rejections *rejections
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
