package affinity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Resolve returns where a room lives. A room without a pin is pinned now: to the
// owner of its partition if that has headroom for the demand, otherwise to the least
// loaded node with headroom. All concurrent callers, on any node, get the same
// answer.
//
// It takes no round trip to the store if the pin is cached, one otherwise, and up to
// three more if the pin names a node that has just died. If the store does not answer
// within Config.Budget, the assignment is Degraded: the last known node, or the node
// of the hash.
//
// It fails with ErrName, ErrDemand, ErrNoCapacity, ErrChanged (after several
// concurrent changes), ErrClosed, the errors of Agent.Place, or ctx.Err() if ctx ends
// before the budget does.
func (r *Resolver) Resolve(ctx context.Context, room string, d Demand) (Assignment, error) {
	ctx, end := r.trace(ctx, "resolve", room)
	if end == nil {
		return r.resolve(ctx, room, d)
	}
	a, err := r.resolve(ctx, room, d)
	end(a, err)
	return a, err
}

// trace notifies the tracer, if there is one.
func (r *Resolver) trace(ctx context.Context, call, room string) (context.Context, func(Assignment, error)) {
	if r.cfg.Tracer == nil {
		return ctx, nil
	}
	return r.cfg.Tracer.Begin(ctx, call, room)
}

func (r *Resolver) resolve(ctx context.Context, room string, d Demand) (Assignment, error) {
	if err := check(room, d); err != nil {
		return Assignment{}, err
	}
	if a, ok := r.cached(room); ok {
		return a, nil
	}
	got, err := r.ask(ctx, &r.flights.resolve, room, d, func() (settled, bool) {
		a, ok := r.cached(room) // another caller may have been answered in between
		return settled{Assignment: a}, ok
	})
	return got.Assignment, err
}

// cached answers from the pin cache.
func (r *Resolver) cached(room string) (Assignment, bool) {
	e := r.cache.get(room)
	if e == nil || !r.cache.isFresh(e, time.Now()) {
		return Assignment{}, false
	}
	s := r.agent.Snapshot()
	node := findLive(s, e.pin.Incarnation)
	if node == nil {
		return Assignment{}, false
	}
	r.counts.add(Cached)
	return Assignment{
		Room: room, Partition: placement.Of(room, s.Table.Partitions()), Incarnation: e.pin.Incarnation, Epoch: e.pin.Epoch,
		Source: Cached, Reason: "already pinned, from the cache", Member: node,
	}, true
}

// settled is an answer of the store, and what was so before the store was asked. The
// answer proves nothing about a later loss or fence. A caller may get it later.
type settled struct {
	Assignment
	generation uint64 // of the pin cache
	fences     uint64 // of the agent
}

// ask settles a room with the store, unless there is a shortcut by then. Concurrent
// callers for the same room in the same flight share the answer.
func (r *Resolver) ask(ctx context.Context, flight *singleflight.Group, room string, d Demand, shortcut func() (settled, bool)) (settled, error) {
	answer := flight.DoChan(room, func() (any, error) {
		if got, ok := shortcut(); ok {
			return got, nil
		}
		before := settled{generation: r.cache.generation.Load(), fences: r.agent.Snapshot().Stats.Fences}
		bounded, cancel := r.store.bounded(ctx)
		defer cancel()
		a, err := r.settle(bounded, room, d)
		r.counts.add(a.Source)
		before.Assignment = a
		return before, err
	})
	select {
	case got := <-answer:
		return got.Val.(settled), got.Err
	case <-ctx.Done():
		return settled{}, ctx.Err()
	}
}

// errReclaiming says that a claim has to wait: the store may have lost its data, and
// the hosts restore their pins first.
var errReclaiming = errors.New("affinity: the store has just come back")

// settle claims a room, or reads the claim of the instance that was faster, in one
// round trip. It replaces a pin that names a dead node, unless the pin has changed.
func (r *Resolver) settle(ctx context.Context, room string, d Demand) (Assignment, error) {
	s, err := r.ready(room)
	if err != nil {
		return Assignment{}, err
	}
	q := r.request(s, room, d.Size)
	if e := r.cache.get(room); e != nil && r.cache.lost(e) {
		q.stay = e.pin
	}
	var void Pin // which the claim replaces
	const attempts = 3
	for range attempts {
		a, settled, err := r.attempt(ctx, s, q, &void)
		if settled || err != nil {
			return a, err
		}
		if void != (Pin{}) && !void.released() {
			r.cfg.Log.Debug("pin names a dead node, resolving again", "room", room, "from", void.Node)
		}
		q = r.request(s, room, max(q.size, void.Size))
	}
	return Assignment{}, fmt.Errorf("%w: %q: gave up after %d concurrent changes", ErrChanged, room, attempts)
}

// attempt claims the room once. If the pin that it finds is void, the room is not
// settled, and the next attempt replaces that pin.
func (r *Resolver) attempt(ctx context.Context, s *cluster.Snapshot, q request, void *Pin) (a Assignment, settled bool, err error) {
	home, reserved, noHome := r.choose(s, q, 1)
	res := r.claim(ctx, s, q, home, *void)
	switch {
	case res.Err != nil:
		if !errors.Is(res.Err, context.DeadlineExceeded) { // otherwise the claim may still take effect
			r.reserved.cancel(reserved)
		}
		a, err = r.degrade(s, q, home, res.Err)
		return a, true, err
	case res.Done && home.member != nil:
		return r.assign(s, q.room, res.Pin, home.source, home.reason), true, nil
	}
	r.reserved.cancel(reserved)
	v, err := r.judge(ctx, s, res.Pin.Incarnation)
	if err == nil && v != dead {
		return r.assign(s, q.room, res.Pin, Pinned, v.reason()), true, nil
	}
	if errors.Is(noHome, errReclaiming) {
		err = noHome
	}
	if err != nil {
		a, err = r.degrade(s, q, choice{}, err)
		return a, true, err
	}
	*void = res.Pin
	return Assignment{}, false, noHome
}

// choose picks a node for the room and reserves a multiple of the room's cost there.
func (r *Resolver) choose(s *cluster.Snapshot, q request, times int64) (choice, reservation, error) {
	if q.stay == (Pin{}) && r.liveness.reclaiming(time.Now()) {
		return choice{}, reservation{}, errReclaiming
	}
	return r.reserved.place(s, q, times)
}

// claim pins the room to home if it has no pin, or the void one. Without a home it
// reads the pin.
func (r *Resolver) claim(ctx context.Context, s *cluster.Snapshot, q request, home choice, void Pin) Result {
	op := Op{Partition: q.partition, Room: q.room}
	if home.member != nil {
		op.If, op.Set, op.TTL = void, Pin{Incarnation: home.incarnation(), Epoch: q.stay.Epoch, Size: q.size}, r.cfg.PinTTL
	}
	return r.swap(ctx, s, op, "")
}

// swap performs an op for a caller who waits, caches the pin, and publishes a move.
func (r *Resolver) swap(ctx context.Context, s *cluster.Snapshot, op Op, why string) Result {
	asked := r.cache.begin(op.Room, s.Stats.Fences)
	res := r.store.swap(ctx, op)
	if m, ok := r.learn(s, op, asked, res, why); ok {
		r.publish(m)
	}
	return res
}

// Why a room has moved.
const (
	nodeGone     = "its node is gone"
	movedByOther = "moved by another instance"
)

// learn caches the pin that an op has found or made. It returns the move that this
// proves, unless another caller got the news first.
func (r *Resolver) learn(s *cluster.Snapshot, op Op, asked *cached, res Result, why string) (m Moved, moved bool) {
	if res.Err != nil {
		return m, false
	}
	if res.Pin.released() {
		r.cache.learn(op.Room, asked, Pin{}, time.Time{})
		return m, false
	}
	news := r.cache.learn(op.Room, asked, res.Pin, time.Now().Add(res.Fresh))
	none, from := lease.Incarnation{}, asked.pin.Incarnation
	if op.If.Incarnation != none && !op.If.released() {
		from = op.If.Incarnation
	}
	if !news || from == none || res.Pin.Incarnation == none || res.Pin.Incarnation == from {
		return m, false
	}
	switch {
	case why != "":
	case findLive(s, from) == nil:
		why = nodeGone
	default:
		why = movedByOther
	}
	return Moved{op.Room, op.Partition, from, res.Pin.Incarnation, why, res.Pin.Epoch}, true
}

// publish publishes the move of one room.
func (r *Resolver) publish(m Moved) {
	r.cfg.Log.Debug("room moved", "room", m.Room, "from", m.From.Node, "to", m.To.Node, "epoch", m.Epoch,
		"reason", m.Reason, "pin_ttl", r.cfg.PinTTL)
	r.feeds.moves.publish([]Moved{m})
}

// judge returns the verdict on the incarnation that a pin names. It asks the store
// only if gossip does not know the incarnation.
func (r *Resolver) judge(ctx context.Context, s *cluster.Snapshot, at lease.Incarnation) (verdict, error) {
	if v, known := r.liveness.judge(s, at, time.Now()); known {
		return v, nil
	}
	beats, err := r.store.store.Heartbeat(ctx, r.living(), r.liveness.ttl, []lease.Incarnation{at})
	if err != nil {
		return dead, err
	}
	return r.liveness.record(at, beats[0], time.Now()), nil
}

// degrade answers without the store: hosted here, otherwise the last known node,
// otherwise the node of an unanswered claim, otherwise the node of the hash, on which
// all instances agree.
//
// A claim that was sent and not answered may still take effect, so its node is the
// best guess. A claim that was not sent cannot.
func (r *Resolver) degrade(s *cluster.Snapshot, q request, home choice, cause error) (Assignment, error) {
	r.cfg.Log.Debug("room resolved without the store", "room", q.room, "err", cause)
	guess := func(at lease.Incarnation, reason string) (Assignment, error) {
		return r.assign(s, q.room, Pin{Incarnation: at}, Degraded, reason), nil
	}
	if h := r.hosts.get(q.room); h != nil {
		return guess(h.self, "hosted here; the store does not answer")
	}
	if e := r.cache.get(q.room); e != nil && findLive(s, e.pin.Incarnation) != nil {
		return guess(e.pin.Incarnation, lastKnown)
	}
	if errors.Is(cause, context.DeadlineExceeded) && home.member != nil {
		r.cache.assume(q.room, Pin{Incarnation: home.incarnation(), Size: q.size})
		return guess(home.incarnation(), "claimed for this node; the store has not confirmed it")
	}
	owner, err := r.agent.Place(q.room)
	if err != nil {
		return Assignment{}, err
	}
	at := incarnationOf(owner)
	r.cache.assume(q.room, Pin{Incarnation: at, Size: q.size})
	return guess(at, "owns the room's partition; the store does not answer")
}

const lastKnown = "last known node; the store does not answer"

// assign completes an assignment.
func (r *Resolver) assign(s *cluster.Snapshot, room string, pin Pin, source Source, reason string) Assignment {
	return Assignment{
		Room: room, Partition: placement.Of(room, s.Table.Partitions()), Incarnation: pin.Incarnation, Epoch: pin.Epoch,
		Source: source, Reason: reason, Member: find(s, pin.Node),
	}
}

// ready returns a snapshot that can place the room.
func (r *Resolver) ready(room string) (*cluster.Snapshot, error) {
	s := r.agent.Snapshot()
	if r.run.closed.Load() {
		return s, ErrClosed
	}
	_, err := r.agent.Place(room)
	return s, err
}

func (r *Resolver) request(s *cluster.Snapshot, room string, size int) request {
	return request{
		room: room, partition: placement.Of(room, s.Table.Partitions()), size: size, cost: r.cfg.Cost(size),
	}
}

func check(room string, d Demand) error { return errors.Join(CheckName(room), checkSize(d.Size)) }
