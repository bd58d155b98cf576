package affinity

import (
	"fmt"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Demand is what a room needs.
type Demand struct {
	// Size is the present or expected number of participants, up to MaxSize; 0 if it is
	// not known. It decides where a new room goes, and moves no room.
	Size int
}

// MaxSize bounds the participants of a room.
const MaxSize = 1_000_000

func checkSize(size int) error {
	if size < 0 || size > MaxSize {
		return fmt.Errorf("%w: %d participants; it must be 0 to %d", ErrDemand, size, MaxSize)
	}
	return nil
}

// Assignment says where a room lives.
type Assignment struct {
	Room              string
	Partition         placement.Partition
	lease.Incarnation        // of the node
	Epoch             uint64 // grows with each move of the room, for fencing; 0 if degraded
	Source            Source
	Reason            string // for people

	// Member is the node as last known here; nil if it is not known.
	Member *cluster.Member
}

// String returns where the room lives and the reason.
func (a Assignment) String() string {
	return fmt.Sprintf("%q on %s (epoch %d, %s): %s", a.Room, a.Incarnation, a.Epoch, a.Source, a.Reason)
}

// Source is the origin of an assignment.
type Source uint8

// The sources, in the order in which Resolve tries them.
const (
	Cached   Source = iota + 1 // by a cached pin, without a round trip
	Pinned                     // by a pin in the store
	Hash                       // pinned now, to the owner of the room's partition
	Override                   // pinned now, to another node that has headroom
	Degraded                   // the store did not answer: the best guess of this node
)

// String returns "cached", "pinned", "hash", "override" or "degraded".
func (s Source) String() string {
	switch s {
	case Cached:
		return "cached"
	case Pinned:
		return "pinned"
	case Hash:
		return "hash"
	case Override:
		return "override"
	case Degraded:
		return "degraded"
	}
	return fmt.Sprintf("source %d", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (s *Source) UnmarshalText(b []byte) error {
	for source := Cached; source <= Degraded; source++ {
		if source.String() == string(b) {
			*s = source
			return nil
		}
	}
	return fmt.Errorf("affinity: no source %.20q", b)
}
