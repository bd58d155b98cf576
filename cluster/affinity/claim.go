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

// errReclaiming reports that a claim must wait. The store may have lost its data, so hosts restore their pins
// first.
var errReclaiming = errors.New("affinity: the store has just come back")

// ready returns a snapshot for looking up the room, or why that is not possible. ready succeeds even if no
// member can own partitions, because rooms with pins can still be found.
func (r *Resolver) ready(room string) (*cluster.Snapshot, error) {
	s := r.agent.Snapshot()
	if r.work.closed.Load() {
		return s, ErrClosed
	}
	if err := r.store.agreement.Refused(); err != nil {
		return s, err
	}
	if s.Fenced { // a fenced node cannot tell which nodes are dead
		return s, ErrFenced
	}
	_, err := r.agent.Place(room)
	if err == nil || errors.Is(err, cluster.ErrNoMembers) {
		err = nil
		if s.Table == nil { // the agent built its first table after Snapshot
			err = cluster.ErrNotReady
		}
	}
	return s, err
}

// request is a capacity.Request plus the data that decides whether the room's pin is valid.
type request struct {
	capacity.Request
	least  uint64 // the smallest epoch that a valid pin of the room can have, as far as this node knows
	serves bool   // this node is about to serve the room

	generation uint64 // generation of the pin cache before the lookup
}

func (r *Resolver) request(s *cluster.Snapshot, room string, n capacity.Need) request {
	return request{Request: capacity.Request{
		Room: room, Partition: placement.Of(room, s.Table.Partitions()), Need: n, Cost: r.cost(n),
		Preferences: capacity.NewPreferences(s, room, n, r.selector(room, n)), Rejected: r.store.agreement.Rejected(), Silent: r.silence.Silent(),
	}}
}

// settling repeatedly tries to find or claim a room's pin, until the store has a valid pin.
type settling struct {
	*Resolver
	s *cluster.Snapshot
	request
	known pinstore.Pin // pin of the room when the settling began
	void  pinstore.Pin // invalid pin that the next attempt replaces
}

// found is a valid pin of a room, with the source and the reason of the assignment.
type found struct {
	pin    pinstore.Pin
	source Source
	reason string
}

// After these errors, settle makes another attempt.
var (
	errVoid = errors.New("affinity: the pin is not valid")
	errFull = fmt.Errorf("%w: other nodes have filled it with rooms at the same time", ErrNoCapacity)
)

// maxAttempts is how often settle tries if other callers change the room's pin at the same time.
const maxAttempts = 3

// begin prepares to settle a room with the current snapshot.
func (t *settling) begin(room string, q question) error {
	t.generation = t.cache.Generation()
	s, err := t.ready(room)
	if err != nil {
		return err
	}
	t.s, t.Room, t.Partition, t.Need = s, room, placement.Of(room, s.Table.Partitions()), q.need
	e := t.cache.Get(room)
	t.serves, t.Firm, t.known, t.least = q.serves, q.firm, e.Known(), e.Least()
	return nil
}

// settle finds or claims a room's pin. If this node already knows a pin that names a live node, settle reads
// the pin. Otherwise it takes one round trip to claim the room or to read the claim of a faster instance. If
// the pin names a dead node or is older than the pin known here, settle replaces it by compare-and-swap.
func (t *settling) settle(ctx context.Context) (found, error) {
	if e := t.cache.Get(t.Room); !t.serves && e != nil && !t.cache.Lost(e) && liveness.Live(t.s, t.known.Incarnation) != nil {
		if got, err := t.read(ctx); !errors.Is(err, errVoid) {
			return got, err
		}
	}
	t.choosing()
	for range maxAttempts {
		got, err := t.attempt(ctx)
		for full := 1; errors.Is(err, errFull) && full < len(t.s.Members); full++ {
			got, err = t.attempt(ctx) // may choose another node
		}
		if !errors.Is(err, errVoid) {
			return got, err
		}
		t.replace()
	}
	return found{}, fmt.Errorf("%w: %q: gave up after %d concurrent changes", ErrChanged, t.Room, maxAttempts)
}

// read reads a room's pin. A read is cheaper than a claim, so settle uses it if the known pin names a live
// node.
func (t *settling) read(ctx context.Context) (found, error) {
	res := t.swap(ctx, t.s, pinstore.Op{Partition: t.Partition, Room: t.Room})
	switch {
	case res.Err != nil:
		t.choosing()
		return t.degrade(capacity.Choice{}, res.Err)
	case res.Pin.Epoch < t.least || liveness.Live(t.s, res.Pin.Incarnation) == nil:
		return found{}, errVoid
	}
	return found{res.Pin, Pinned, liveness.Alive.Reason()}, nil
}

// choosing prepares the choice of a node. If the store may have lost the room's pin, the room stays on its
// node, unless its hosting has ended.
func (t *settling) choosing() {
	t.need(t.Need)
	if e := t.cache.Get(t.Room); e != nil && t.cache.Lost(e) && e.Least() == e.Pin.Epoch {
		t.need(capacity.NeedIn(e.Pin).Joined(t.Need))
		t.Stay = e.Pin
	}
}

// replace makes the next attempt replace a void pin.
func (t *settling) replace() {
	if t.void != (pinstore.Pin{}) && !t.void.Released() {
		t.cfg.Log.Debug("pin names a dead node, resolving again", "room", t.Room, "from", t.void.Node)
	}
	t.need(capacity.NeedIn(t.void).Joined(t.Need))
	switch {
	case t.void.Number != 0 && t.void.Epoch < t.least:
		t.Stay = t.known
	case t.outdated(t.void):
		t.Stay = t.void
	}
}

// need replaces the request with a request for another need.
func (t *settling) need(n capacity.Need) {
	firm := t.Firm
	t.Request = t.Resolver.request(t.s, t.Room, n).Request
	t.Firm = firm
}

// attempt makes one claim for the room, at the node that choose returns.
func (t *settling) attempt(ctx context.Context) (found, error) {
	home, reserved, noHome := t.choose(t.s, t.request, 1)
	res := t.claim(ctx, home)
	switch {
	case res.Err != nil:
		t.reserved.Failed(reserved, res.Err)
		return t.degrade(home, res.Err)
	case res.Full:
		t.reserved.Cancel(reserved)
		t.reserved.Raise(home.Member.ID, res.Counted)
		t.void = res.Pin
		return found{}, errFull
	case res.Done && home.Member != nil:
		if home.Crowded {
			t.counts.crowded.Add(1)
		}
		return found{res.Pin, sourceOf(home), home.Reason}, nil
	}
	t.reserved.Cancel(reserved)
	return t.takeUp(ctx, res.Pin, home, noHome)
}

// takeUp handles an existing pin that an attempt has found. noHome is why no node can take the room, or nil.
func (t *settling) takeUp(ctx context.Context, pin pinstore.Pin, home capacity.Choice, noHome error) (found, error) {
	v, err := t.verdict(ctx, t.s, pin.Incarnation)
	unfit := err == nil && t.unfit(pin, home)
	switch {
	case unfit && (noHome == nil || t.Stay == (pinstore.Pin{})):
	case unfit && pin.Epoch < t.least: // no node can take the room, not even the node where it was
		return found{}, noHome
	case err == nil && v != liveness.Dead:
		return found{pin, Pinned, v.Reason()}, nil
	case errors.Is(noHome, errReclaiming):
		return t.degrade(capacity.Choice{}, noHome)
	case err != nil:
		t.void = pin // the pin may or may not be valid, but the room is not new
		return t.degrade(capacity.Choice{}, err)
	case noHome != nil:
		return found{}, noHome
	}
	t.void = pin
	return found{}, errVoid
}

// choose picks a node for the room and reserves a multiple of the room's cost there.
func (r *Resolver) choose(s *cluster.Snapshot, q request, times int64) (capacity.Choice, capacity.Reservation, error) {
	if q.Stay == (pinstore.Pin{}) && r.liveness.Reclaiming(time.Now()) {
		return capacity.Choice{}, capacity.Reservation{}, errReclaiming
	}
	return r.reserved.Place(s, q.Request, times)
}

// sourceOf returns the source of an assignment to a newly chosen node.
func sourceOf(home capacity.Choice) Source {
	if home.Owns {
		return Hash
	}
	return Override
}

// claim pins the room to home if the room has no pin or the pin t.void. If home has no Member, claim only
// reads the pin.
func (t *settling) claim(ctx context.Context, home capacity.Choice) pinstore.Result {
	op := pinstore.Op{Partition: t.Partition, Room: t.Room}
	if home.Member != nil {
		op.If, op.Set, op.TTL = t.void, t.Need.Pin(pinstore.Pin{Incarnation: home.Incarnation(), Epoch: max(t.Stay.Epoch, t.least)}), t.cfg.PinTTL
		if t.void.Incarnation == op.Set.Incarnation {
			op.Set.Epoch = max(op.Set.Epoch, t.void.Epoch+1) // a new hosting
		} else if t.void != (pinstore.Pin{}) {
			op.Set = capacity.Replacing(op.Set, t.whyVoid())
		}
	}
	isNew := home.Member != nil && t.Stay == (pinstore.Pin{})
	if isNew {
		t.limit(&op, home.Member)
	}
	res := t.swap(ctx, t.s, op)
	if res.Done && isNew && op.If == (pinstore.Pin{}) && t.cache.Generation() != t.generation {
		// The store reported a loss of data before it answered, so the loss may have happened before the
		// claim. The room's host may not have restored its pin yet, so withdraw the claim.
		if res.Pin.Incarnation != t.self() || t.hosts.void(t.Room, res.Pin) {
			t.swap(ctx, t.s, pinstore.Op{Partition: t.Partition, Room: t.Room, If: res.Pin})
		}
		return pinstore.Result{Err: errReclaiming}
	}
	return res
}

// whyVoid returns why the room moves away from the node of t.void.
func (t *settling) whyVoid() string {
	switch {
	case t.void.Released():
		return wasReleased
	case liveness.Live(t.s, t.void.Incarnation) == nil:
		return liveness.Ended(t.s, t.void.Incarnation)
	case t.void.Incarnation == incarnationOf(t.s.Self) && drained(t.s.Self):
		return drains
	}
	return olderPin
}

// limit makes the store reject the claim if the rooms that all instances have placed on a member would exceed
// its hard ceiling, or with Request.Firm its soft ceiling.
func (t *settling) limit(op *pinstore.Op, m *cluster.Member) {
	switch {
	case m.Capacity == 0 || capacity.ReportsNoLoad(m):
	case t.Firm:
		t.bound(op, m, t.reserved.Limits.SoftOf(m), t.Cost)
	case t.cfg.HardCeiling > 0:
		t.bound(op, m, t.reserved.Limits.HardOf(m), t.Cost)
	}
}

// bound makes the store reject an op if the rooms that all instances have placed on a member would exceed a
// ceiling.
func (r *Resolver) bound(op *pinstore.Op, m *cluster.Member, ceiling, cost int64) {
	op.Limit = max(1, ceiling-max(0, m.Load)) // a limit of 0 would mean no limit
	op.Units, op.Window = cost, min(time.Minute, m.Age()+r.cfg.Settle)
}

// unfit reports whether to replace the pin even if its node is alive.
func (t *settling) unfit(pin pinstore.Pin, home capacity.Choice) bool {
	return t.leavesDrained(pin, home) || t.outdated(pin)
}

// outdated reports whether the pin is older than the latest hosting of the room, because the store has
// reverted to an earlier copy of its data. If this node is about to host the room, a possible later hosting
// on another node is enough.
func (t *settling) outdated(pin pinstore.Pin) bool {
	switch {
	case pin.Number == 0:
		return false
	case pin.Epoch < t.least:
		return true
	}
	return t.serves && pin.Incarnation == t.self() && t.cache.MayBeOlder(pin.Epoch)
}

// leavesDrained reports whether the pin should move to another node because this node is draining.
// leavesDrained only returns true if this node is about to host the room and another node can take it.
func (t *settling) leavesDrained(pin pinstore.Pin, home capacity.Choice) bool {
	return t.serves && drained(t.s.Self) && home.Member != nil && pin.Incarnation == incarnationOf(t.s.Self)
}

// drained reports whether a member is draining.
func drained(m *cluster.Member) bool { return m.State == lease.Draining }

// verdict returns whether the incarnation that a pin names is alive. verdict only queries the store if the
// Detector has no answer.
func (r *Resolver) verdict(ctx context.Context, s *cluster.Snapshot, at lease.Incarnation) (liveness.Verdict, error) {
	if v, known := r.liveness.Verdict(s, at, time.Now()); known {
		return v, nil
	}
	if until, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until) // see storeclient.Until
		defer cancel()
	}
	heartbeats, err := r.store.Store.Heartbeat(ctx, r.living(), r.liveness.TTL, []lease.Incarnation{at})
	if err != nil {
		return liveness.Dead, err
	}
	return r.liveness.Record(at, heartbeats[0], time.Now()), nil
}

// degrade answers without the store. degrade returns the first of these nodes that exists: this node if it
// hosts the room, the last known node, the node of an unanswered claim, or the owner of the room's partition,
// which is the same on all instances.
//
// A claim that was sent but not answered may still take effect, so its node is the best guess. A claim that
// was not sent cannot take effect.
func (t *settling) degrade(home capacity.Choice, cause error) (found, error) {
	t.cfg.Log.Debug("room resolved without the store", "room", t.Room, "err", cause)
	guess := func(at lease.Incarnation, reason string) (found, error) {
		return found{pinstore.Pin{Incarnation: at}, Degraded, reason}, nil
	}
	if h := t.hosts.get(t.Room); h != nil {
		return guess(h.self, "hosted here; the store does not answer")
	}
	if e := t.cache.Get(t.Room); e != nil && liveness.Live(t.s, e.Pin.Incarnation) != nil {
		return guess(e.Pin.Incarnation, lastKnown)
	}
	if t.cfg.StrictCeiling && t.known == (pinstore.Pin{}) && t.void == (pinstore.Pin{}) { // no pin is known, so the room is new
		return found{}, t.unplaced(cause)
	}
	if errors.Is(cause, context.DeadlineExceeded) && home.Member != nil {
		t.cache.Assume(t.Room, t.Need.Pin(pinstore.Pin{Incarnation: home.Incarnation()}))
		return guess(home.Incarnation(), "claimed for this node; the store has not confirmed it")
	}
	owner, err := t.agent.Place(t.Room)
	if err == nil && t.Preferences != nil {
		owner, err = capacity.Best(t.s, t.Request)
	}
	if err != nil {
		return found{}, err
	}
	at := incarnationOf(owner)
	t.cache.Assume(t.Room, t.Need.Pin(pinstore.Pin{Incarnation: at}))
	return guess(at, "owns the room's partition; the store does not answer")
}

// unplaced returns the error for a new room that StrictCeiling refuses because the store did not answer.
func (t *settling) unplaced(cause error) error {
	t.counts.unplaced.Add(1)
	if !errors.Is(cause, pinstore.ErrStore) {
		cause = fmt.Errorf("%w: %w", pinstore.ErrStore, cause)
	}
	return fmt.Errorf("affinity: the strict ceiling refuses the new room %q: %w", t.Room, cause)
}

const lastKnown = "last known node; the store does not answer"
