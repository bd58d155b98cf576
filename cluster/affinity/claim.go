package affinity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// errReclaiming says that a claim has to wait: the store may have lost its data, and
// the hosts restore their pins first.
var errReclaiming = errors.New("affinity: the store has just come back")

// settle reads the pin of a room that is known here. Otherwise it claims the room, or reads the claim of the
// instance that was faster, in one round trip. It replaces a pin that names a dead node or is older than the
// pin that is known here, unless the pin has changed.
func (r *Resolver) settle(ctx context.Context, room string, d Demand, hosts bool) (Assignment, error) {
	s, err := r.ready(room)
	if err != nil {
		return Assignment{}, err
	}
	generation, e := r.cache.Generation(), r.cache.Get(room)
	known, least := e.Known(), e.Least()
	if !hosts {
		if a, settled, err := r.readKnown(ctx, s, room, d, known.Incarnation, least); settled {
			return a, err
		}
	}
	q := r.firstRequest(s, room, d)
	q.hosts, q.least, q.generation = hosts, least, generation
	var void pinstore.Pin // which the claim replaces
	const attempts = 3
	for range attempts {
		a, settled, err := r.attemptAll(ctx, s, q, &void)
		if settled || err != nil {
			return a, err
		}
		if void != (pinstore.Pin{}) && !void.Released() {
			r.cfg.Log.Debug("pin names a dead node, resolving again", "room", room, "from", void.Node)
		}
		q = r.request(s, room, capacity.NeedIn(void).Joined(q.Need))
		q.hosts, q.least, q.generation = hosts, least, generation
		switch {
		case void.Number != 0 && void.Epoch < least:
			q.Stay = known
		case r.outdated(q, void):
			q.Stay = void
		}
	}
	return Assignment{}, fmt.Errorf("%w: %q: gave up after %d concurrent changes", ErrChanged, room, attempts)
}

// firstRequest is for the first attempt: a room with a pin that the store may have lost stays where it was,
// unless its hosting has ended.
func (r *Resolver) firstRequest(s *cluster.Snapshot, room string, d Demand) request {
	q := r.request(s, room, needOf(d))
	if e := r.cache.Get(room); e != nil && r.cache.Lost(e) && e.Least() == e.Pin.Epoch {
		q = r.request(s, room, capacity.NeedIn(e.Pin).Joined(q.Need))
		q.Stay = e.Pin
	}
	return q
}

// readKnown reads the pin of a room that has a live node by the pin that is known here, which costs less than
// a claim. The room is not settled if the pin has gone, or does not stand.
func (r *Resolver) readKnown(ctx context.Context, s *cluster.Snapshot, room string, d Demand, known lease.Incarnation, least uint64) (a Assignment, settled bool, err error) {
	if e := r.cache.Get(room); e == nil || r.cache.Lost(e) || liveness.Live(s, known) == nil {
		return a, false, nil
	}
	res := r.swap(ctx, s, pinstore.Op{Partition: placement.Of(room, s.Table.Partitions()), Room: room}, "")
	switch {
	case res.Err != nil:
		a, err = r.degrade(s, r.firstRequest(s, room, d), capacity.Choice{}, res.Err)
		return a, true, err
	case res.Pin.Epoch < least || liveness.Live(s, res.Pin.Incarnation) == nil:
		return a, false, nil
	}
	return r.assign(s, room, res.Pin, Pinned, liveness.Alive.Reason()), true, nil
}

// attemptAll is attempt at one node after the other, until one is not full.
func (r *Resolver) attemptAll(ctx context.Context, s *cluster.Snapshot, q request, void *pinstore.Pin) (a Assignment, settled bool, err error) {
	for range len(s.Members) {
		if a, settled, err = r.attempt(ctx, s, q, void); !errors.Is(err, errFull) {
			return a, settled, err
		}
	}
	return a, settled, err
}

// attempt claims the room once. If the pin that it finds is void, the room is not
// settled, and the next attempt replaces that pin.
func (r *Resolver) attempt(ctx context.Context, s *cluster.Snapshot, q request, void *pinstore.Pin) (a Assignment, settled bool, err error) {
	home, reserved, noHome := r.choose(s, q, 1)
	res := r.claim(ctx, s, q, home, *void)
	switch {
	case res.Err != nil:
		r.reserved.Failed(reserved, res.Err)
		a, err = r.degrade(s, q, home, res.Err)
		return a, true, err
	case res.Full:
		r.reserved.Cancel(reserved)
		r.reserved.Raise(home.Member.ID, res.Counted)
		*void = res.Pin
		return a, false, errFull
	case res.Done && home.Member != nil:
		return r.assign(s, q.Room, res.Pin, sourceOf(home), home.Reason), true, nil
	}
	r.reserved.Cancel(reserved)
	return r.found(ctx, s, q, home, noHome, res.Pin, void)
}

// found takes up a pin that an attempt has found. noHome says why there is no home for the room, or is nil.
func (r *Resolver) found(ctx context.Context, s *cluster.Snapshot, q request, home capacity.Choice, noHome error, pin pinstore.Pin, void *pinstore.Pin) (a Assignment, settled bool, err error) {
	v, err := r.verdict(ctx, s, pin.Incarnation)
	switch unfit := err == nil && r.unfit(s, q, home, pin); {
	case unfit && (noHome == nil || q.Stay == (pinstore.Pin{})):
		*void = pin
		return Assignment{}, false, nil
	case unfit && pin.Epoch < q.least: // and no node takes the room, nor does the one where it was
		return Assignment{}, false, noHome
	case err == nil && v != liveness.Dead:
		return r.assign(s, q.Room, pin, Pinned, v.Reason()), true, nil
	}
	if errors.Is(noHome, errReclaiming) {
		err = noHome
	}
	if err != nil {
		a, err = r.degrade(s, q, capacity.Choice{}, err)
		return a, true, err
	}
	*void = pin
	return Assignment{}, false, noHome
}

// choose picks a node for the room and reserves a multiple of the room's cost there.
func (r *Resolver) choose(s *cluster.Snapshot, q request, times int64) (capacity.Choice, capacity.Reservation, error) {
	if q.Stay == (pinstore.Pin{}) && r.liveness.Reclaiming(time.Now()) {
		return capacity.Choice{}, capacity.Reservation{}, errReclaiming
	}
	return r.reserved.Place(s, q.Request, times)
}

// sourceOf returns the source of an assignment that was chosen now.
func sourceOf(home capacity.Choice) Source {
	if home.Owns {
		return Hash
	}
	return Override
}

// claim pins the room to home if it has no pin, or the void one. Without a home it
// reads the pin.
func (r *Resolver) claim(ctx context.Context, s *cluster.Snapshot, q request, home capacity.Choice, void pinstore.Pin) pinstore.Result {
	op := pinstore.Op{Partition: q.Partition, Room: q.Room}
	if home.Member != nil {
		op.If, op.Set, op.TTL = void, q.Need.Pin(pinstore.Pin{Incarnation: home.Incarnation(), Epoch: max(q.Stay.Epoch, q.least)}), r.cfg.PinTTL
		if void.Incarnation == op.Set.Incarnation {
			op.Set.Epoch = max(op.Set.Epoch, void.Epoch+1) // a new hosting
		}
	}
	isNew := home.Member != nil && q.Stay == (pinstore.Pin{})
	if isNew {
		r.limit(&op, home.Member, q)
	}
	res := r.swap(ctx, s, op, "")
	if res.Done && isNew && op.If == (pinstore.Pin{}) && r.cache.Generation() != q.generation {
		// The store gave notice of a loss of data before its answer, so the loss may have come before
		// the claim: the room may have a host that has yet to restore the room's pin.
		if res.Pin.Incarnation != r.self() || r.hosts.void(q.Room, res.Pin) {
			r.swap(ctx, s, pinstore.Op{Partition: q.Partition, Room: q.Room, If: res.Pin}, "")
		}
		return pinstore.Result{Err: errReclaiming}
	}
	return res
}

// limit has the store count what all instances place on a member, up to its hard ceiling.
func (r *Resolver) limit(op *pinstore.Op, m *cluster.Member, q request) {
	if r.cfg.HardCeiling == 0 || m.Capacity == 0 || capacity.ReportsNoLoad(m) {
		return
	}
	op.Limit = max(1, r.reserved.Limits.HardOf(m)-max(0, m.Load)) // a limit of 0 is none
	op.Units, op.Window = q.Cost, min(time.Minute, m.Age()+r.cfg.Settle)
}

// errFull says that the rooms that all instances have placed on a node leave no room there.
var errFull = fmt.Errorf("%w: all instances together have filled the nodes", ErrNoCapacity)

// verdict returns the verdict on the incarnation that a pin names. It asks the store
// only if gossip does not know the incarnation.
func (r *Resolver) verdict(ctx context.Context, s *cluster.Snapshot, at lease.Incarnation) (liveness.Verdict, error) {
	if v, known := r.liveness.Verdict(s, at, time.Now()); known {
		return v, nil
	}
	heartbeats, err := r.store.Store.Heartbeat(ctx, r.living(), r.liveness.TTL, []lease.Incarnation{at})
	if err != nil {
		return liveness.Dead, err
	}
	return r.liveness.Record(at, heartbeats[0], time.Now()), nil
}

// unfit reports whether the pin is to be replaced, although its node may live.
func (r *Resolver) unfit(s *cluster.Snapshot, q request, home capacity.Choice, pin pinstore.Pin) bool {
	return leavesDrained(s, q, home, pin) || r.outdated(q, pin)
}

// outdated reports whether the store has gone back to a copy of its data from before a
// later hosting of the room. This node knows of that hosting or, if this node begins to host the
// room, another node may.
func (r *Resolver) outdated(q request, pin pinstore.Pin) bool {
	switch {
	case pin.Number == 0:
		return false
	case pin.Epoch < q.least:
		return true
	}
	return q.hosts && pin.Incarnation == r.self() && r.cache.MayBeOlder(pin.Epoch)
}

// leavesDrained reports whether the pin names this node, which is drained and about to
// begin to host the room, and the room has another home to go to.
func leavesDrained(s *cluster.Snapshot, q request, home capacity.Choice, pin pinstore.Pin) bool {
	return q.hosts && drained(s.Self) && home.Member != nil && pin.Incarnation == incarnationOf(s.Self)
}

// drained reports whether a member gives up what it has.
func drained(m *cluster.Member) bool { return m.State == lease.Draining }

// degrade answers without the store: hosted here, otherwise the last known node,
// otherwise the node of an unanswered claim, otherwise the node of the hash, on which
// all instances agree.
//
// A claim that was sent and not answered may still take effect, so its node is the
// best guess. A claim that was not sent cannot.
func (r *Resolver) degrade(s *cluster.Snapshot, q request, home capacity.Choice, cause error) (Assignment, error) {
	r.cfg.Log.Debug("room resolved without the store", "room", q.Room, "err", cause)
	guess := func(at lease.Incarnation, reason string) (Assignment, error) {
		return r.assign(s, q.Room, pinstore.Pin{Incarnation: at}, Degraded, reason), nil
	}
	if h := r.hosts.get(q.Room); h != nil {
		return guess(h.self, "hosted here; the store does not answer")
	}
	if e := r.cache.Get(q.Room); e != nil && liveness.Live(s, e.Pin.Incarnation) != nil {
		return guess(e.Pin.Incarnation, lastKnown)
	}
	if errors.Is(cause, context.DeadlineExceeded) && home.Member != nil {
		r.cache.Assume(q.Room, q.Need.Pin(pinstore.Pin{Incarnation: home.Incarnation()}))
		return guess(home.Incarnation(), "claimed for this node; the store has not confirmed it")
	}
	owner, err := r.agent.Place(q.Room)
	if err == nil && q.Preferences != nil {
		owner, err = capacity.Best(s, q.Request)
	}
	if err != nil {
		return Assignment{}, err
	}
	at := incarnationOf(owner)
	r.cache.Assume(q.Room, q.Need.Pin(pinstore.Pin{Incarnation: at}))
	return guess(at, "owns the room's partition; the store does not answer")
}

const lastKnown = "last known node; the store does not answer"
