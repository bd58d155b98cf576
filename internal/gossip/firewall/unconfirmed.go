package firewall

// This is the rule for unconfirmed addresses. In v0.5.1, memberlist's probeNode pings each name that it
// receives, at the address that was sent with the name, and asks other nodes to ping it too. So a single
// packet from an unauthenticated peer, even a replayed one, makes all nodes send dozens of packets to an
// address that never asked for them.
//
// The rule can be removed when memberlist sends nothing to an address before that address has answered.

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/lease"
)

// These limits apply to packets that memberlist sends by itself to a host without a live lease. A node can
// join without such packets, because leases use their own packets, which are not limited.
const (
	unconfirmedBurst = 512 // bytes to one host
	unconfirmedRate  = 32  // bytes per second, after the burst
)

// unconfirmed limits the bytes sent to addresses without a live lease.
type unconfirmed struct {
	live func(addr string) bool // nil = all addresses are live

	mu    sync.Mutex
	own   netip.Addr // many agents may run on this host
	spent map[netip.Addr]allowance
}

type allowance struct {
	bytes float64 // how much of the burst was used up at the time at
	at    time.Time
}

// newUnconfirmed limits packets to addresses for which live returns false. If live is nil, nothing is
// limited.
func newUnconfirmed(live func(addr string) bool) *unconfirmed { return &unconfirmed{live: live} }

// allowsStream reports whether memberlist may open a stream to an address. A stream to an unconfirmed address
// is never allowed, because it costs more than the whole burst.
func (u *unconfirmed) allowsStream(to memberlist.Address, now time.Time) bool {
	return u.allows(to, unconfirmedBurst+1, now)
}

// allows reports whether the given number of bytes may be sent to an address, and counts them. memberlist
// adds a name to each address to which it sends by itself. roost's own messages go to addresses without a
// name, and are not limited.
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

// later returns the allowance at a later time.
func (a allowance) later(now time.Time) allowance {
	return allowance{max(0, a.bytes-unconfirmedRate*now.Sub(a.at).Seconds()), now}
}

// keep stores the allowance of a host. It makes room by forgetting hosts that have their whole burst available again.
// If there are none, it forgets all hosts. New names are rate-limited, so this rarely happens.
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

// setOwn exempts the IP address of this node from the limits, because many agents may run on its host.
func (u *unconfirmed) setOwn(ip netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.own = ip.Unmap()
}
