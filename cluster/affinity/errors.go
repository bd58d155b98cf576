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

// Errors for use with errors.Is.
var (
	// ErrName reports a room name that CheckName rejects.
	ErrName = errors.New("affinity: invalid name")

	// ErrDemand reports a Demand that Demand.Validate rejects.
	ErrDemand = errors.New("affinity: invalid demand")

	// ErrRequire reports that no node meets Demand.Require and Config.Selector. The error that wraps it names
	// the requirement.
	ErrRequire = capacity.ErrRequire

	// ErrNoCapacity reports that the room would exceed the hard ceiling of every node, or that its reservation
	// would exceed the soft ceiling.
	ErrNoCapacity = capacity.ErrNoCapacity

	// ErrNoPin reports that the room has no pin.
	ErrNoPin = errors.New("affinity: the room is not pinned")

	// ErrNoReservation reports that nothing is reserved for the room.
	ErrNoReservation = errors.New("affinity: the room has no reservation")

	// ErrReservations reports that no more rooms can be reserved: see MaxReservations.
	ErrReservations = errors.New("affinity: too many reservations")

	// ErrNotLive reports that a node is not live, or takes no rooms.
	ErrNotLive = errors.New("affinity: node accepts no rooms")

	// ErrChanged reports that another instance, or another caller on this node, changed the room's pin.
	ErrChanged = errors.New("affinity: pin changed concurrently")

	// ErrNotOwner reports that a room lives on another node; see NotOwnerError.
	ErrNotOwner = errors.New("affinity: the room lives on another node")

	// ErrSplit reports that two nodes hosted a room, or that the room's node is alive but gossip does not
	// reach it; see NotOwnerError.
	ErrSplit = errors.New("affinity: room was hosted on two nodes")

	// ErrSettings reports that settings which must be equal on all nodes of a store differ. The error that
	// wraps it names each such setting, its value here, and another node with that node's value.
	ErrSettings = agreement.ErrSettings

	// ErrFenced reports that this node's own lease has expired, so other nodes may have taken its rooms.
	ErrFenced = cluster.ErrFenced

	// ErrLapsed reports that a hosting expired: see Hosting.LapseAfter.
	ErrLapsed = errors.New("affinity: hosting expired: idle longer than LapseAfter")

	// ErrReleased and ErrClosed report that a hosting ended on request.
	ErrReleased = errors.New("affinity: released")
	ErrClosed   = errors.New("affinity: closed")
)

// NotOwnerError reports that a room lives on another node. Use Owner.Directive to send the room's clients to
// that node. NotOwnerError matches ErrNotOwner with errors.Is, and also ErrSplit if Split is set.
type NotOwnerError struct {
	Owner Assignment

	// Split is set if this node also hosted the room while the store was unreachable, or if the owner is
	// alive in the store but dead in gossip. In the second case, gossip does not reach the owner, and this
	// node may not know the owner's address.
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

// Is makes e an ErrNotOwner and, if Split is set, an ErrSplit.
func (e *NotOwnerError) Is(target error) bool {
	return target == ErrNotOwner || (e.Split && target == ErrSplit)
}

// MaxNameBytes is the maximum length of a room's name.
const MaxNameBytes = roomname.MaxBytes

// CheckName returns nil if name is a valid room name, or else an ErrName. A name has 1 to 512 bytes of UTF-8.
// A name must not contain control characters or the characters {, } and *, which have a special meaning in
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
