package presence

import (
	"context"
	"strings"
	"time"

	"github.com/roost-cluster/roost/placement"
)

// Room is a room and its partition. A store uses the partition to locate the room's data.
type Room struct {
	Partition placement.Partition
	Name      string // valid, see CheckName
}

// Participant is a connection to a room.
type Participant struct {
	Room Room
	Name string // valid, see CheckName
}

// Member is a participant that is in a room.
type Member struct {
	Name string
	Idle time.Duration // since the last heartbeat, by the store's clock
}

// User returns the user who owns the connection. The user is the part of the name before its last slash, or
// the whole name if it has no slash.
func (m Member) User() string {
	if i := strings.LastIndexByte(m.Name, '/'); i > 0 {
		return m.Name[:i]
	}
	return m.Name
}

// Store keeps the participants of all rooms where every node can read them. [Memory] is a Store for the nodes
// of one process, and package redisstore provides a Store for a fleet. Package affinitytest has a conformance
// suite for implementations.
//
// All times are measured by the store's clock, in milliseconds or finer. A participant is stale if its last
// heartbeat is at least as old as the duration stale. Stale participants are not counted. The store
// eventually removes stale participants, even if no call names their room again. The duration stale must be
// at least a millisecond and the same for all users of a store.
//
// All methods must be safe for concurrent use and must return no later than when ctx ends. Their errors wrap
// ErrStore. After an error, the store may have applied the change fully, partially or not at all, or may
// still apply it. Repeating a call is harmless.
type Store interface {
	// Heartbeat adds participants or renews participants that are already present. It takes one round trip
	// and O(log n) per participant, or O(log n + m) if m participants have become stale.
	Heartbeat(ctx context.Context, stale time.Duration, participants ...Participant) error

	// Leave removes participants. Removing an absent participant is not an error.
	Leave(ctx context.Context, participants ...Participant) error

	// Members returns the participants of a room, each once, in any order. Members may read the participants
	// in several steps, so that a huge room does not block the store. If a participant joins or leaves
	// between two steps, Members may or may not return it.
	Members(ctx context.Context, stale time.Duration, room Room) ([]Member, error)

	// Count returns the number of participants of each room, in the order of rooms. It takes one round trip
	// and O(log n) per room.
	Count(ctx context.Context, stale time.Duration, rooms ...Room) ([]int, error)
}
