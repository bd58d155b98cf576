package affinity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Lookup returns where a room lives. Unlike Resolve it does not pin a room without a
// pin, but fails with ErrNoPin. If the store does not answer, it returns the last
// known node as Degraded, or fails with ErrStore.
func (r *Resolver) Lookup(ctx context.Context, room string) (Assignment, error) {
	if err := CheckName(room); err != nil {
		return Assignment{}, err
	}
	s, err := r.ready(room)
	if err != nil {
		return Assignment{}, err
	}
	pin, err := r.read(ctx, s, room)
	e := r.cache.get(room)
	switch {
	case err != nil && e != nil && findLive(s, e.pin.Incarnation) != nil:
		return r.assign(s, room, Pin{Incarnation: e.pin.Incarnation}, Degraded, lastKnown), nil
	case err != nil:
		return Assignment{}, err
	case pin == (Pin{}):
		return Assignment{}, fmt.Errorf("%w: %q", ErrNoPin, room)
	}
	if findLive(s, pin.Incarnation) == nil {
		return r.assign(s, room, pin, Pinned, "pinned to a node that is not live here; the next Resolve picks another node"), nil
	}
	return r.assign(s, room, pin, Pinned, alive.reason()), nil
}

// read returns a room's pin from the store.
func (r *Resolver) read(ctx context.Context, s *cluster.Snapshot, room string) (Pin, error) {
	ctx, cancel := r.store.bounded(ctx)
	defer cancel()
	res := r.swap(ctx, s, Op{Partition: placement.Of(room, s.Table.Partitions()), Room: room}, "")
	if res.Pin.released() {
		res.Pin = Pin{}
	}
	return res.Pin, res.Err
}

// pinOf returns the pin of a room that has one.
func (r *Resolver) pinOf(ctx context.Context, room string) (Pin, *cluster.Snapshot, error) {
	if err := CheckName(room); err != nil {
		return Pin{}, nil, err
	}
	s, err := r.ready(room)
	if err != nil {
		return Pin{}, nil, err
	}
	pin, err := r.read(ctx, s, room)
	if err == nil && pin == (Pin{}) {
		err = fmt.Errorf("%w: %q", ErrNoPin, room)
	}
	return pin, s, err
}

// Explanation says why a room lives where it does, or would.
type Explanation struct {
	Assignment Assignment  // of the room, or what Resolve would choose; nothing is pinned
	Pinned     bool        // the room has a pin
	Candidates []Candidate // every live member, best for the room's partition first
}

// Explain returns where a room lives, or where Resolve would pin it now, with every
// candidate and why it was taken, or not. It changes nothing.
func (r *Resolver) Explain(ctx context.Context, room string, d Demand) (Explanation, error) {
	if err := check(room, d); err != nil {
		return Explanation{}, err
	}
	s, err := r.ready(room)
	if err != nil {
		return Explanation{}, err
	}
	a, err := r.Lookup(ctx, room)
	if err != nil && !errors.Is(err, ErrNoPin) && !errors.Is(err, ErrStore) {
		return Explanation{}, err
	}
	q := r.request(s, room, d.Size)
	to, candidates, noHome := r.reserved.explain(s, q, a.Node)
	switch {
	case err == nil:
		return Explanation{a, a.Source != Degraded, candidates}, nil
	case noHome != nil:
		a = Assignment{Room: room, Partition: q.partition, Reason: noHome.Error()}
	default:
		if errors.Is(err, ErrStore) {
			to.source, to.reason = Degraded, "the store does not answer, so the room may have a pin; otherwise: "+to.reason
		}
		a = r.assign(s, room, Pin{Incarnation: to.incarnation()}, to.source, to.reason)
	}
	return Explanation{Assignment: a, Candidates: candidates}, nil
}

// Edges returns the n best nodes for a room apart from the node where it lives, for a
// room that has outgrown one node: nodes with headroom for the demand first, then in
// the order of Owners. There are fewer if the cluster has fewer nodes.
func (r *Resolver) Edges(ctx context.Context, room string, d Demand, n int) ([]*cluster.Member, error) {
	e, err := r.Explain(ctx, room, d)
	if err != nil {
		return nil, err
	}
	cost := r.cfg.Cost(d.Size)
	var free, full []*cluster.Member
	for _, c := range e.Candidates {
		switch {
		case c.Taken || !takesRooms(c.Member):
		case c.Member.Capacity > 0 && c.Member.Load != lease.NoLoad && c.used()+cost <= c.Ceiling:
			free = append(free, c.Member)
		default:
			full = append(full, c.Member)
		}
	}
	all := append(free, full...)
	return all[:min(max(0, n), len(all))], nil
}

// Rooms returns at most limit rooms that are pinned to a node, or to any node if node
// is empty, in no particular order. It is for people: it queries the store for every
// partition.
func (r *Resolver) Rooms(ctx context.Context, node lease.NodeID, limit int) ([]Entry, error) {
	s := r.agent.Snapshot()
	if s.Table == nil {
		return nil, cluster.ErrNotReady
	}
	all := make([]placement.Partition, s.Table.Partitions())
	for i := range all {
		all[i] = placement.Partition(i)
	}
	return r.store.store.Index(ctx, all, func(at lease.Incarnation) bool {
		return at.Number != 0 && (node == "" || at.Node == node)
	}, limit)
}

// Hosted returns the rooms that are hosted here, heaviest first, and their cost
// together. O(rooms · log rooms).
func (r *Resolver) Hosted() (rooms []RoomLoad, units int64) {
	rooms, units = r.loads()
	slices.SortFunc(rooms, func(a, b RoomLoad) int {
		return cmp.Or(cmp.Compare(b.Units, a.Units), cmp.Compare(a.Room, b.Room))
	})
	return rooms, units
}

// loads is Hosted without an order. Cost runs after the lock of the table is free.
func (r *Resolver) loads() (rooms []RoomLoad, units int64) {
	rooms = r.hosts.sizes()
	for i := range rooms {
		rooms[i].Units = r.cfg.Cost(rooms[i].Size)
		units += rooms[i].Units
	}
	return rooms, units
}

// Release ends a room, no matter where it lives: its pin is void from now on, and its
// host has Lost it, with ErrReleased. It fails with ErrNoPin, ErrChanged or ErrStore.
func (r *Resolver) Release(ctx context.Context, room string) error {
	if h := r.hosts.get(room); h != nil {
		return h.Release(ctx)
	}
	pin, s, err := r.pinOf(ctx, room)
	if err != nil {
		return err
	}
	// A deleted pin would look like a lost one, and the host would restore it. So a mark
	// replaces the pin, for long enough that the host sees it even if it misses the
	// notification.
	const stands = 30 * time.Second
	op := Op{Partition: placement.Of(room, s.Table.Partitions()), Room: room, If: pin}
	op.Set, op.TTL = Pin{Incarnation: lease.Incarnation{Node: pin.Node}}, stands
	ctx, cancel := r.store.bounded(ctx)
	defer cancel()
	res := r.swap(ctx, s, op, "")
	if res.Err == nil && !res.Done {
		return fmt.Errorf("%w: %q", ErrChanged, room)
	}
	return res.Err
}

// Move moves a room to another node on request, unless another instance moves it at
// the same time (ErrChanged). Its host has Lost it. It fails with ErrNoPin; with
// ErrNotLive if to takes no rooms; with ErrNoCapacity by the hard ceiling; or with
// ErrStore, and then the room may have moved or not.
func (r *Resolver) Move(ctx context.Context, room string, to lease.NodeID) (Assignment, error) {
	pin, s, err := r.pinOf(ctx, room)
	if err != nil {
		return Assignment{}, err
	}
	m := find(s, to)
	switch {
	case m == nil:
		return Assignment{}, notLive(to, "not a live member")
	case m.ID == pin.Node && pin.Number >= m.Incarnation:
		return r.assign(s, room, pin, Pinned, "already there"), nil
	case !takesRooms(m):
		return Assignment{}, notLive(to, "draining, settling or of weight 0")
	}
	q := r.request(s, room, pin.Size)
	reserved, ok := r.reserved.placeOn(m, q)
	if !ok {
		return Assignment{}, fmt.Errorf("%w: %s, for %q", ErrNoCapacity, to, room)
	}
	bounded, cancel := r.store.bounded(ctx)
	defer cancel()
	const why = "moved on request"
	res := r.swap(bounded, s, Op{
		Partition: q.partition, Room: room, If: pin, Set: Pin{Incarnation: incarnationOf(m), Size: pin.Size}, TTL: r.cfg.PinTTL,
	}, why)
	if res.Err != nil {
		return Assignment{}, res.Err
	}
	if !res.Done {
		r.reserved.cancel(reserved)
		return Assignment{}, fmt.Errorf("%w: %q", ErrChanged, room)
	}
	moved := r.assign(s, room, res.Pin, Pinned, why)
	if h := r.hosts.get(room); h != nil && h.self != res.Pin.Incarnation {
		r.end(h, &NotOwnerError{Owner: moved})
	}
	return moved, nil
}
