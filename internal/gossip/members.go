package gossip

import (
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// New names are admitted at nameRefill a second, after a burst of nameBurst. The burst
// lets a large cluster start at once; the rate bounds the names that an unauthenticated
// sender can invent: memberlist keeps a dead name for half a minute or longer.
const (
	nameBurst  = 1024
	nameRefill = 10
)

var (
	errName = errors.New("gossip: invalid node name")
	errFull = errors.New("gossip: member limit reached")
	errRate = errors.New("gossip: joins are rate-limited")
)

// members tracks the names in memberlist, which forgets dead nodes without a callback.
// The zero value is empty; memberlist's node lock guards it.
type members struct {
	known map[string]bool // admitted names, and whether memberlist has them as alive
	alive int
	spent float64 // of nameBurst, at the time at
	at    time.Time
}

// admit decides on a name that memberlist is about to add as alive. A new name counts
// here and not in joined: a name with incarnation 0 uses memory and never joins.
func (m *members) admit(name string, now time.Time) error {
	alive, known := m.known[name]
	switch {
	case alive:
		return nil
	case m.alive >= maxMembers:
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

func (m *members) joined(name string) {
	if !m.known[name] {
		m.alive++
	}
	m.set(name, true)
}

func (m *members) left(name string) {
	if m.known[name] {
		m.alive--
	}
	m.set(name, false)
}

// set makes room by forgetting names that are not alive. A forgotten name counts as new
// when it returns.
func (m *members) set(name string, alive bool) {
	if m.known == nil {
		m.known = make(map[string]bool)
	}
	m.known[name] = alive
	if len(m.known) > 2*maxMembers {
		maps.DeleteFunc(m.known, func(other string, alive bool) bool { return !alive && other != name })
	}
}

// validName reports whether name is a node id, "#" and an incarnation.
func validName(name string) bool {
	id, incarnation, _ := strings.Cut(name, "#")
	if len(incarnation) == 0 || len(incarnation) > 20 || strings.Trim(incarnation, "0123456789") != "" {
		return false
	}
	return lease.NodeID(id).Validate() == nil
}
