// Package rebalance decides which rooms an overloaded node moves to other nodes.
//
// A [Mover] decides when rooms have to move, and by how many units the load has to fall. [Order] sorts the
// rooms of the node by how well their move would help. Package capacity chooses where each room goes.
//
// The package is pure: it reads no clock, and calls nothing.
package rebalance

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// Rest is how long a room stays on a node after it was moved there.
const Rest = 10 * time.Minute

// Mover tracks whether a node is overloaded. A node becomes overloaded when its load exceeds High, and stays
// overloaded until its load is not above Low. Without the gap between the two, each participant who joins a
// full node would move a room.
type Mover struct {
	High, Low int           // percent of the node's capacity
	Settle    time.Duration // how long the reported load may still include rooms that have moved away

	overloaded bool
	departed   []departed // by time
}

type departed struct {
	units int64
	at    time.Time
}

// Excess returns by how many units the load of the node is too high, or 0 if no room has to move.
func (m *Mover) Excess(now time.Time, load, capacity int64) int64 {
	m.departed = slices.DeleteFunc(m.departed, func(d departed) bool { return now.Sub(d.at) >= m.Settle })
	for _, d := range m.departed {
		load -= d.units
	}
	low := percent(capacity, m.Low)
	switch {
	case capacity == 0 || load <= low:
		m.overloaded = false
	case load > percent(capacity, m.High):
		m.overloaded = true
	}
	if !m.overloaded {
		return 0
	}
	return load - low
}

// Departed records that a room has moved away.
func (m *Mover) Departed(now time.Time, units int64) {
	if m.Settle > 0 {
		m.departed = append(m.departed, departed{units, now})
	}
}

// percent returns share percent of n, which must not be negative.
func percent(n int64, share int) int64 {
	const whole = 100
	high, low := bits.Mul64(uint64(n), uint64(share))
	if high >= whole {
		return n // share is above 100, so n is the smaller of the two
	}
	part, _ := bits.Div64(high, low, whole)
	return int64(min(part, 1<<63-1))
}

// Room is a room on the overloaded node.
type Room struct {
	Name  string
	Units int64 // of load
	Size  int   // participants
}

// Order sorts rooms by the order in which to try to move them. Few moves disturb the fewest participants, so
// the first room is the smallest room that removes the whole excess. The rooms that are too small for that
// follow, the largest first, because the fewest of them remove the excess. Of rooms with equal units, the
// room with the fewest participants comes first. Order drops the rooms that exceed most, which is the
// greatest headroom of another node, and sorts in place.
func Order(rooms []Room, excess, most int64) []Room {
	rooms = slices.DeleteFunc(rooms, func(r Room) bool { return r.Units > most || r.Units <= 0 })
	slices.SortFunc(rooms, func(a, b Room) int {
		enough, enoughToo := a.Units >= excess, b.Units >= excess
		bySize := cmp.Compare(a.Units, b.Units)
		switch {
		case enough && !enoughToo:
			return -1
		case enoughToo && !enough:
			return 1
		case !enough:
			bySize = -bySize
		}
		return cmp.Or(bySize, cmp.Compare(a.Size, b.Size), cmp.Compare(a.Name, b.Name))
	})
	return rooms
}
