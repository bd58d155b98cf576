package firewall

// The rule for unconfirmed addresses. In v0.5.1, memberlist's probeNode pings each name that it hears of, at the address
// that comes with the name, and asks other nodes to ping it too. So one packet of an unauthenticated peer, or a recorded
// one, makes all nodes send dozens to an address that never asked for any.
//
// The rule can go when memberlist sends nothing to an address before that address has answered.

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/lease"
)

// What memberlist sends by itself to a host without a live lease. A node needs none of it to join: leases have packets
// of their own, which name no node.
const (
	unconfirmedBurst = 512 // bytes to one host
	unconfirmedRate  = 32  // a second, afterwards
)

// unconfirmed bounds the bytes to addresses without a live lease.
type unconfirmed struct {
	live func(addr string) bool // nil = all are

	mu    sync.Mutex
	own   netip.Addr // many agents may run on this host
	spent map[netip.Addr]allowance
}

type allowance struct {
	bytes float64 // of the burst, at the time at
	at    time.Time
}

// newUnconfirmed bounds nothing that goes to an ip:port for which live returns true; nil = to any.
func newUnconfirmed(live func(addr string) bool) *unconfirmed { return &unconfirmed{live: live} }

// allowsStream reports whether memberlist may open a stream to an address. A stream costs more than the whole burst.
func (u *unconfirmed) allowsStream(to memberlist.Address, now time.Time) bool {
	return u.allows(to, unconfirmedBurst+1, now)
}

// allows reports whether so many bytes may go to an address, and counts them. memberlist gives a name with each address
// to which it sends by itself. What roost sends goes to an address without a name, and is not bounded.
func (u *unconfirmed) allows(to memberlist.Address, bytes int, now time.Time) bool {
	at, err := netip.ParseAddrPort(to.Addr)
	if to.Name == "" || u.live == nil || err != nil || u.live(to.Addr) {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if at.Addr().Unmap() == u.own {
		return true
	}
	ip := hostOf(at.Addr())
	s := u.spent[ip].later(now)
	if s.bytes+float64(bytes) > unconfirmedBurst {
		return false
	}
	s.bytes += float64(bytes)
	u.keep(ip, s, now)
	return true
}

// later returns the spent budget at a later time.
func (a allowance) later(now time.Time) allowance {
	return allowance{max(0, a.bytes-unconfirmedRate*now.Sub(a.at).Seconds()), now}
}

// keep makes room by forgetting addresses that have their whole burst again, or, if there are
// none, all: new names are rate-limited, so that takes long.
func (u *unconfirmed) keep(ip netip.Addr, s allowance, now time.Time) {
	if u.spent == nil {
		u.spent = make(map[netip.Addr]allowance)
	}
	if len(u.spent) >= lease.MaxNodes {
		for other, s := range u.spent {
			if s.later(now).bytes == 0 {
				delete(u.spent, other)
			}
		}
		if len(u.spent) >= lease.MaxNodes {
			clear(u.spent)
		}
	}
	u.spent[ip] = s
}

// setOwn excepts the IP address of this node, because many agents may run on its host.
func (u *unconfirmed) setOwn(ip netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.own = ip.Unmap()
}
