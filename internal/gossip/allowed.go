package gossip

import (
	"net/netip"
	"slices"
	"sync/atomic"
)

// allowed is the list of networks that packets and streams are taken from. memberlist's own list,
// CIDRsAllowed, is read behind the guard, which has kept bytes by then, and is not known to
// watch streams.
type allowed struct {
	networks []netip.Prefix // empty = all
	refused  atomic.Uint64
}

// source reports whether this node reads what comes from an address, and counts what it does not read.
func (a *allowed) source(from netip.Addr) bool {
	from = from.Unmap().WithZone("")
	if len(a.networks) == 0 || slices.ContainsFunc(a.networks, func(n netip.Prefix) bool { return n.Contains(from) }) {
		return true
	}
	a.refused.Add(1)
	return false
}
