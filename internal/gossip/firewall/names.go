package firewall

// This is the rule for names. In v0.5.1, memberlist's aliveNode keeps every name that any sender makes up,
// with an address of any length. memberlist only forgets a dead name after GossipToTheDeadTime, which is
// between 15 s and a minute. So a few packets per second fill the memory and the member list of every node.
//
// The rule can be removed when memberlist limits the size of its list, the rate of new names and the length
// of addresses.

import (
	"errors"
	"maps"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/lease"
)

// New names are admitted at a rate of nameRefill per second, after a burst of nameBurst names. The burst lets all nodes
// of a large cluster start at the same time. The rate limits how many names an unauthenticated sender can make up.
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

// Names tracks which names memberlist keeps, because memberlist forgets dead nodes without a callback. The
// zero value is empty. Calls must not be concurrent. memberlist makes them while it holds its node lock.
type Names struct {
	known map[string]bool // admitted names, and whether they are alive in memberlist
	alive int
	spent float64 // how much of nameBurst was used up at the time at
	at    time.Time
}

// Admit decides whether memberlist may add a name as alive. It returns an error if there are already
// lease.MaxNodes names, or if too many new names arrive per second. A new name is counted by Admit and not by
// Joined, because a name with incarnation 0 uses memory but never joins.
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

// Joined records that a name is alive in memberlist.
func (m *Names) Joined(name string) {
	if !m.known[name] {
		m.alive++
	}
	m.set(name, true)
}

// Left records that a name is dead in memberlist.
func (m *Names) Left(name string) {
	if m.known[name] {
		m.alive--
	}
	m.set(name, false)
}

// set records whether a name is alive. It makes room by forgetting names that are not alive. If such a name returns, it
// is counted as a new name.
func (m *Names) set(name string, alive bool) {
	if m.known == nil {
		m.known = make(map[string]bool)
	}
	m.known[name] = alive
	if len(m.known) > 2*lease.MaxNodes {
		maps.DeleteFunc(m.known, func(other string, alive bool) bool { return !alive && other != name })
	}
}

// Check returns an error if a node has an invalid name, or an address that is not an IP address. Agents never
// announce such nodes. memberlist would keep an invalid address of up to 64 KiB.
func Check(n *memberlist.Node) error {
	if !validName(n.Name) {
		return errName
	}
	if len(n.Addr) != net.IPv4len && len(n.Addr) != net.IPv6len {
		return errAddr
	}
	return nil
}

// validName reports whether name consists of a node id, "#" and an incarnation.
func validName(name string) bool {
	id, incarnation, _ := strings.Cut(name, "#")
	if len(incarnation) == 0 || len(incarnation) > 20 || strings.Trim(incarnation, "0123456789") != "" {
		return false
	}
	return lease.NodeID(id).Validate() == nil
}
