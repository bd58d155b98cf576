package affinity

import (
	"errors"
	"fmt"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/agreement"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/internal/roomname"
	"github.com/roost-cluster/roost/lease"
)

// Errors that callers branch on.
var (
	// ErrName reports a room name that CheckName rejects.
	ErrName = errors.New("affinity: invalid name")

	// ErrDemand reports a Demand that Demand.Validate rejects.
	ErrDemand = errors.New("affinity: invalid demand")

	// ErrRequire reports that no node meets Demand.Require and Config.Selector. The error
	// names the requirement.
	ErrRequire = capacity.ErrRequire

	// ErrNoCapacity reports that no node can take the room below the hard ceiling.
	ErrNoCapacity = capacity.ErrNoCapacity

	// ErrNoPin reports that the room has no pin.
	ErrNoPin = errors.New("affinity: the room is not pinned")

	// ErrNotLive reports that a node is not live, or takes no rooms.
	ErrNotLive = errors.New("affinity: node takes no rooms")

	// ErrChanged reports that another instance, or another caller on this node, changed the room's pin.
	ErrChanged = errors.New("affinity: pin changed concurrently")

	// ErrNotOwner reports that a room lives on another node; see NotOwnerError.
	ErrNotOwner = errors.New("affinity: the room lives on another node")

	// ErrSplit reports that two nodes hosted a room, or that the room's node is alive
	// and cut off from this one; see NotOwnerError.
	ErrSplit = errors.New("affinity: room was hosted on two nodes")

	// ErrSettings reports that other nodes over the store have other settings, which have to be
	// equal. The error names each with both values, and a node.
	ErrSettings = agreement.ErrSettings

	// ErrFenced reports that this node's own lease has expired: other nodes may have
	// taken its rooms.
	ErrFenced = cluster.ErrFenced

	// ErrLapsed reports that a hosting expired: see Hosting.LapseAfter.
	ErrLapsed = errors.New("affinity: hosting expired: idle longer than LapseAfter")

	// ErrReleased and ErrClosed report that a hosting ended on request.
	ErrReleased = errors.New("affinity: released")
	ErrClosed   = errors.New("affinity: closed")
)

// NotOwnerError reports that a room lives elsewhere: send its clients there, by
// Owner.Directive. By
// errors.Is it is an ErrNotOwner, and an ErrSplit if Split is set.
type NotOwnerError struct {
	Owner Assignment

	// Split is set if this node hosted the room, too, without the store; or if the owner
	// is alive by the store and dead by gossip: gossip is cut, and the owner's address
	// may be unknown here.
	Split bool
}

// Error returns the node that the room lives on and the reason.
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
