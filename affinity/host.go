package affinity

import (
	"context"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Hosting says that this node serves a room, until Lost is closed. Its pin is kept
// alive until then.
type Hosting struct {
	r         *Resolver
	room      string
	partition placement.Partition
	self      lease.Incarnation // of this node, when it took the room
	lost      chan struct{}

	// Guarded by hostTable.mu.
	pin        Pin // with epoch 0 until the store has confirmed it
	size       int
	touched    time.Time
	lapse      time.Duration // 0 = never
	written    time.Time     // when the pin was last written
	verify     time.Time     // when the pin is to be read; zero: after a notification
	generation uint64        // of the pin cache, when the store last confirmed the pin
	err        error
}

// Host is for the node that is about to serve a room, when a participant has arrived
// there. It checks with the store that the room lives here, and pins the room if it
// has no pin. All callers share one Hosting while it lasts, and then wait for no
// round trip; d updates its size.
//
// It fails with a *NotOwnerError if the room lives elsewhere, with ErrFenced if this
// node's own lease has expired, and with the errors of Resolve. If the store does not
// answer, the room may be hosted on its last known node or on the node of the hash.
// When the store is back, two nodes that did so detect the conflict, and one has Lost
// the room with ErrSplit.
func (r *Resolver) Host(ctx context.Context, room string, d Demand) (*Hosting, error) {
	ctx, end := r.trace(ctx, "host", room)
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
	case r.run.closed.Load():
		return nil, a, ErrClosed
	case !r.agent.Live():
		r.logFenced(r.hosts.endAll(ErrFenced))
		return nil, a, ErrFenced
	}
	r.checkFence() // the process may have been paused, and be live again since
	r.counts.requests.Add(1)
	if h := r.hosts.get(room); h != nil {
		h.touch(d.Size)
		a = Assignment{Room: room, Partition: h.partition, Incarnation: h.self, Source: Cached, Reason: "hosted here"}
		return h, a, nil
	}
	got, err := r.ask(ctx, &r.flights.host, room, d, func() (settled, bool) { return r.justLearned(room) })
	a = got.Assignment
	if err != nil {
		return nil, a, err
	}
	self := r.self()
	if a.Incarnation != self {
		if a.Node == self.Node {
			return nil, a, ErrFenced // a later process of this node has taken over
		}
		r.counts.misrouted.Add(1)
		return nil, a, &NotOwnerError{Owner: a, Split: find(r.agent.Snapshot(), a.Node) == nil}
	}
	h, err := r.open(got, d.Size)
	return h, a, err
}

// justLearned answers from a pin of this node that Resolve has learned a moment ago,
// as when one request does both. If the pin has changed since, the hosting detects
// that at once: see open.
func (r *Resolver) justLearned(room string) (got settled, ok bool) {
	const moment = 200 * time.Millisecond
	e, s := r.cache.get(room), r.agent.Snapshot()
	if e == nil || e.fences != s.Stats.Fences || time.Since(e.learned) > moment || !r.cache.isFresh(e, time.Now()) || e.pin.Incarnation != r.self() {
		return got, false
	}
	return settled{r.assign(s, room, e.pin, Pinned, alive.reason()), e.generation, e.fences}, true
}

func (r *Resolver) open(a settled, size int) (*Hosting, error) {
	now := time.Now()
	h := &Hosting{
		r: r, room: a.Room, partition: a.Partition, self: a.Incarnation, lost: make(chan struct{}),
		pin: Pin{a.Incarnation, a.Epoch, size}, size: size, touched: now, generation: a.generation,
	}
	if a.Source == Hash || a.Source == Override {
		h.written = now // by the claim; an older pin may be about to expire
	}
	if !r.agent.Live() || r.agent.Snapshot().Stats.Fences != a.fences {
		return nil, ErrFenced // the room may have moved since the answer
	}
	opened, err := r.hosts.open(h, a.fences)
	if opened == h {
		// The pin may have been changed after the answer, when no notification for the
		// room was taken up.
		r.work.rooms.add(h.room)
	}
	return opened, err
}

// Room returns the room's name.
func (h *Hosting) Room() string { return h.room }

// Epoch returns a number that grows with each node that the room gets, for fencing in
// your own stores. It is 0 until the store has confirmed that the room lives here.
func (h *Hosting) Epoch() uint64 {
	h.r.hosts.mu.Lock()
	defer h.r.hosts.mu.Unlock()
	return h.pin.Epoch
}

// Touch sets the number of participants. It does not wait. A size that is out of
// range counts as the nearest valid one.
func (h *Hosting) Touch(size int) {
	h.r.hosts.mu.Lock()
	defer h.r.hosts.mu.Unlock()
	h.size = min(max(0, size), MaxSize)
	h.touched = time.Now()
}

// touch is Touch for a demand of possibly unknown size.
func (h *Hosting) touch(size int) {
	h.r.hosts.mu.Lock()
	defer h.r.hosts.mu.Unlock()
	h.touched = time.Now()
	if size > 0 {
		h.size = size
	}
}

// LapseAfter ends the hosting with ErrLapsed when it has not been touched for d; its
// pin then expires. It is for hosts that cannot say when a room ends, or that may
// crash before. 0, the default: never.
func (h *Hosting) LapseAfter(d time.Duration) {
	h.r.hosts.mu.Lock()
	defer h.r.hosts.mu.Unlock()
	h.lapse = max(0, d)
}

// Lost is closed when this node no longer hosts the room. Err returns the reason: if
// a *NotOwnerError names another node, send the participants there.
func (h *Hosting) Lost() <-chan struct{} { return h.lost }

// Err returns why the room is no longer hosted here: a *NotOwnerError, ErrFenced,
// ErrLapsed, ErrReleased or ErrClosed; or nil while it is hosted.
func (h *Hosting) Err() error {
	h.r.hosts.mu.Lock()
	defer h.r.hosts.mu.Unlock()
	return h.err
}

// Release ends the room: it deletes the pin, unless the pin names another node by now
// (ErrChanged). If the store does not answer (ErrStore), the pin expires.
func (h *Hosting) Release(ctx context.Context) error {
	pin, ok := h.r.hosts.release(h)
	if !ok {
		return nil
	}
	err := h.r.unpin(ctx, Op{Partition: h.partition, Room: h.room, If: pin})
	h.r.recheck(h.room, err != nil)
	return err
}

// unpin deletes a pin if it has not changed.
func (r *Resolver) unpin(ctx context.Context, op Op) error {
	ctx, cancel := r.store.bounded(ctx)
	defer cancel()
	res := r.swap(ctx, r.agent.Snapshot(), op, "")
	if res.Err == nil && !res.Done && res.Pin != (Pin{}) {
		return fmt.Errorf("%w: %q", ErrChanged, op.Room)
	}
	return res.Err
}

// recheck makes the keeper read the pin of a room that is hosted here again: a Host
// may have come between the end of a hosting and the deletion of its pin, of which the
// store does not notify this node. A deletion without an answer may take effect later.
func (r *Resolver) recheck(room string, later bool) {
	h := r.hosts.get(room)
	if h == nil {
		return
	}
	r.work.rooms.add(room)
	if later {
		r.hosts.verifyAt(h, time.Now().Add(bulkTime))
	}
}

// end ends a hosting and logs the reason.
func (r *Resolver) end(h *Hosting, why error) {
	if r.hosts.end(h, why) {
		r.cfg.Log.Info("hosting ended", "room", h.room, "why", why)
	}
}

// checkFence ends all hostings if this node's lease has expired in the meantime.
func (r *Resolver) checkFence() { r.logFenced(r.hosts.fence(r.agent.Snapshot().Stats.Fences)) }

func (r *Resolver) logFenced(ended int) {
	if ended > 0 {
		r.cfg.Log.Warn("all hostings ended", "rooms", ended, "why", ErrFenced)
	}
}
