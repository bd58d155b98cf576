package affinity

import (
	"context"
	"strings"
	"time"

	"github.com/roost-cluster/roost/placement"
)

// RoomRef is a room with its partition, which tells a store where the room's data
// lie.
type RoomRef struct {
	Partition placement.Partition
	Room      string // valid, see CheckName
}

// Seat is a participant's place in a room.
type Seat struct {
	Partition   placement.Partition // of the room
	Room        string
	Participant string // a connection, see Presence; valid, see CheckName
}

// Ref returns the room of s.
func (s Seat) Ref() RoomRef { return RoomRef{s.Partition, s.Room} }

// Occupant is a participant who is in a room.
type Occupant struct {
	Participant string
	Idle        time.Duration // since the last heartbeat, by the store's clock
}

// User is the user whose connection o is: the participant's name up to its last
// slash, or all of it if it has none.
func (o Occupant) User() string {
	if i := strings.LastIndexByte(o.Participant, '/'); i > 0 {
		return o.Participant[:i]
	}
	return o.Participant
}

// PresenceStore keeps who is in which room where every instance can read it:
// [MemoryPresence] for the instances of one process, package redisstore for a
// fleet. Package affinitytest has a conformance suite for implementers.
//
// All time is the store's, in milliseconds or finer. A seat is stale once its last
// beat was stale or longer ago: exactly stale is stale. Stale seats count for
// nobody, and are removed in time whether or not anybody asks for their room.
// stale is at least a millisecond, and the same for all users of a store.
//
// All methods may be called from any goroutine, and return when ctx ends at the
// latest. Their errors are ErrStore; after one, what was asked for may have
// happened in part, in whole, not at all, or may yet happen. Calls that repeat do
// no harm.
type PresenceStore interface {
	// Beat adds the seats, or refreshes those that are there. It takes one round
	// trip, and for a room O(log n) a seat, O(log n + m) if m have become stale.
	Beat(ctx context.Context, stale time.Duration, seats ...Seat) error

	// Leave removes the seats; those that are not there are no fault.
	Leave(ctx context.Context, seats ...Seat) error

	// Members returns who is in a room, in any order.
	Members(ctx context.Context, stale time.Duration, room RoomRef) ([]Occupant, error)

	// Count returns how many are in each room, in the order of rooms. It takes one
	// round trip, and O(log n) a room.
	Count(ctx context.Context, stale time.Duration, rooms ...RoomRef) ([]int, error)
}
