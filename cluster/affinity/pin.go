package affinity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// Pin returns where a room lives, and pins it to a node of the caller's choice if it lives nowhere: if it has
// no pin, or the pin names a dead node. All concurrent callers, on any node, get the same answer, so look at
// the Assignment: the room may live elsewhere. To move it then, call Move. The room's demand counts against
// the hard ceiling of the node, as all instances know it. Neither Demand.Require nor Config.Selector bind a
// Pin.
//
// It takes one round trip to the store, and up to three more if the pin names a node that has just died. If
// the store does not answer within Config.Budget, Pin fails with ErrStore, and the room may be pinned to the
// node or not.
//
// If the room lives nowhere, Pin fails with ErrNotLive if the node is unknown, has left, or takes no rooms
// because it is draining, settling or of weight 0; or with ErrNoCapacity by the hard ceiling. Its other
// errors are ErrName, ErrDemand, ErrChanged, ErrSettings, ErrFenced, ErrClosed and those of Agent.Place.
func (r *Resolver) Pin(ctx context.Context, room string, node lease.NodeID, d Demand) (Assignment, error) {
	if err := check(room, d); err != nil {
		return Assignment{}, err
	}
	ctx, cancel := r.store.Bounded(ctx)
	defer cancel()
	var void pinstore.Pin // which the claim replaces
	const attempts = 3
	for range attempts {
		if a, settled, err := r.pinOn(ctx, room, node, d, &void); settled || err != nil {
			return a, err
		}
	}
	return Assignment{}, fmt.Errorf("%w: %q: gave up after %d concurrent changes", ErrChanged, room, attempts)
}

// pinOn claims the room for a node once. If the pin that it finds is void, the room is not settled, and the
// next attempt replaces that pin.
func (r *Resolver) pinOn(ctx context.Context, room string, node lease.NodeID, d Demand, void *pinstore.Pin) (a Assignment, settled bool, err error) {
	generation := r.cache.Generation()
	s, err := r.ready(room)
	if err != nil {
		return a, false, err
	}
	q := r.request(s, room, needOf(d))
	q.generation, q.least = generation, r.cache.Get(room).Least()
	home, reserved, noHome := r.placeOn(s, node, q)
	res := r.claim(ctx, s, q, home, *void)
	switch {
	case errors.Is(res.Err, errReclaiming):
		r.reserved.Cancel(reserved)
		return a, false, fmt.Errorf("%w: %w", pinstore.ErrStore, res.Err)
	case res.Err != nil:
		r.reserved.Failed(reserved, res.Err)
		return a, false, res.Err
	case res.Full:
		r.reserved.Cancel(reserved)
		r.reserved.Raise(node, res.Counted)
		return a, false, fmt.Errorf("%w: %s, for %q: all instances together have filled it", ErrNoCapacity, node, room)
	case res.Done && home.Member != nil:
		return r.assign(s, room, res.Pin, sourceOf(home), home.Reason), true, nil
	}
	r.reserved.Cancel(reserved)
	v, err := r.verdict(ctx, s, res.Pin.Incarnation)
	if err == nil && v != liveness.Dead && !r.outdated(q, res.Pin) {
		return r.assign(s, room, res.Pin, Pinned, v.Reason()), true, nil
	}
	*void = res.Pin
	return a, false, cmp.Or(err, noHome)
}

// placeOn reserves the cost of a room on a given node, or says why the room cannot be pinned there.
func (r *Resolver) placeOn(s *cluster.Snapshot, node lease.NodeID, q request) (home capacity.Choice, reserved capacity.Reservation, err error) {
	m, ok := s.Member(node)
	switch {
	case !ok:
		return home, reserved, notLive(node, "it has not joined, or has left: choose one of Members")
	case !capacity.TakesRooms(m):
		return home, reserved, notLive(node, "it is draining, settling or of weight 0: choose an active member")
	case q.Bars(m) != "":
		return home, reserved, notLive(node, q.Bars(m))
	case r.liveness.Reclaiming(time.Now()):
		return home, reserved, fmt.Errorf("%w: %w: try again in a second", pinstore.ErrStore, errReclaiming)
	}
	if reserved, ok = r.reserved.PlaceOn(m, q.Request); !ok {
		return home, reserved, fmt.Errorf("%w: %s, for %q: choose another member", ErrNoCapacity, node, q.Room)
	}
	return capacity.Choice{Member: m, Reason: "pinned there on request"}, reserved, nil
}
