package affinity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// Pin pins a room to the given node if it has no pin or its pin names a dead node, and returns where the room
// lives. All concurrent callers, on any node, get the same answer. Check the returned Assignment, because the
// room may live on another node. To move the room, call Move. The hard ceiling of the node applies to the
// room's demand plus all rooms that any instance has placed there. Demand.Require and Config.Selector do not
// restrict Pin.
//
// Pin takes one round trip to the store, and up to three more if the room's existing pin names a node that
// has just died. If the store does not answer within Config.Budget, Pin fails with ErrStore, and the room may
// or may not be pinned to the node.
//
// Two errors only occur if the room does not live on any node yet. Pin fails with ErrNotLive if the given
// node is unknown, has left, or takes no rooms because it is draining, is settling or has weight 0. Pin fails
// with ErrNoCapacity if the room would exceed the given node's hard ceiling. Other errors are ErrName,
// ErrDemand, ErrChanged, ErrSettings, ErrFenced, ErrClosed and the errors of Agent.Place.
func (r *Resolver) Pin(ctx context.Context, room string, node lease.NodeID, d Demand) (Assignment, error) {
	if err := check(room, d); err != nil {
		return Assignment{}, err
	}
	ctx, cancel := r.store.Bounded(ctx)
	defer cancel()
	var void pinstore.Pin // pin that the claim replaces
	for range maxAttempts {
		t := settling{Resolver: r, void: void}
		if err := t.begin(room, question{need: needOf(d)}); err != nil {
			return Assignment{}, err
		}
		got, err := t.pin(ctx, node)
		switch {
		case err == nil:
			return r.assign(t.s, room, got.pin, got.source, got.reason), nil
		case !errors.Is(err, errVoid):
			return Assignment{}, err
		}
		void = t.void
	}
	return Assignment{}, fmt.Errorf("%w: %q: gave up after %d concurrent changes", ErrChanged, room, maxAttempts)
}

// pin makes a single attempt to claim the room for a node.
func (t *settling) pin(ctx context.Context, node lease.NodeID) (found, error) {
	t.need(t.Need)
	home, reserved, noHome := t.placeOn(node)
	res := t.claim(ctx, home)
	switch {
	case errors.Is(res.Err, errReclaiming):
		t.reserved.Cancel(reserved)
		return found{}, fmt.Errorf("%w: %w", pinstore.ErrStore, res.Err)
	case res.Err != nil:
		t.reserved.Failed(reserved, res.Err)
		return found{}, res.Err
	case res.Full:
		t.reserved.Cancel(reserved)
		t.reserved.Raise(node, res.Counted)
		return found{}, fmt.Errorf("%w: %s, for %q: other nodes have filled it with rooms at the same time", ErrNoCapacity, node, t.Room)
	case res.Done && home.Member != nil:
		return found{res.Pin, sourceOf(home), home.Reason}, nil
	}
	t.reserved.Cancel(reserved)
	v, err := t.verdict(ctx, t.s, res.Pin.Incarnation)
	if err == nil && v != liveness.Dead && !t.outdated(res.Pin) {
		return found{res.Pin, Pinned, v.Reason()}, nil
	}
	t.void = res.Pin
	return found{}, cmp.Or(err, noHome, errVoid)
}

// placeOn reserves the cost of a room on the given node, or returns why the room cannot be pinned there.
func (t *settling) placeOn(node lease.NodeID) (home capacity.Choice, reserved capacity.Reservation, err error) {
	m, ok := t.s.Member(node)
	switch {
	case !ok:
		return home, reserved, notLive(node, "it has not joined, or has left: choose one of Members")
	case !capacity.TakesRooms(m):
		return home, reserved, notLive(node, "it is draining or settling, or has weight 0: choose an active member")
	case t.Bars(m) != "":
		return home, reserved, notLive(node, t.Bars(m))
	case t.liveness.Reclaiming(time.Now()):
		return home, reserved, fmt.Errorf("%w: %w: try again in a second", pinstore.ErrStore, errReclaiming)
	}
	if reserved, ok = t.reserved.PlaceOn(m, t.Request); !ok {
		return home, reserved, fmt.Errorf("%w: %s, for %q: choose another member", ErrNoCapacity, node, t.Room)
	}
	return capacity.Choice{Member: m, Reason: "pinned there on request"}, reserved, nil
}
