package gossip

import (
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// New names are admitted at nameRefill a second, after a burst of nameBurst. A
// large cluster comes in at once, and what strangers invent stays countable:
// memberlist holds a dead name for half a minute or longer.
const (
	nameBurst  = 1024
	nameRefill = 10
)

var (
	errName  = errors.New("gossip: not the name of a node")
	errFull  = errors.New("gossip: too many members")
	errHurry = errors.New("gossip: too many new members at a time")
)

// members counts the names that memberlist was told, which forgets the dead
// without a word. Its zero value is empty; memberlist's node lock guards it.
type members struct {
	known map[string]bool // names admitted, and whether memberlist holds them for alive
	alive int
	spent float64 // of nameBurst, at the time of at
	at    time.Time
}

// admit judges a name that memberlist is about to hold for alive. It counts a
// new one here and not when it has joined: one of incarnation 0 takes up room
// and never joins.
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
		return errHurry
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

// set makes room by forgetting who is not alive; if such a node comes back, it
// counts as new.
func (m *members) set(name string, alive bool) {
	if m.known == nil {
		m.known = make(map[string]bool)
	}
	m.known[name] = alive
	if len(m.known) > 2*maxMembers {
		maps.DeleteFunc(m.known, func(other string, alive bool) bool { return !alive && other != name })
	}
}

// validName reports whether a name is a node's id, "#" and its incarnation.
func validName(name string) bool {
	id, incarnation, _ := strings.Cut(name, "#")
	if len(incarnation) == 0 || len(incarnation) > 20 || strings.Trim(incarnation, "0123456789") != "" {
		return false
	}
	return lease.NodeID(id).Validate() == nil
}
