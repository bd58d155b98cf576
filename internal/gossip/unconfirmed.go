package gossip

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// memberlist probes each name that it hears of, at the address that comes with it: one packet of
// an unauthenticated peer, or a recorded one, makes all nodes send dozens to an address that never asked for
// any. So what memberlist sends by itself to an address without a live lease is bounded. A
// node needs none of it to join: leases have packets of their own, which name no node.
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

// allows reports whether so many bytes may go to an address, and counts them. Addresses
// without a name are those of this package.
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
	if len(u.spent) >= maxMembers {
		for other, s := range u.spent {
			if s.later(now).bytes == 0 {
				delete(u.spent, other)
			}
		}
		if len(u.spent) >= maxMembers {
			clear(u.spent)
		}
	}
	u.spent[ip] = s
}

func (u *unconfirmed) setOwn(ip netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.own = ip.Unmap()
}
