package firewall

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/lease"
)

// Only the packets that memberlist sends by itself to addresses without a live lease are limited.
func TestUnconfirmed(t *testing.T) {
	u := newUnconfirmed(func(addr string) bool { return addr == "203.0.113.1:7946" })
	now := time.Now()
	sent := func(name, addr string, packets int) (sent int) {
		for range packets {
			if u.allows(memberlist.Address{Addr: addr, Name: name}, 100, now) {
				sent += 100
			}
		}
		return sent
	}
	for i, c := range []struct {
		name, addr string
		want       int
	}{
		{"x#1", "203.0.113.1:7946", 10_000},
		{"", "203.0.113.2:7946", 10_000},
		{"x#1", "203.0.113.2:7946", 500},
		{"y#1", "203.0.113.2:7947", 0}, // the same host
		{"x#1", "[::ffff:203.0.113.2]:7946", 0},
		{"x#1", "203.0.113.3:7946", 500},
		{"x#1", "[2001:db8::1]:7946", 500},
		{"x#1", "[2001:db8::2]:7946", 0}, // the same network
		{"x#1", "[2001:db8:0:1::1]:7946", 500},
	} {
		if got := sent(c.name, c.addr, 100); got != c.want {
			t.Errorf("%d: %d bytes to %s at %s, want %d", i, got, c.name, c.addr, c.want)
		}
	}
	now = now.Add(10 * time.Second)
	if got := sent("x#1", "203.0.113.2:7946", 100); got != 300 {
		t.Errorf("%d bytes after 10 s", got)
	}
	for i := range 3 * lease.MaxNodes {
		sent("x#1", fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), 1)
	}
	if len(u.spent) > lease.MaxNodes {
		t.Errorf("%d addresses are kept", len(u.spent))
	}
	u.live = nil
	if got := sent("x#1", "203.0.113.2:7946", 100); got != 10_000 {
		t.Errorf("%d bytes without leases", got)
	}
}
