package affinity

import (
	"errors"
	"fmt"

	"github.com/roost-cluster/roost/internal/roomname"
	"github.com/roost-cluster/roost/lease"
)

// Errors that callers branch on.
var (
	// ErrName reports a room name that CheckName rejects.
	ErrName = errors.New("affinity: invalid name")

	// ErrDemand says that a room's size is not one.
	ErrDemand = errors.New("affinity: invalid size")

	// ErrNoCapacity says that no node can take the room below the hard ceiling.
	ErrNoCapacity = errors.New("affinity: no node has the capacity")

	// ErrNoPin says that the room has no pin.
	ErrNoPin = errors.New("affinity: the room is not pinned")

	// ErrNotLive says that a node is not a live one that takes rooms.
	ErrNotLive = errors.New("affinity: no such node takes rooms")

	// ErrChanged says that the room's pin was changed by somebody else meanwhile.
	ErrChanged = errors.New("affinity: the pin was changed meanwhile")

	// ErrStore says that the store did not answer, so nothing is known.
	ErrStore = errors.New("affinity: the store does not answer")

	// ErrNotOwner says that a room lives on another node; see NotOwnerError.
	ErrNotOwner = errors.New("affinity: the room lives on another node")

	// ErrSplit says that two nodes took themselves for a room's, or that the
	// room's node is alive but cut off from this one; see NotOwnerError.
	ErrSplit = errors.New("affinity: split")

	// ErrFenced says that this node's own lease does not hold: others may have
	// given its rooms away.
	ErrFenced = errors.New("affinity: this node's lease has run out")

	// ErrLapsed says that a hosting lapsed because nobody touched it.
	ErrLapsed = errors.New("affinity: not touched for too long")

	// ErrReleased and ErrClosed say that a hosting ended as it was asked to.
	ErrReleased = errors.New("affinity: released")
	ErrClosed   = errors.New("affinity: closed")
)

// NotOwnerError says that a room lives elsewhere: send its clients there. By
// errors.Is it is an ErrNotOwner, and an ErrSplit if Split is set.
type NotOwnerError struct {
	Owner Assignment

	// Split is set if this node hosted the room too, while it could not ask the
	// store, or if the owner is alive by the store and dead by gossip: then
	// gossip is cut, and the owner's address may be unknown here.
	Split bool
}

// Error says which node the room lives on and why.
func (e *NotOwnerError) Error() string {
	text := fmt.Sprintf("affinity: room %q lives on %s: %s", e.Owner.Room, e.Owner.Node, e.Owner.Reason)
	if e.Split {
		text += " (split)"
	}
	return text
}

// Is makes e an ErrNotOwner, and an ErrSplit.
func (e *NotOwnerError) Is(target error) bool {
	return target == ErrNotOwner || (e.Split && target == ErrSplit)
}

// MaxNameBytes bounds the name of a room.
const MaxNameBytes = roomname.MaxBytes

// CheckName returns an ErrName unless name can name a room: 1 to 512 bytes of
// UTF-8 without control characters and without { } and *, which have a meaning in
// the keys and patterns of stores.
func CheckName(name string) error {
	if err := roomname.Check(name); err != nil {
		return fmt.Errorf("%w: %w", ErrName, err)
	}
	return nil
}

func notLive(id lease.NodeID, why string) error {
	return fmt.Errorf("%w: %s: %s", ErrNotLive, id, why)
}

// storeError makes err an ErrStore.
func storeError(err error) error { return fmt.Errorf("%w: %w", ErrStore, err) }

var errTTL = errors.New("a pin needs a TTL of a millisecond or more")
