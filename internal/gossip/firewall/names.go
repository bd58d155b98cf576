package firewall

// The rule for names. In v0.5.1, memberlist's aliveNode keeps every name that any sender invents, with an address of
// any length, and forgets a dead name only after GossipToTheDeadTime: 15 s to a minute. So a few packets a second fill
// the memory and the list of every node.
//
// The rule can go when memberlist bounds its list, the rate of new names and the length of addresses.

import (
	"errors"
	"maps"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/lease"
)

// New names are admitted at nameRefill a second, after a burst of nameBurst. The burst lets a large cluster start at
// once. The rate bounds the names that an unauthenticated sender can invent.
const (
	nameBurst  = 1024
	nameRefill = 10
)

var (
	errName = errors.New("gossip: invalid node name")
	errAddr = errors.New("gossip: not an IP address")
	errFull = errors.New("gossip: member limit reached")
	errRate = errors.New("gossip: joins are rate-limited")
)

// Names tracks the names in memberlist, which forgets dead nodes without a callback. The zero value is empty. Calls
// must not be concurrent: memberlist makes them under its node lock.
type Names struct {
	known map[string]bool // admitted names, and whether memberlist has them as alive
	alive int
	spent float64 // of nameBurst, at the time at
	at    time.Time
}

// Admit decides on a name that memberlist is about to add as alive. It returns an error if there are lease.MaxNodes
// already, or if names come too fast. A new name counts here and not in Joined: a name with incarnation 0 uses memory and never joins.
func (m *Names) Admit(name string, now time.Time) error {
	alive, known := m.known[name]
	switch {
	case alive:
		return nil
	case m.alive >= lease.MaxNodes:
		return errFull
	case known:
		return nil
	}
	m.spent = max(0, m.spent-nameRefill*now.Sub(m.at).Seconds())
	m.at = now
	if m.spent+1 > nameBurst {
		return errRate
	}
	m.spent++
	m.set(name, false)
	return nil
}

// Joined notes that memberlist has a name as alive.
func (m *Names) Joined(name string) {
	if !m.known[name] {
		m.alive++
	}
	m.set(name, true)
}

// Left notes that memberlist has a name as dead.
func (m *Names) Left(name string) {
	if m.known[name] {
		m.alive--
	}
	m.set(name, false)
}

// set makes room by forgetting names that are not alive. A forgotten name counts as new
// when it returns.
func (m *Names) set(name string, alive bool) {
	if m.known == nil {
		m.known = make(map[string]bool)
	}
	m.known[name] = alive
	if len(m.known) > 2*lease.MaxNodes {
		maps.DeleteFunc(m.known, func(other string, alive bool) bool { return !alive && other != name })
	}
}

// Check returns an error for a node that no agent would be: with a name of another form, or with an address that is
// not an IP address. memberlist would keep 64 KiB of such an address.
func Check(n *memberlist.Node) error {
	if !validName(n.Name) {
		return errName
	}
	if len(n.Addr) != net.IPv4len && len(n.Addr) != net.IPv6len {
		return errAddr
	}
	return nil
}

// validName reports whether name is a node id, "#" and an incarnation.
func validName(name string) bool {
	id, incarnation, _ := strings.Cut(name, "#")
	if len(incarnation) == 0 || len(incarnation) > 20 || strings.Trim(incarnation, "0123456789") != "" {
		return false
	}
	return lease.NodeID(id).Validate() == nil
}
