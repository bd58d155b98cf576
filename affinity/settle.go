package affinity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// settle is the way of a room that is not known here to be pinned: claim it, or
// read the claim of whoever came first, in one round trip. A pin that names a
// dead node is void and is replaced, if nobody else was faster.
func (r *Resolver) settle(ctx context.Context, room string, d Demand) (Assignment, error) {
	s, err := r.ready(room)
	if err != nil {
		return Assignment{}, err
	}
	q := r.question(s, room, d.Size)
	if m := r.known.get(room); m != nil && r.known.lost(m) {
		q.stay = m.pin
	}
	var void Pin // what the claim replaces
	for range 3 {
		a, settled, err := r.attempt(ctx, s, q, &void)
		if settled || err != nil {
			return a, err
		}
		q.stay, q.size = Pin{}, max(q.size, void.Size)
		q.cost = r.cfg.Cost(q.size)
		if void != (Pin{}) && !void.released() {
			r.log.Debug("room re-resolving: its node is gone", "room", room, "from", void.Node)
		}
	}
	return Assignment{}, fmt.Errorf("%w, again and again: %q", ErrChanged, room)
}

// attempt claims the room once. It is not settled if what stands instead is void;
// then the next attempt is to replace that.
func (r *Resolver) attempt(ctx context.Context, s *cluster.Snapshot, q question, void *Pin) (a Assignment, settled bool, err error) {
	home, at, noHome := r.reserve(s, q)
	res := r.claim(ctx, s, q, home, *void)
	switch {
	case res.Err != nil:
		if !errors.Is(res.Err, context.DeadlineExceeded) { // else it may yet be made
			r.cancel(home, q, at)
		}
		a, err = r.degrade(s, q, home, res.Err)
		return a, true, err
	case res.Done && home.member != nil:
		return r.assign(s, q.room, res.Pin, home.source, home.reason), true, nil
	}
	r.cancel(home, q, at)
	v, err := r.judge(ctx, s, res.Pin.Incarnation)
	if err == nil && v != dead {
		return r.assign(s, q.room, res.Pin, Pinned, v.reason()), true, nil
	}
	if errors.Is(noHome, errEarly) {
		err = noHome
	}
	if err != nil {
		a, err = r.degrade(s, q, choice{}, err)
		return a, true, err
	}
	*void = res.Pin
	return Assignment{}, false, noHome
}

// Why a room has moved.
const (
	nodeGone     = "its node is gone"
	movedByOther = "moved by another instance"
)

// claim pins the room to its home if the void pin still stands, or if none does;
// without a home it only reads. Whatever pin there is comes back.
func (r *Resolver) claim(ctx context.Context, s *cluster.Snapshot, q question, home choice, void Pin) Result {
	op := Op{Partition: q.partition, Room: q.room}
	if home.member != nil {
		op.If, op.Set, op.TTL = void, Pin{Incarnation: home.life(), Epoch: q.stay.Epoch, Size: q.size}, r.cfg.PinTTL
	}
	return r.swapKnown(ctx, s, op, "")
}

// swapKnown performs an op on the join path, remembers what stands after it, and
// tells if the room has moved.
func (r *Resolver) swapKnown(ctx context.Context, s *cluster.Snapshot, op Op, why string) Result {
	asked := r.known.begin(op.Room)
	res := r.swapOne(ctx, op)
	if m, ok := r.learn(s, op, asked, res, why); ok {
		r.tell(m)
	}
	return res
}

// learn remembers what an op brought to light, and returns whether the room has
// moved, and nobody here has told so yet.
func (r *Resolver) learn(s *cluster.Snapshot, op Op, asked *memo, res Result, why string) (m Moved, moved bool) {
	if res.Err != nil {
		return m, false
	}
	if res.Pin.released() {
		r.known.learn(op.Room, asked, Pin{}, time.Time{})
		return m, false
	}
	news := r.known.learn(op.Room, asked, res.Pin, time.Now().Add(res.Fresh))
	from := asked.pin.Incarnation
	if op.If.Incarnation != (lease.Incarnation{}) && !op.If.released() {
		from = op.If.Incarnation
	}
	if !news || from == (lease.Incarnation{}) || res.Pin.Incarnation == (lease.Incarnation{}) || res.Pin.Incarnation == from {
		return m, false
	}
	switch {
	case why != "":
	case findLife(s, from) == nil:
		why = nodeGone
	default:
		why = movedByOther
	}
	return Moved{op.Room, op.Partition, from, res.Pin.Incarnation, why, res.Pin.Epoch}, true
}

// errEarly says that a claim has to wait: the store may have lost its data, and
// then those who host rooms pin them again first.
var errEarly = errors.New("affinity: the store was away, and has just come back")

// reserve chooses a home and reserves the room's cost there.
func (r *Resolver) reserve(s *cluster.Snapshot, q question) (home choice, at time.Time, err error) {
	return r.reserveTimes(s, q, 1)
}

// reserveTimes reserves a multiple of the cost.
func (r *Resolver) reserveTimes(s *cluster.Snapshot, q question, times int64) (home choice, at time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at = time.Now()
	if r.trust.early(at) && q.stay == (Pin{}) {
		return home, at, errEarly
	}
	if home, err = choose(s, q, r.limits, r.reserved.of); err == nil {
		r.reserved.add(home.member.ID, q.cost*times, at)
	}
	return home, at, err
}

func (r *Resolver) cancel(home choice, q question, at time.Time) {
	if home.member != nil {
		r.cancelUnits(home, q.cost, at)
	}
}

func (r *Resolver) cancelUnits(home choice, units int64, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved.cancel(home.member.ID, units, at)
}

// degrade answers without the store: that the room is hosted here, else where it
// was last known to live, else where it may have been claimed, else by the hash,
// which all instances agree on.
//
// A claim that went unanswered may still take effect, so its home is the best
// guess; a claim that was not even sent cannot.
func (r *Resolver) degrade(s *cluster.Snapshot, q question, home choice, cause error) (Assignment, error) {
	r.log.Debug("room resolved without the store", "room", q.room, "err", cause)
	r.mu.Lock()
	h := r.hosted[q.room]
	r.mu.Unlock()
	if h != nil {
		return r.assign(s, q.room, Pin{Incarnation: h.life}, Degraded, "it is hosted here; the store does not answer"), nil
	}
	if m := r.known.get(q.room); m != nil && findLife(s, m.pin.Incarnation) != nil {
		return r.assign(s, q.room, Pin{Incarnation: m.pin.Incarnation}, Degraded, "it was known to live here when the store was last heard"), nil
	}
	if errors.Is(cause, context.DeadlineExceeded) && home.member != nil {
		r.known.assume(q.room, Pin{Incarnation: home.life(), Size: q.size})
		return r.assign(s, q.room, Pin{Incarnation: home.life()}, Degraded, "it was claimed for this node, and the store has not answered"), nil
	}
	owner, err := s.Place(q.room)
	if err != nil {
		return Assignment{}, err
	}
	life := lease.Incarnation{Node: owner.ID, Number: owner.Incarnation}
	r.known.assume(q.room, Pin{Incarnation: life, Size: q.size})
	return r.assign(s, q.room, Pin{Incarnation: life}, Degraded, "this node owns its partition; the store does not answer"), nil
}

// A verdict on the life that a pin names.
type verdict int

const (
	dead   verdict = iota
	lives          // gossip says so
	speaks         // only the store says so: gossip is cut
)

func (v verdict) reason() string {
	if v == speaks {
		return "its pin stands: gossip has lost its node, and by the store it is alive, or cannot be judged yet"
	}
	return "its pin stands"
}

// judge tells whether a life is one that rooms can live on. Death by gossip
// alone is not enough: on the wrong side of a split everybody else looks dead,
// and their rooms must not be taken from them as long as they reach the store.
func (r *Resolver) judge(ctx context.Context, s *cluster.Snapshot, life lease.Incarnation) (verdict, error) {
	if v, sure := r.judgeHere(s, life); sure {
		return v, nil
	}
	signed, err := r.sign(ctx, life)
	if err != nil {
		return dead, err
	}
	return r.record(life, signed[0]), nil
}

// judgeHere judges without asking the store, if it can.
func (r *Resolver) judgeHere(s *cluster.Snapshot, life lease.Incarnation) (v verdict, sure bool) {
	switch {
	case life.Number == 0: // no pin, or one that was released
		return dead, true
	case findLife(s, life) != nil:
		return lives, true
	case find(s, life.Node) != nil:
		return dead, true // a later life has taken its place
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.cut[life]; ok {
		return speaks, true
	}
	at, ok := r.gone[life]
	return dead, ok && time.Since(at) < r.agent.Config().LeaseTTL
}

// record remembers what the store said of a life that is dead by gossip. While
// this node has not signed for long enough itself, that another has not proves
// nothing: the store may have been away for all.
func (r *Resolver) record(life lease.Incarnation, signed bool) verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	if signed || !r.trust.judges(time.Now(), r.agent.Config().LeaseTTL) {
		r.cut[life] = struct{}{}
		delete(r.gone, life)
		return speaks
	}
	delete(r.cut, life)
	r.gone[life] = time.Now()
	return dead
}

// sign tells the store that this node is alive, if it is, and asks it for others.
func (r *Resolver) sign(ctx context.Context, ask ...lease.Incarnation) ([]bool, error) {
	var self lease.Incarnation
	if r.agent.Live() && !r.closed.Load() {
		self = r.selfLife()
	}
	return r.store.Sign(ctx, self, r.agent.Config().LeaseTTL, ask)
}

// read returns a room's pin from the store.
func (r *Resolver) read(ctx context.Context, s *cluster.Snapshot, room string) (Pin, error) {
	ctx, cancel := r.budget(ctx)
	defer cancel()
	res := r.swapKnown(ctx, s, Op{Partition: r.question(s, room, 0).partition, Room: room}, "")
	if res.Pin.released() {
		res.Pin = Pin{}
	}
	return res.Pin, res.Err
}

// tell publishes that a room has moved.
func (r *Resolver) tell(m Moved) {
	r.log.Debug("room moved", "room", m.Room, "from", m.From.Node, "to", m.To.Node, "epoch", m.Epoch,
		"reason", m.Reason, "pin_ttl", r.cfg.PinTTL)
	r.moves.publish([]Moved{m})
}
