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

// Hosting says that this node serves a room, until Lost is closed. Its pin is
// kept alive meanwhile.
type Hosting struct {
	r         *Resolver
	room      string
	partition placement.Partition
	life      lease.Incarnation // of this node, when it took the room up
	lost      chan struct{}

	// Guarded by Resolver.mu.
	pin       Pin // with epoch 0 while the store has not confirmed it
	size      int
	touched   time.Time
	lapse     time.Duration // 0 = never
	refreshed time.Time     // when the pin was last written
	verify    time.Time     // when it is to be read again; zero = when notified
	era       uint64        // of the store, when it last said that the pin stands
	err       error
}

// Host is for the node that is about to serve a room, when a participant has been
// sent to it: it checks with the store that the room lives here, and pins it if
// it is not pinned anywhere. The Hosting is the same for all who ask while it
// lasts, and then costs no round trip; d updates its size.
//
// It fails with a *NotOwnerError if the room lives elsewhere, with ErrFenced if
// this node's own lease does not hold, and with what Resolve fails with. If the
// store does not answer, the room may be hosted where it is known to live or
// where the hash says; when the store is back, two that did so find out, and one
// has Lost it with ErrSplit.
func (r *Resolver) Host(ctx context.Context, room string, d Demand) (*Hosting, error) {
	ctx, end := r.begin(ctx, "host", room)
	h, a, err := r.host(ctx, room, d)
	if end != nil {
		end(a, err)
	}
	return h, err
}

func (r *Resolver) host(ctx context.Context, room string, d Demand) (_ *Hosting, a Assignment, _ error) {
	if err := check(room, d); err != nil {
		return nil, a, err
	}
	switch {
	case r.closed.Load():
		return nil, a, ErrClosed
	case !r.agent.Live():
		r.loseAll(ErrFenced)
		return nil, a, ErrFenced
	}
	r.checkFence() // it may have been stopped, and live again since
	r.counts.requests.Add(1)
	if h := r.hosting(room); h != nil {
		h.touch(d.Size)
		a = Assignment{Room: room, Partition: h.partition, Incarnation: h.life, Source: Cached, Reason: "it is hosted here"}
		return h, a, nil
	}
	era := r.known.era.Load() // before the answer: it says nothing of a store that is lost after it
	a, err := r.ask(ctx, &r.hosts, room, d, func() (Assignment, bool) { return r.justLearned(room) })
	if err != nil {
		return nil, a, err
	}
	if a.Incarnation != r.selfLife() {
		if a.Node == r.self {
			return nil, a, ErrFenced // a later process of this node has taken over
		}
		r.counts.misrouted.Add(1)
		return nil, a, &NotOwnerError{Owner: a, Split: find(r.agent.Snapshot(), a.Node) == nil}
	}
	h, err := r.open(a, d.Size, era)
	return h, a, err
}

// justLearned answers by a pin of this node that Resolve was told of a moment ago,
// as it is when one request does both. Should it have changed since, the hosting
// finds out at once: see open.
func (r *Resolver) justLearned(room string) (a Assignment, ok bool) {
	const moment = 200 * time.Millisecond
	m := r.known.get(room)
	if m == nil || time.Since(m.learned) > moment || !r.known.isFresh(m, time.Now()) || m.pin.Incarnation != r.selfLife() {
		return a, false
	}
	return r.assign(r.agent.Snapshot(), room, m.pin, Pinned, "its pin stands"), true
}

func (r *Resolver) hosting(room string) *Hosting {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hosted[room]
}

func (r *Resolver) open(a Assignment, size int, era uint64) (*Hosting, error) {
	now := time.Now()
	h := &Hosting{
		r: r, room: a.Room, partition: a.Partition, life: a.Incarnation, lost: make(chan struct{}),
		pin: Pin{a.Incarnation, a.Epoch, size}, size: size, touched: now, era: era,
	}
	if a.Source == Hash || a.Source == Override {
		h.refreshed = now // by the claim; a pin that stood may be about to expire
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed.Load():
		return nil, ErrClosed
	case r.fences != r.agent.Snapshot().Stats.Fences || !r.agent.Live():
		return nil, ErrFenced
	case r.hosted[a.Room] != nil:
		return r.hosted[a.Room], nil
	}
	r.hosted[a.Room] = h
	// The pin may have been changed between the answer and now, when nobody here
	// would have listened for it.
	r.dirty[a.Room] = struct{}{}
	r.signal(r.wake)
	return h, nil
}

// Room returns the room's name.
func (h *Hosting) Room() string { return h.room }

// Epoch returns a number that grows with each home that the room gets, for
// fencing in stores of your own. It is 0 while the store has not confirmed that
// the room lives here.
func (h *Hosting) Epoch() uint64 {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	return h.pin.Epoch
}

// Touch tells how many participants the room has now. It does not wait, and a
// size that is out of range counts as the nearest one.
func (h *Hosting) Touch(size int) {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.size = min(max(0, size), MaxSize)
	h.touched = time.Now()
}

// touch is Touch for a demand, whose size may be unknown.
func (h *Hosting) touch(size int) {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.touched = time.Now()
	if size > 0 {
		h.size = size
	}
}

// LapseAfter makes the hosting end with ErrLapsed when it has not been touched
// for d; its pin then expires by itself. It is for hosts that cannot say when a
// room ends, or that may not live to. 0, the default: never.
func (h *Hosting) LapseAfter(d time.Duration) {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.lapse = max(0, d)
}

// Lost is closed when this node no longer hosts the room. Err tells why: where a
// *NotOwnerError names another node, send the participants there.
func (h *Hosting) Lost() <-chan struct{} { return h.lost }

// Err returns why the room is not hosted here any more: a *NotOwnerError,
// ErrFenced, ErrLapsed, ErrReleased or ErrClosed; or nil while it is.
func (h *Hosting) Err() error {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	return h.err
}

// Release ends the room: its pin is deleted, unless it is somebody else's by now
// (ErrChanged). If the store does not answer (ErrStore), it expires by itself.
func (h *Hosting) Release(ctx context.Context) error {
	h.r.mu.Lock()
	pin := h.pin
	over := h.err != nil
	h.end(ErrReleased)
	h.r.mu.Unlock()
	if over {
		return nil
	}
	err := h.r.unpin(ctx, Op{Partition: h.partition, Room: h.room, If: pin})
	h.r.recheck(h.room, err != nil)
	return err
}

// recheck has the pin of a room looked at that is hosted here: Host may have come
// between the end of a hosting and the deletion of its pin, which nobody notifies
// this node of. A deletion that went unanswered may take effect later.
func (r *Resolver) recheck(room string, later bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hosted[room]
	if h == nil {
		return
	}
	r.dirty[room] = struct{}{}
	r.signal(r.wake)
	if later {
		h.verify = time.Now().Add(bulkTime)
	}
}

// unpin deletes a pin if it stands.
func (r *Resolver) unpin(ctx context.Context, op Op) error {
	ctx, cancel := r.budget(ctx)
	defer cancel()
	res := r.swapKnown(ctx, r.agent.Snapshot(), op, "")
	if res.Err == nil && !res.Done && res.Pin != (Pin{}) {
		return fmt.Errorf("%w: %q", ErrChanged, op.Room)
	}
	return res.Err
}

// releasedFor is how long the mark of a released room stands: long enough for its
// host to have seen it, and for its notification to be missed once.
const releasedFor = 30 * time.Second

// Release ends a room, wherever it lives: its pin is void from now on, and whoever
// hosts it has Lost it, with ErrReleased. It fails with ErrNoPin, ErrChanged or
// ErrStore.
func (r *Resolver) Release(ctx context.Context, room string) error {
	if h := r.hosting(room); h != nil {
		return h.Release(ctx)
	}
	pin, s, err := r.pinOf(ctx, room)
	if err != nil {
		return err
	}
	// A pin that is merely gone looks like one that the store has lost, and its
	// host would make it again.
	op := Op{Partition: r.question(s, room, 0).partition, Room: room, If: pin}
	op.Set, op.TTL = Pin{Incarnation: lease.Incarnation{Node: pin.Node}}, releasedFor
	ctx, cancel := r.budget(ctx)
	defer cancel()
	res := r.swapKnown(ctx, s, op, "")
	if res.Err == nil && !res.Done {
		return fmt.Errorf("%w: %q", ErrChanged, room)
	}
	return res.Err
}

// Move moves a room to another node on request, unless somebody else moves it
// meanwhile (ErrChanged). Its host has Lost it. It fails with ErrNoPin, ErrNotLive
// if to takes no rooms, ErrNoCapacity by the hard ceiling, or ErrStore; then the
// room may have moved or not.
func (r *Resolver) Move(ctx context.Context, room string, to lease.NodeID) (Assignment, error) {
	pin, s, err := r.pinOf(ctx, room)
	if err != nil {
		return Assignment{}, err
	}
	m := find(s, to)
	q := r.question(s, room, pin.Size)
	switch {
	case m == nil:
		return Assignment{}, notLive(to, "it is not a live member")
	case m.ID == pin.Node && pin.Number >= m.Incarnation:
		return r.assign(s, room, pin, Pinned, "it lives there already"), nil
	case !takesRooms(m):
		return Assignment{}, notLive(to, "it is draining, settling or of weight 0")
	}
	home := choice{member: m}
	at, ok := r.reserveAt(home, q)
	if !ok {
		return Assignment{}, fmt.Errorf("%w: %s, for %q", ErrNoCapacity, to, room)
	}
	bounded, cancel := r.budget(ctx)
	defer cancel()
	const why = "moved on request"
	res := r.swapKnown(bounded, s, Op{
		Partition: q.partition, Room: room, If: pin, Set: Pin{Incarnation: home.life(), Size: pin.Size}, TTL: r.cfg.PinTTL,
	}, why)
	if res.Err != nil {
		return Assignment{}, res.Err
	}
	if !res.Done {
		r.cancel(home, q, at)
		return Assignment{}, fmt.Errorf("%w: %q", ErrChanged, room)
	}
	if h := r.hosting(room); h != nil && h.life != res.Pin.Incarnation {
		r.lose(h, &NotOwnerError{Owner: r.assign(s, room, res.Pin, Pinned, why)})
	}
	return r.assign(s, room, res.Pin, Pinned, why), nil
}

// reserveAt reserves a room's cost on a node, if its hard ceiling allows.
func (r *Resolver) reserveAt(home choice, q question) (at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := home.member
	c := Candidate{Member: m, Reserved: r.reserved.of(m.ID)}
	if r.limits.hard > 0 && m.Capacity > 0 && c.used()+q.cost > percent(m.Capacity, r.limits.hard) {
		return at, false
	}
	at = time.Now()
	r.reserved.add(m.ID, q.cost, at)
	return at, true
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

// Hosted returns the rooms that are hosted here, heaviest first, and what they
// cost together. O(rooms · log rooms).
func (r *Resolver) Hosted() (rooms []RoomLoad, units int64) {
	r.mu.Lock()
	for _, h := range r.hosted {
		load := RoomLoad{h.room, h.size, r.cfg.Cost(h.size)}
		rooms = append(rooms, load)
		units += load.Units
	}
	r.mu.Unlock()
	slices.SortFunc(rooms, func(a, b RoomLoad) int {
		return cmp.Or(cmp.Compare(b.Units, a.Units), cmp.Compare(a.Room, b.Room))
	})
	return rooms, units
}

func (r *Resolver) hostedUnits() (units int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.hosted {
		units += r.cfg.Cost(h.size)
	}
	return units
}

// end closes the hosting for a reason, once. The caller holds Resolver.mu.
func (h *Hosting) end(why error) {
	if h.err != nil {
		return
	}
	h.err = why
	close(h.lost)
	if h.r.hosted[h.room] == h {
		delete(h.r.hosted, h.room)
	}
}

func (r *Resolver) lose(h *Hosting, why error) {
	r.mu.Lock()
	h.end(why)
	r.mu.Unlock()
	r.log.Info("room is not hosted here any more", "room", h.room, "why", why)
}

func (r *Resolver) loseAll(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endAll(why)
}

// endAll is loseAll for a caller that holds mu.
func (r *Resolver) endAll(why error) {
	if n := len(r.hosted); n > 0 && !errors.Is(why, ErrClosed) {
		r.log.Warn("no room is hosted here any more", "rooms", n, "why", why)
	}
	for _, h := range r.hosted {
		h.end(why)
	}
}
