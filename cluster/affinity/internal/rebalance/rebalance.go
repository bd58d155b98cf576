// Package rebalance decides which rooms an overloaded node moves to other nodes.
//
// A [Mover] decides when rooms have to move, and by how many units the load has to fall. An [Overload] lists the
// moves that would help, the best first. Package capacity chooses where each room goes.
//
// The package is pure: it reads no clock, and does no I/O.
package rebalance

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/lease"
)

// Rest is how long a room stays on a node after it was moved there.
const Rest = 10 * time.Minute

// Mover tracks whether a node is overloaded. A node becomes overloaded when its load exceeds High, and stays
// overloaded until its load is not above Low. Without the gap between the two, each participant who joins a
// full node would move a room.
type Mover struct {
	High, Low int           // percent of the node's capacity
	Settle    time.Duration // how long a measured load may still include rooms that have moved away

	overloaded bool
	departed   []departed // by time
}

type departed struct {
	units int64
	at    time.Time
}

// Load returns the load of a node without the rooms that have moved away. computed is the load of the rooms that
// the node hosts, and measured is what its application has measured. The greater load counts.
func (m *Mover) Load(now time.Time, computed, measured int64) int64 {
	m.departed = slices.DeleteFunc(m.departed, func(d departed) bool { return now.Sub(d.at) >= m.Settle })
	for _, d := range m.departed {
		measured -= d.units
	}
	return max(0, computed, measured)
}

// Excess returns by how many units the load of a node with a capacity of limit units is too high, or 0 if no room
// has to move.
func (m *Mover) Excess(load, limit int64) int64 {
	low := capacity.Percent(limit, m.Low)
	switch {
	case limit == 0 || load <= low:
		m.overloaded = false
	case load > capacity.Percent(limit, m.High):
		m.overloaded = true
	}
	if !m.overloaded {
		return 0
	}
	return load - low
}

// Departed records that a room has moved away, which contributed this many units to the measured load.
func (m *Mover) Departed(now time.Time, units int64) {
	if m.Settle > 0 {
		m.departed = append(m.departed, departed{units, now})
	}
}

// Room is a room on the overloaded node.
type Room struct {
	Name  string
	Units int64 // of the node's load
	Size  int   // participants
}

// Overload is what an overloaded node knows when it looks for a room to move.
type Overload struct {
	Node     lease.NodeID
	Snapshot *cluster.Snapshot
	Reserved *capacity.Reservations
	Excess   int64
	Recent   func(*cluster.Member) bool // the load of a member is known well enough for a move to it
}

// Move is a room that can move to another node. The room's units are reserved there. If the move does not
// happen, the caller must cancel the reservation.
type Move struct {
	Room     Room
	Request  capacity.Request
	To       capacity.Choice
	Reserved capacity.Reservation
}

// tried is the maximum number of rooms for which a node is looked for, because the rules of many rooms may exclude
// the nodes with headroom.
const tried = 50

// Moves returns the moves that would help, the best first. Moves calls request for the request of a room, without
// Leaves and Relief, and reserves the units of a move before it returns the move.
func (o *Overload) Moves(rooms []Room, request func(Room) capacity.Request) iter.Seq[Move] {
	return func(yield func(Move) bool) {
		if len(rooms) == 0 {
			return
		}
		leaving := func(room Room) capacity.Request {
			q := request(room)
			q.Leaves, q.Relief = []lease.NodeID{o.Node}, o.Recent
			return q
		}
		some := leaving(rooms[0]) // headroom is the same for all rooms
		most := o.Reserved.Headroom(o.Snapshot, some)
		rooms = order(rooms, o.Excess, most)
		for _, room := range rooms[:min(tried, len(rooms))] {
			if room.Units > most {
				continue
			}
			q := leaving(room)
			to, reserved, err := o.Reserved.Place(o.Snapshot, q, 1)
			if err != nil {
				continue // the room's rules exclude the nodes with headroom
			}
			if !yield(Move{room, q, to, reserved}) {
				return
			}
			most = o.Reserved.Headroom(o.Snapshot, some) // other nodes may have filled the target
		}
	}
}

// order sorts rooms by the order in which to try to move them. Few moves disturb the fewest participants, so
// the first room is the smallest room that removes the whole excess. The rooms that are too small for that
// follow, the largest first, because the fewest of them remove the excess. Of rooms with equal units, the
// room with the fewest participants comes first. order drops the rooms that exceed most, which is the
// greatest headroom of another node, and sorts in place.
func order(rooms []Room, excess, most int64) []Room {
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
