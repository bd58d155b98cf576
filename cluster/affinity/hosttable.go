package affinity

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/pincache"
	"github.com/roost-cluster/roost/cluster/affinity/internal/rebalance"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/placement"
)

// hostTable contains the rooms that this node hosts. Its lock also guards most fields of the Hostings. When a
// participant joins a hosted room, Host only takes the room's own lock.
type hostTable struct {
	cache *pincache.Cache // of the Resolver

	mu     sync.Mutex
	rooms  map[string]*Hosting
	byName sync.Map           // copy of rooms that get reads without a lock; written under mu
	fences atomic.Uint64      // how many of the agent's fences the table has handled; written under mu
	closed error              // why the table accepts no more hostings; nil while it does
	ends   [256]atomic.Uint64 // see endsOf; written under mu

	returns uint64 // how often shards of the store came back
}

func (t *hostTable) get(room string) *Hosting {
	if h, ok := t.byName.Load(room); ok {
		return h.(*Hosting)
	}
	return nil
}

// errHostingEnded reports that the pin for a new hosting may have been deleted in the meantime.
var errHostingEnded = errors.New("affinity: the room is no longer hosted here")

// open adds h and returns it, or returns the existing Hosting of the room. fences is the agent's number of
// fences. If it differs from the table's number, open fails with ErrFenced. ends is the value of the counter
// endsOf(room) before the caller queried the store. If a hosting with the same pin may have ended since then,
// for example because another caller with the same answer called Release, open fails with errHostingEnded.
func (t *hostTable) open(h *Hosting, fences, ends uint64) (*Hosting, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch there := t.rooms[h.room]; {
	case t.closed != nil:
		return nil, t.closed
	case fences != t.fences.Load():
		return nil, ErrFenced
	case there != nil:
		return there, nil
	case h.pin.Epoch != 0 && ends != t.endsOf(h.room).Load() && !t.stands(h):
		return nil, errHostingEnded
	}
	if t.rooms == nil {
		t.rooms = make(map[string]*Hosting)
	}
	t.rooms[h.room] = h
	t.byName.Store(h.room, h)
	return h, nil
}

// end ends a hosting. end returns false if the hosting had already ended.
func (t *hostTable) end(h *Hosting, why error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endLocked(h, why)
}

// release ends a hosting on request and returns the pin to delete, unless the hosting
// has ended already.
func (t *hostTable) release(h *Hosting) (pin pinstore.Pin, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return h.pin, t.releaseLocked(h)
}

func (t *hostTable) releaseLocked(h *Hosting) bool {
	if !t.endLocked(h, ErrReleased) {
		return false
	}
	t.voidLocked(h.room, h.pin)
	return true
}

// void prevents new Hostings with a pin that the caller is about to delete. void returns false if this node
// hosts the room.
func (t *hostTable) void(room string, pin pinstore.Pin) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rooms[room] != nil {
		return false
	}
	t.voidLocked(room, pin)
	return true
}

func (t *hostTable) voidLocked(room string, pin pinstore.Pin) {
	if pin.Epoch != 0 { // 0: the store has not confirmed that there is a pin
		t.cache.Void(room, pin)
		t.endsOf(room).Add(1)
	}
}

// stands reports whether the pin of h is known to exist. If the cache has no such entry, a late answer may
// have reported a pin that has been deleted since then.
func (t *hostTable) stands(h *Hosting) bool {
	e := t.cache.Get(h.room)
	return e != nil && !e.Late && e.Pin.Incarnation == h.self && e.Least() == h.pin.Epoch
}

// endsOf returns the counter of ended hostings for a room. Several rooms share each counter.
func (t *hostTable) endsOf(room string) *atomic.Uint64 {
	return &t.ends[placement.Of(room, len(t.ends))]
}

// reserve sets the units that are reserved for each hosted room, which are 0 for rooms that are not in units.
// If release is set, reserve releases the hostings that only a reservation needed, and returns them with their
// pins to delete. holds reports whether a reservation holds other hostings.
func (t *hostTable) reserve(units map[string]int64, release bool) (over map[*Hosting]pinstore.Pin, holds bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for room, h := range t.rooms {
		ended, held := h.reserve(units[room], release)
		if holds = holds || held; !ended {
			continue
		}
		if over == nil {
			over = make(map[*Hosting]pinstore.Pin)
		}
		over[h] = h.pin
		t.releaseLocked(h)
	}
	return over, holds
}

// releaseIdle releases a hosting that has no participants, has no reservation and was not touched for the
// duration idle. If the hosting was touched more recently, rest is the remaining time.
func (t *hostTable) releaseIdle(h *Hosting, idle time.Duration, now time.Time) (pin pinstore.Pin, ok bool, rest time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.served > 0 || h.err != nil {
		h.lingers = false
		return pin, false, 0
	}
	if rest = h.lastTouched().Add(idle).Sub(now); rest > 0 {
		return pin, false, rest
	}
	if h.hold() {
		h.lingers = false
		return pin, false, 0
	}
	return h.pin, t.releaseLocked(h), 0
}

func (t *hostTable) endLocked(h *Hosting, why error) bool {
	if h.err != nil {
		return false
	}
	h.err = why
	close(h.lost)
	if t.rooms[h.room] == h {
		delete(t.rooms, h.room)
		t.byName.Delete(h.room)
	}
	t.endsOf(h.room).Add(1)
	return true
}

// endAll ends all hostings and returns their number.
func (t *hostTable) endAll(why error) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endAllLocked(why)
}

func (t *hostTable) endAllLocked(why error) int {
	n := len(t.rooms)
	for _, h := range t.rooms {
		t.endLocked(h, why)
	}
	return n
}

// fence ends all hostings if the agent has been fenced since the last call, because other nodes may have
// moved this node's rooms.
func (t *hostTable) fence(fences uint64) (ended int) {
	if fences <= t.fences.Load() {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if fences <= t.fences.Load() {
		return 0
	}
	ended = t.endAllLocked(ErrFenced)
	t.fences.Store(fences) // stored last, so that a caller who reads the new value finds no earlier hosting
	return ended
}

// close ends all hostings and returns their number. After close, the table accepts no hostings, because a
// caller of open may have checked the agent before it stopped.
func (t *hostTable) close(why error) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = why
	return t.endAllLocked(why)
}

// names returns the hosted rooms in no particular order.
func (t *hostTable) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make([]string, 0, len(t.rooms))
	for room := range t.rooms {
		names = append(names, room)
	}
	return names
}

// needs returns the hosted rooms with their sizes and needs. The caller must set Units, because Cost must not
// be called under the lock.
func (t *hostTable) needs() (rooms []RoomLoad, needs []capacity.Need) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.rooms {
		n := h.needed()
		rooms, needs = append(rooms, RoomLoad{Room: h.room, Size: n.Size()}), append(needs, n)
	}
	return rooms, needs
}

// movable returns the hosted rooms that may move to another node, with their needs. A room that has just moved
// here stays, and so does a room whose pin the store has not confirmed, or does not answer about. The caller must
// set Units.
func (t *hostTable) movable(now time.Time, generation uint64) (rooms []rebalance.Room, needs map[string]capacity.Need) {
	t.mu.Lock()
	defer t.mu.Unlock()
	needs = make(map[string]capacity.Need)
	for _, h := range t.rooms {
		if h.pin.Epoch == 0 || h.generation != generation || t.silent(h, generation) || h.verifies(now) || (!h.arrived.IsZero() && now.Sub(h.arrived) < rebalance.Rest) {
			continue
		}
		n := h.needed()
		rooms, needs[h.room] = append(rooms, rebalance.Room{Name: h.room, Size: n.Size()}), n
	}
	return rooms, needs
}

// verifies reports whether the pin of h is due to be read. The caller must hold the table's lock.
func (h *Hosting) verifies(now time.Time) bool { return !h.verify.IsZero() && now.After(h.verify) }

// pinOf returns the pin of a hosting.
func (t *hostTable) pinOf(h *Hosting) pinstore.Pin {
	t.mu.Lock()
	defer t.mu.Unlock()
	return h.pin
}

func (t *hostTable) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rooms)
}

// unconfirmed reports whether the store still has to confirm a pin of a hosted room in the given generation.
// A pin is ignored if several calls for the pin in a row got no answer. The shard of such a pin is down and
// must not delay the rooms on other shards.
func (t *hostTable) unconfirmed(generation uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.rooms {
		if h.generation != generation && !t.silent(h, generation) {
			return true
		}
	}
	return false
}

// silentAfter is the number of unanswered calls in a row after which the store is considered silent about a
// pin.
const silentAfter = 3

// unheard counts the unanswered calls in a row for a pin.
type unheard struct {
	phase uint64 // the phase in which they were counted
	times int
}

// phase returns a number that grows with each generation of the pin cache, and each time a shard answers
// again.
func (t *hostTable) phase(generation uint64) uint64 { return generation + t.returns }

// silent reports whether the store is silent about the pin of h. The caller must hold the table's lock.
func (t *hostTable) silent(h *Hosting, generation uint64) bool {
	return h.unheard.times >= silentAfter && h.unheard.phase == t.phase(generation)
}

// unanswered records that a call for the pin of h got no answer. The keeper will read the pin again.
func (t *hostTable) unanswered(h *Hosting, generation uint64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if phase := t.phase(generation); h.unheard.phase != phase {
		h.unheard = unheard{phase: phase}
	}
	h.unheard.times++
	h.verify = now
}

// answered records an answer about the pin of h. If the store was silent about the pin before, its shard has
// come back, so all pins on that shard must be confirmed again. The caller must hold the table's lock.
func (t *hostTable) answered(h *Hosting, generation uint64) {
	if t.silent(h, generation) {
		t.returns++
	}
	h.unheard = unheard{}
}

// due returns the hostings whose pins must be written and the hostings whose pins must be read, at most limit
// in total. A pin must be written when it is older than age. If the store is silent about several pins, due
// returns one of them as probe, because calls for the others would time out as well. due also ends hostings
// that were idle for too long.
func (t *hostTable) due(now time.Time, age time.Duration, limit int, generation uint64) (write, read []*Hosting, probe *Hosting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.rooms {
		switch {
		case h.lapse > 0 && now.Sub(h.lastTouched()) > h.lapse && !h.hold():
			t.endLocked(h, ErrLapsed)
		case t.silent(h, generation):
			probe = h
		case len(write)+len(read) == limit: // the next call returns the remaining hostings
		case h.pin.Epoch == 0 || now.Sub(h.written) > age || h.outgrew():
			write = append(write, h)
		case !h.verify.IsZero() && now.After(h.verify):
			read = append(read, h)
		}
	}
	return write, read, probe
}

// outgrew reports whether the pin of h is to be written because another node would choose a new node for a
// different room. The caller must hold the table's lock.
func (h *Hosting) outgrew() bool {
	n := h.needed()
	return n.Outgrew(h.kept) || n.Ahead != h.kept.Ahead
}

// ops calls opOf for each hosting under the lock, and returns the ops.
func (t *hostTable) ops(hosted []*Hosting, opOf func(*Hosting) pinstore.Op) []pinstore.Op {
	t.mu.Lock()
	defer t.mu.Unlock()
	ops := make([]pinstore.Op, len(hosted))
	for i, h := range hosted {
		ops[i] = opOf(h)
		ops[i].Partition, ops[i].Room = h.partition, h.room
	}
	return ops
}

// verifyAt schedules a read of the pin of h.
func (t *hostTable) verifyAt(h *Hosting, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.verify = at
}

// answer is the store's answer about the pin of a hosted room.
type answer struct {
	op         pinstore.Op
	res        pinstore.Result
	asked      time.Time
	generation uint64 // of the pin cache, before the store was asked
	older      bool   // the pin may be from before the store lost data, or belongs to a hosting that has ended
}

// took reports whether the answer's op pinned the room to its host.
func (a *answer) took(h *Hosting) bool { return a.res.Done && a.op.Set.Incarnation == h.self }

// taken describes what an answer means for a hosting.
type taken struct {
	over      bool // the hosting has ended
	wasSure   bool // the store had confirmed the pin in the current generation
	sameOther bool // the store's previous answer was the same pin of another node
	outdated  bool // the store has reverted to a copy of its data from before this hosting
	anew      bool // the room was released or moved, and then pinned here again
}

// take records an answer and returns what it means for the hosting.
func (t *hostTable) take(h *Hosting, a answer, generation uint64) (is taken) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answered(h, generation)
	if is.over = h.err != nil; is.over {
		return is // the pin and its epoch may belong to a later hosting
	}
	is.wasSure = h.pin.Epoch != 0 && h.generation == generation
	if a.res.Pin.Epoch < h.pin.Epoch {
		is.outdated = true
		return is
	}
	if a.res.Pin.Incarnation != h.self {
		is.sameOther, h.otherEpoch = h.otherEpoch == a.res.Pin.Epoch, a.res.Pin.Epoch
		return is
	}
	h.otherEpoch = 0
	is.outdated = h.pin.Epoch == 0 && a.older
	_, replaces := capacity.Replaced(a.res.Pin)
	is.anew = is.wasSure && a.res.Pin.Epoch > h.pin.Epoch && !a.took(h) && replaces
	if !is.outdated && !is.anew {
		h.confirmed(a)
	}
	return is
}

// confirmed records that the store has confirmed the pin of h. The caller must hold the table's lock.
func (h *Hosting) confirmed(a answer) {
	if a.res.Pin.Epoch != h.pin.Epoch {
		h.written = time.Time{} // another caller has claimed the room with another need, so write the pin again
	}
	if _, moved := capacity.Replaced(a.res.Pin); h.pin.Epoch == 0 && moved {
		h.arrived = a.asked // the store did not answer when the room was hosted
	}
	h.pin.Epoch, h.generation = a.res.Pin.Epoch, a.generation
	if a.took(h) {
		h.written, h.pin.Size, h.pin.Needs = a.asked, a.op.Set.Size, a.op.Set.Needs
		h.kept = capacity.NeedIn(h.pin)
	}
	if h.verify.After(a.asked) {
		return // keep a scheduled read: see Resolver.recheck
	}
	// A store that sends notifications returns a long Fresh, and other stores return a short Fresh.
	h.verify = time.Time{}
	if a.res.Fresh > 0 {
		h.verify = a.asked.Add(5 * a.res.Fresh)
	}
}

// doubt records that an unanswered op may have given the pin of h a new epoch.
func (t *hostTable) doubt(h *Hosting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.generation = math.MaxUint64
}
