package presence

import (
	"context"
	"strings"
	"time"

	"github.com/roost-cluster/roost/placement"
)

// Room is a room and its partition, with which a store locates the room's data.
type Room struct {
	Partition placement.Partition
	Name      string // valid, see CheckName
}

// Participant is a connection to a room.
type Participant struct {
	Room Room
	Name string // valid, see CheckName
}

// Member is a participant who is in a room.
type Member struct {
	Name string
	Idle time.Duration // since the last heartbeat, by the store's clock
}

// User returns the user who owns the connection: the name up to its last slash, or
// the whole name if it has none.
func (m Member) User() string {
	if i := strings.LastIndexByte(m.Name, '/'); i > 0 {
		return m.Name[:i]
	}
	return m.Name
}

// Store keeps the participants of all rooms where every node can read them:
// [Memory] for the nodes of one process, package redisstore for a fleet. Package
// affinitytest has a conformance suite for implementers.
//
// All time is the store's, in milliseconds or finer. A participant is stale if its last heartbeat was the
// duration stale ago or longer. Stale participants are not counted, and are removed some time later even if
// no call names their room again. stale is at least a millisecond, and must be the same for all users of a
// store.
//
// All methods must be safe for concurrent use, and return when ctx ends at the latest. Their errors are
// ErrStore. After an error, the change may have happened in part, in whole or not at all, or may still
// happen. Repeating a call is harmless.
type Store interface {
	// Heartbeat adds participants, or renews present ones. It takes one round trip, and O(log n) per
	// participant, or O(log n + m) if m have become stale.
	Heartbeat(ctx context.Context, stale time.Duration, participants ...Participant) error

	// Leave removes participants. Removing an absent one is no error.
	Leave(ctx context.Context, participants ...Participant) error

	// Members returns the participants of a room, each once, in any order. It may read them in several steps,
	// so that a huge room does not block the store. Participants who come or leave in between may or may not
	// be returned.
	Members(ctx context.Context, stale time.Duration, room Room) ([]Member, error)

	// Count returns the number of participants of each room, in the order of rooms. It takes one round trip,
	// and O(log n) per room.
	Count(ctx context.Context, stale time.Duration, rooms ...Room) ([]int, error)
}
