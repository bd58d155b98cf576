package affinity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/internal/storeclient"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Lookup returns where a room lives. Unlike Resolve, Lookup never pins a room. If the room has no pin, it
// fails with ErrNoPin. If the store does not answer, Lookup returns the last known node as Degraded, or fails
// with ErrStore if no node is known.
func (r *Resolver) Lookup(ctx context.Context, room string) (Assignment, error) {
	if err := CheckName(room); err != nil {
		return Assignment{}, err
	}
	s, err := r.ready(room)
	if err != nil {
		return Assignment{}, err
	}
	pin, err := r.read(ctx, s, room)
	e := r.cache.Get(room)
	switch {
	case err != nil && e != nil && liveness.Live(s, e.Pin.Incarnation) != nil:
		return r.assign(s, room, pinstore.Pin{Incarnation: e.Pin.Incarnation}, Degraded, lastKnown), nil
	case err != nil:
		return Assignment{}, err
	case pin == (pinstore.Pin{}):
		return Assignment{}, fmt.Errorf("%w: %q", ErrNoPin, room)
	}
	if known := r.cache.Known(room); pin.Epoch < known.Epoch { // the store has reverted to an older copy of its data
		pin = known
	}
	if liveness.Live(s, pin.Incarnation) == nil {
		return r.assign(s, room, pin, Pinned, "pinned to a node that is not live here; a Resolve chooses another node that accepts rooms"), nil
	}
	return r.assign(s, room, pin, Pinned, liveness.Alive.Reason()), nil
}

// read returns a room's pin from the store.
func (r *Resolver) read(ctx context.Context, s *cluster.Snapshot, room string) (pinstore.Pin, error) {
	ctx, cancel := r.store.Bounded(ctx)
	defer cancel()
	res := r.swap(ctx, s, pinstore.Op{Partition: placement.Of(room, s.Table.Partitions()), Room: room})
	if res.Pin.Released() {
		res.Pin = pinstore.Pin{}
	}
	return res.Pin, res.Err
}

// pinOf returns the pin of a room, or fails with ErrNoPin.
func (r *Resolver) pinOf(ctx context.Context, room string) (pinstore.Pin, *cluster.Snapshot, error) {
	if err := CheckName(room); err != nil {
		return pinstore.Pin{}, nil, err
	}
	s, err := r.ready(room)
	if err != nil {
		return pinstore.Pin{}, nil, err
	}
	pin, err := r.read(ctx, s, room)
	if err == nil && pin == (pinstore.Pin{}) {
		err = fmt.Errorf("%w: %q", ErrNoPin, room)
	}
	return pin, s, err
}

// Candidate describes a node that a Resolver considers for a room.
type Candidate struct {
	Member     *cluster.Member
	Reserved   int64  // units of rooms that the node's load does not show yet
	Ceiling    int64  // units up to which new rooms may fill the node; 0 = not set
	Preference int    // place in Demand.Prefer, from 1; 0 if Require, the Selector, the node's settings or its silence exclude it
	Taken      bool   // the room lives here, or would
	Why        string // why the node was taken or not
}

// Explanation says why a room lives where it does, or why it would live there.
type Explanation struct {
	Assignment Assignment  // where the room lives, or what Resolve would choose
	Pinned     bool        // the room has a pin
	Candidates []Candidate // every live member, best for the room's partition first
}

// Explain returns where a room lives, or where Resolve would pin it now, and why each candidate was chosen or
// not. Explain does not change anything.
func (r *Resolver) Explain(ctx context.Context, room string, d Demand) (Explanation, error) {
	if err := check(room, d); err != nil {
		return Explanation{}, err
	}
	s, err := r.ready(room)
	if err != nil {
		return Explanation{}, err
	}
	a, err := r.Lookup(ctx, room)
	if err != nil && !errors.Is(err, ErrNoPin) && !errors.Is(err, pinstore.ErrStore) {
		return Explanation{}, err
	}
	q := r.request(s, room, r.known(a, needOf(d)))
	q.Pinned, q.Here = a.Node != "", a.Incarnation == r.self()
	q.Hosted = q.Here && r.hosts.get(a.Room) != nil
	to, considered, noHome := r.reserved.Explain(s, q.Request, a.Node)
	candidates := make([]Candidate, len(considered))
	for i, c := range considered {
		candidates[i] = Candidate(c)
	}
	switch {
	case err == nil:
		return Explanation{a, a.Source != Degraded, candidates}, nil
	case noHome != nil:
		a = Assignment{Room: room, Partition: q.Partition, Reason: noHome.Error()}
	default:
		source, reason := sourceOf(to), to.Reason
		if errors.Is(err, pinstore.ErrStore) {
			source, reason = Degraded, "the store does not answer, so the room may have a pin; if it has none: "+reason
		}
		a = r.assign(s, room, pinstore.Pin{Incarnation: to.Incarnation()}, source, reason)
	}
	return Explanation{Assignment: a, Candidates: candidates}, nil
}

// Relays returns the n best nodes for a room, except the node where it lives. A relay serves a part of the
// participants of a room that is too large for one node: the room's node sends each stream once to each
// relay, and the relay forwards it. d is the demand of one relay. Nodes with headroom for the demand come
// first, and all other nodes follow. Both groups are sorted in the order of Owners. Relays returns fewer than
// n nodes if the cluster has too few. Relays does not pin any room. For relays that are rooms themselves, use
// ResolveApart.
func (r *Resolver) Relays(ctx context.Context, room string, d Demand, n int) ([]*cluster.Member, error) {
	r.counts.relays.Add(1)
	e, err := r.Explain(ctx, room, d)
	if err != nil {
		return nil, err
	}
	cost := r.cost(needOf(d))
	var free, full []*cluster.Member
	for _, shown := range e.Candidates {
		switch c := capacity.Candidate(shown); {
		case c.Taken || c.Preference == 0 || !capacity.TakesRooms(c.Member):
		case c.HasRoom(cost):
			free = append(free, c.Member)
		default:
			full = append(full, c.Member)
		}
	}
	all := append(free, full...)
	return all[:min(max(0, n), len(all))], nil
}

// ResolveApart is Resolve for a room that should be on another node than the given other rooms. ResolveApart
// is for relays that are rooms themselves. Such a relay counts towards its node's load, moves when the node
// drains, and gets another node when the node dies. The server that hosts it pulls the streams of the large
// room.
//
// If one of the other rooms is on the room's node, the room moves to the best node that has none of the other
// rooms. If no such node can take the room, it stays. If several callers call ResolveApart at once, only one
// of them moves the room. If rooms move later, call ResolveApart again to keep them apart. ResolveApart takes
// the round trips of Resolve, one round trip for each other room that is not in the pin cache, and, if the
// room moves, the round trips of MoveFrom.
func (r *Resolver) ResolveApart(ctx context.Context, room string, d Demand, others ...string) (Assignment, error) {
	a, err := r.Resolve(ctx, room, d)
	if err != nil || a.Source == Degraded {
		return a, err
	}
	var taken []lease.NodeID
	for _, other := range others {
		o, ok := r.cached(other)
		if !ok {
			if o, err = r.Lookup(ctx, other); errors.Is(err, ErrNoPin) {
				continue
			} else if err != nil {
				return a, err
			}
		}
		taken = append(taken, o.Node)
	}
	if !slices.Contains(taken, a.Node) {
		return a, nil
	}
	moved, err := r.moveFrom(ctx, room, a.Incarnation, a.Epoch, taken)
	if errors.Is(err, cluster.ErrNoMembers) || errors.Is(err, ErrNoCapacity) || errors.Is(err, ErrRequire) {
		return a, nil // no other node can take it
	}
	return moved, err
}

// Rooms returns at most limit rooms that are pinned to a node, or to any node if node is empty, in no
// particular order. Rooms is expensive, because it queries the store for every partition. Call Rooms only for
// operators and tools.
func (r *Resolver) Rooms(ctx context.Context, node lease.NodeID, limit int) ([]pinstore.Entry, error) {
	s := r.agent.Snapshot()
	if s.Table == nil {
		return nil, cluster.ErrNotReady
	}
	all := make([]placement.Partition, s.Table.Partitions())
	for i := range all {
		all[i] = placement.Partition(i)
	}
	return r.store.Store.Index(ctx, all, func(at lease.Incarnation) bool {
		return at.Number != 0 && (node == "" || at.Node == node)
	}, limit)
}

// Move moves a room to another node, and the room's host loses it. Demand.Require and Config.Selector do not
// restrict Move. Move fails with ErrNoPin, with ErrNotLive if the node takes no rooms, with ErrNoCapacity if
// the room would exceed the hard ceiling, or with ErrChanged if another instance moves the room at the same
// time. After ErrStore, the room may or may not have moved.
func (r *Resolver) Move(ctx context.Context, room string, to lease.NodeID) (Assignment, error) {
	pin, s, err := r.pinOf(ctx, room)
	if err != nil {
		return Assignment{}, err
	}
	m, ok := s.Member(to)
	switch {
	case !ok:
		return Assignment{}, notLive(to, "not a live member")
	case m.ID == pin.Node && pin.Number >= m.Incarnation:
		return r.assign(s, room, pin, Pinned, "already there"), nil
	case !capacity.TakesRooms(m):
		return Assignment{}, notLive(to, "draining or settling, or has weight 0")
	}
	q := r.request(s, room, capacity.NeedIn(pin))
	if why := q.Bars(m); why != "" {
		return Assignment{}, notLive(to, why)
	}
	reserved, ok := r.reserved.PlaceOn(m, q.Request)
	if !ok {
		return Assignment{}, fmt.Errorf("%w: %s, for %q", ErrNoCapacity, to, room)
	}
	moved, _, err := r.move(ctx, s, q.Request, pin, m, reserved, byRequest)
	return moved, err
}

// MoveFrom moves a room away from a node if the room still lives there with the given epoch, or with any
// epoch if epoch is 0. MoveFrom chooses the new node like Resolve, and the host loses the room. If many
// callers on any nodes try to move the same room, it only moves once, and all callers get its new node.
// MoveFrom takes two round trips, and fails with ErrNoPin, ErrRequire, ErrNoCapacity, ErrChanged or ErrStore.
// After ErrStore, the room may or may not have moved.
func (r *Resolver) MoveFrom(ctx context.Context, room string, from lease.Incarnation, epoch uint64) (Assignment, error) {
	return r.moveFrom(ctx, room, from, epoch, []lease.NodeID{from.Node})
}

// moveFrom is like MoveFrom, but never chooses one of the nodes in leaves.
func (r *Resolver) moveFrom(
	ctx context.Context,
	room string,
	from lease.Incarnation,
	epoch uint64,
	leaves []lease.NodeID,
) (Assignment, error) {
	pin, s, err := r.pinOf(ctx, room)
	if err != nil {
		return Assignment{}, err
	}
	elsewhere := func(pin pinstore.Pin) (Assignment, error) {
		return r.assign(s, room, pin, Pinned, "has already moved"), nil
	}
	if pin.Incarnation != from || (epoch != 0 && pin.Epoch != epoch) {
		return elsewhere(pin)
	}
	q := r.request(s, room, capacity.NeedIn(pin))
	q.Leaves = leaves
	to, reserved, err := r.reserved.Place(s, q.Request, 1)
	if err != nil {
		return Assignment{}, err
	}
	why := byRequest
	if m := liveness.Live(s, from); m != nil && drained(m) {
		why = drains
	}
	moved, stands, err := r.move(ctx, s, q.Request, pin, to.Member, reserved, why)
	if stands.Number != 0 && stands.Incarnation != from {
		return elsewhere(stands) // another caller was faster
	}
	return moved, err
}

// move replaces the pin of a room with a pin that names the node, if the pin has not changed. If the pin has
// changed, move returns the current pin. If the room relieves its node, and other instances have filled the
// new node meanwhile, move fails with ErrNoCapacity.
func (r *Resolver) move(
	ctx context.Context,
	s *cluster.Snapshot,
	q capacity.Request,
	pin pinstore.Pin,
	to *cluster.Member,
	reserved capacity.Reservation,
	why string,
) (moved Assignment, stands pinstore.Pin, err error) {
	bounded, cancel := r.store.Bounded(ctx)
	defer cancel()
	op := pinstore.Op{
		Partition: q.Partition, Room: q.Room, If: pin, TTL: r.cfg.PinTTL,
		Set: capacity.Replacing(q.Need.Pin(pinstore.Pin{Incarnation: incarnationOf(to)}), why),
	}
	if q.Relief != nil {
		r.bound(&op, to, r.reserved.Limits.SoftOf(to), q.Cost)
	}
	res := r.swap(bounded, s, op)
	if res.Err != nil {
		r.reserved.Failed(reserved, res.Err)
		time.AfterFunc(storeclient.BulkTime, func() { r.changed(q.Room) }) // the op may take effect later, and the store does not notify this node
		return Assignment{}, pinstore.Pin{}, res.Err
	}
	if res.Full {
		r.reserved.Cancel(reserved)
		r.reserved.Raise(to.ID, res.Counted)
		return Assignment{}, res.Pin, errFull
	}
	if !res.Done {
		r.reserved.Cancel(reserved)
		return Assignment{}, res.Pin, fmt.Errorf("%w: %q", ErrChanged, q.Room)
	}
	moved = r.assign(s, q.Room, res.Pin, Pinned, why)
	if h := r.hosts.get(q.Room); h != nil && h.self != res.Pin.Incarnation {
		r.end(h, &NotOwnerError{Owner: moved})
	}
	return moved, pinstore.Pin{}, nil
}

// Release ends a room, no matter where it lives. The room's pin becomes void, and its host loses the room
// with ErrReleased. Only a host that cannot reach the store for five minutes keeps the room. Release fails
// with ErrNoPin, ErrChanged or ErrStore.
func (r *Resolver) Release(ctx context.Context, room string) error {
	if h := r.hosts.get(room); h != nil {
		return h.Release(ctx)
	}
	pin, s, err := r.pinOf(ctx, room)
	if err != nil {
		return err
	}
	// Replace the pin with a mark instead of deleting it. The host would take a deleted pin for a lost pin
	// and restore it. A host that misses the notification reads the pin at most 150 s after its last answer.
	const stands = 5 * time.Minute
	op := pinstore.Op{Partition: placement.Of(room, s.Table.Partitions()), Room: room, If: pin}
	op.Set, op.TTL = pinstore.Pin{Incarnation: lease.Incarnation{Node: pin.Node}}, stands
	ctx, cancel := r.store.Bounded(ctx)
	defer cancel()
	res := r.swap(ctx, s, op)
	r.recheck(room, res.Err != nil) // this node may host the room by now
	if res.Err == nil && !res.Done {
		return fmt.Errorf("%w: %q", ErrChanged, room)
	}
	return res.Err
}
