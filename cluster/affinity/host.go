package affinity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/storeclient"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Hosting represents a room that this node serves. Until Lost is closed, the Resolver keeps the room's pin
// alive.
type Hosting struct {
	r         *Resolver
	room      string
	partition placement.Partition
	self      lease.Incarnation // this node's incarnation when the hosting began
	lost      chan struct{}

	use

	// Guarded by hostTable.mu.
	arrived    time.Time     // when the room was moved here; zero if it was not
	pin        pinstore.Pin  // with epoch 0 until the store has confirmed it
	kept       capacity.Need // the need in pin
	served     int           // calls of Serve
	lingers    bool          // a timer will check whether the room is idle
	lapse      time.Duration // 0 = never
	written    time.Time     // when the pin was last written
	verify     time.Time     // when to read the pin; zero: after a notification
	generation uint64        // generation of the pin cache when the store last confirmed the pin
	unheard    unheard
	otherEpoch uint64 // epoch of another node's pin, if the latest answer of the store was such a pin; zero: none
	err        error
}

// use contains the fields that participants change. A goroutine that holds the lock of a use must not take
// another lock, except that of growth.
type use struct {
	mu      sync.Mutex
	need    capacity.Need
	touched time.Time
	held    bool // only a reservation keeps the hosting: nobody has called Host, or all participants have left
	dropped bool // the hosting has ended, because it was held and its reservation is over
}

func (u *use) needed() capacity.Need {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.need
}

func (u *use) lastTouched() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.touched
}

// touch applies change to the need and records the time. A hosting with participants is not held any more.
func (u *use) touch(change func(capacity.Need) capacity.Need) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.need, u.touched = change(u.need), time.Now()
	if u.need.Size() > 0 || u.need.Units > 0 {
		u.held = false
	}
}

// Host checks with the store that a room lives on this node, and pins the room if it has no pin. Call Host on
// the node that is about to serve the room, when a participant has arrived there. While the room is hosted
// here, all callers share its Hosting and need no round trip. The d of later callers can raise the room's
// size, but only Hosting.Touch and Restate lower it.
//
// A draining node gets no new room while an active node can take the room. If a room is pinned to a draining
// node but has no open Hosting there, the next Host on that node moves the room to an active node that can
// take it. The Hosting can be missing because the room was only resolved, or because its last Hosting ended
// without a Release.
//
// With Config.LimitGrowth, Host fails with an *OutgrownError if the room would outgrow this node.
//
// Host fails with a *NotOwnerError if the room lives on another node, with ErrFenced if this node's own lease
// has expired, and with the errors of Resolve. Host fails with ErrChanged if another caller has hosted and
// released the room in the meantime and less than half of the budget is left.
//
// If the store does not answer, Host succeeds on the room's last known node or on the owner of the room's
// partition. So without the store, two nodes may host the same room. The two nodes detect the conflict when
// the store is back, and one of them loses the room with ErrSplit.
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
	case r.work.closed.Load():
		return nil, a, ErrClosed
	case !r.agent.Live():
		r.logFenced(r.hosts.endAll(ErrFenced))
		return nil, a, ErrFenced
	}
	r.checkFence() // the lease may have expired and been renewed during a pause of the process
	r.counts.requests.Add(1)
	if h := r.hosts.get(room); h != nil {
		err := h.join(needOf(d))
		if err == nil {
			a = Assignment{Room: room, Partition: h.partition, Incarnation: h.self, Source: Cached, Reason: "hosted here"}
			return h, a, nil
		}
		if !errors.Is(err, errHostingEnded) {
			return nil, a, err
		}
	}
	return r.hostNew(ctx, room, needOf(d), false)
}

// hostNew hosts a room that is not hosted here. held is set if only a reservation needs the hosting. Then the room
// is only hosted if the store confirms its pin.
func (r *Resolver) hostNew(ctx context.Context, room string, n capacity.Need, held bool) (_ *Hosting, a Assignment, _ error) {
	last := time.Now().Add(r.cfg.Budget)
	for flight, until := &r.shared.host, last; ; {
		got, err := r.ask(ctx, until, flight, room, question{need: n, serves: true})
		a = got.Assignment
		if err != nil {
			return nil, a, err
		}
		if err := r.here(a); err != nil {
			return nil, a, err
		}
		if held && a.Source == Degraded {
			return nil, a, pinstore.ErrStore
		}
		if h, err := r.open(got, r.known(a, n), held); !errors.Is(err, errHostingEnded) {
			return h, a, err
		}
		if time.Until(last) < r.cfg.Budget/2 { // the remaining time is too short for a slow but healthy store
			return nil, a, fmt.Errorf("%w: %q was released here in the meantime", ErrChanged, room)
		}
		flight, until = &r.shared.again, time.Now().Add(r.cfg.Budget/2) // all callers of a shared flight have the same deadline
	}
}

// here returns nil if a room lives on this node, or else the error for Host.
func (r *Resolver) here(a Assignment) error {
	self := r.self()
	switch {
	case a.Incarnation == self:
		return nil
	case a.Node == self.Node:
		return ErrFenced // another incarnation of this node has taken over
	}
	r.counts.misrouted.Add(1)
	_, live := r.agent.Snapshot().Member(a.Node)
	return &NotOwnerError{Owner: a, Split: !live}
}

// known returns n joined with the need in the room's cached pin, if the pin matches a.
func (r *Resolver) known(a Assignment, n capacity.Need) capacity.Need {
	if e := r.cache.Get(a.Room); e != nil && e.Pin.Incarnation == a.Incarnation && e.Pin.Epoch == a.Epoch {
		return capacity.NeedIn(e.Pin).Joined(n)
	}
	return n
}

func (r *Resolver) open(a settled, n capacity.Need, held bool) (*Hosting, error) {
	now := time.Now()
	h := &Hosting{
		r: r, room: a.Room, partition: a.Partition, self: a.Incarnation, lost: make(chan struct{}),
		use: use{need: n, touched: now, held: held}, pin: n.Pin(pinstore.Pin{Incarnation: a.Incarnation, Epoch: a.Epoch}), kept: n, generation: a.generation,
	}
	if a.Source == Hash || a.Source == Override {
		h.written = now // the claim has just written the pin, while an older pin may be about to expire
	}
	if !r.agent.Live() || r.agent.Snapshot().Stats.Fences != a.fences {
		return nil, ErrFenced // the room may have moved since the answer
	}
	if e := r.cache.Get(a.Room); e != nil && e.Pin.Epoch == a.Epoch {
		if _, moved := capacity.Replaced(e.Pin); moved {
			h.arrived = now
		}
	}
	opened, err := r.hosts.open(h, a.fences, a.ends)
	switch {
	case opened == h:
		// The pin may have changed after the answer but before this node handled notifications for the room.
		r.work.rooms.add(h.room)
		if r.cfg.LimitGrowth {
			r.growth.opened(r.grownBy(n))
		}
	case opened != nil && !held: // another caller was faster
		err = opened.join(n)
	}
	return opened, err
}

// Room returns the room's name.
func (h *Hosting) Room() string { return h.room }

// Epoch returns a number that grows each time the room gets another node. Use the epoch for fencing in your
// own stores. Epoch returns 0 until the store has confirmed that the room lives here.
func (h *Hosting) Epoch() uint64 {
	h.r.hosts.mu.Lock()
	defer h.r.hosts.mu.Unlock()
	return h.pin.Epoch
}

// Touch sets the number of participants. Touch does not block. If size is out of range, Touch uses the
// nearest valid size. The number of Publishers stays as in the demand, and all other participants are
// considered subscribers. To change the Publishers, use Restate.
func (h *Hosting) Touch(size int) {
	h.touch(func(n capacity.Need) capacity.Need { return n.Counted(size) })
}

// Restate replaces the room's demand. Use it instead of Touch if not all participants publish. If d has no
// cost, the cost stays the same. If Prefer and Require are both empty, the rules stay the same. Restate fails
// with ErrDemand if d is invalid.
func (h *Hosting) Restate(d Demand) error {
	if err := d.Validate(); err != nil {
		return err
	}
	stated := needOf(d)
	h.touch(func(n capacity.Need) capacity.Need {
		rules := cmp.Or(stated.Rules, n.Rules)
		if stated.Size() != 0 || stated.Units != 0 {
			stated.Ahead = n.Ahead
			n = stated
		}
		n.Rules = rules
		return n
	})
	return nil
}

// join adds the demand of a joining participant, unless the room would outgrow this node. join never lowers the
// need, because the participant may not know how many others there are. join fails with errHostingEnded if the
// hosting has just ended with its reservation.
func (h *Hosting) join(n capacity.Need) error {
	switch refused, dropped := h.grow(func(need capacity.Need) capacity.Need { return need.Joined(n) }); {
	case dropped:
		return errHostingEnded
	case refused > 0:
		return h.r.outgrown(h, refused)
	}
	return nil
}

// returnTime is how long a reserved room that has failed over counts with its participants although none has
// returned.
const returnTime = time.Minute

// reserve sets the units that are reserved for the room. over reports that nobody needs the hosting any more,
// and that it ends because release is set. Otherwise, held reports whether only a reservation needs it.
func (u *use) reserve(units int64, release bool) (over, held bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.need.Ahead = units
	if u.held && time.Since(u.touched) > returnTime {
		u.need = u.need.Empty()
	}
	u.dropped = u.held && units == 0 && release
	return u.dropped, u.held && !u.dropped
}

// hold is called when all participants have left. It reports whether a reservation keeps the hosting.
func (u *use) hold() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held = u.need.Ahead > 0; u.held {
		u.need = u.need.Empty()
	}
	return u.held
}

// LapseAfter makes the hosting end with ErrLapsed when it has not been touched for d. The room's pin then
// expires. If units are reserved for the room, its hosting ends with the reservation instead. Use LapseAfter if the
// host does not know when a room ends, or may crash before the room ends. With 0, the default, the hosting never
// lapses.
func (h *Hosting) LapseAfter(d time.Duration) {
	h.r.hosts.mu.Lock()
	defer h.r.hosts.mu.Unlock()
	h.lapse = max(0, d)
}

// Lost returns a channel that is closed when this node no longer hosts the room. Err returns the reason. If
// the reason is a *NotOwnerError that names another node, send the participants to that node.
func (h *Hosting) Lost() <-chan struct{} { return h.lost }

// Err returns nil while the room is hosted here. After that, it returns the reason why the hosting ended: a
// *NotOwnerError, ErrFenced, ErrLapsed, ErrReleased or ErrClosed.
func (h *Hosting) Err() error {
	h.r.hosts.mu.Lock()
	defer h.r.hosts.mu.Unlock()
	return h.err
}

// Release ends the room and deletes its pin. If units are reserved for the room, a node hosts it again after a few
// seconds: see Reserve. Release fails with ErrChanged if the pin has changed. Release
// fails with ErrStore if the store does not answer, and then the pin expires later.
func (h *Hosting) Release(ctx context.Context) error {
	pin, ok := h.r.hosts.release(h)
	if !ok {
		return nil
	}
	return h.void(ctx, pin)
}

// void deletes the pin of a hosting that has ended.
func (h *Hosting) void(ctx context.Context, pin pinstore.Pin) error {
	err := h.r.unpin(ctx, pinstore.Op{Partition: h.partition, Room: h.room, If: pin})
	h.r.recheck(h.room, err != nil)
	return err
}

// unpin deletes a pin of this node. unpin fails with ErrChanged if the room has another pin now. unpin keeps
// the pin if this node hosts the room again. An unanswered deletion may take effect much later, so the
// deletion names an epoch, and the next hosting gets a greater epoch.
func (r *Resolver) unpin(ctx context.Context, op pinstore.Op) error {
	ctx, cancel := r.store.Bounded(ctx)
	defer cancel()
	s := r.agent.Snapshot()
	if op.If.Epoch == 0 { // the store has not confirmed that there is a pin
		at := op.If.Incarnation
		res := r.swap(ctx, s, pinstore.Op{Partition: op.Partition, Room: op.Room})
		if res.Err != nil || res.Pin == (pinstore.Pin{}) {
			return res.Err
		}
		if op.If = res.Pin; op.If.Incarnation != at {
			return fmt.Errorf("%w: %q", ErrChanged, op.Room)
		}
	}
	if !r.hosts.void(op.Room, op.If) {
		return nil
	}
	res := r.swap(ctx, s, op)
	if res.Err == nil && res.Pin != (pinstore.Pin{}) && r.hosts.get(op.Room) == nil {
		return fmt.Errorf("%w: %q", ErrChanged, op.Room)
	}
	return res.Err
}

// recheck makes the keeper read the pin of a room if this node hosts the room again. Host may have been
// called after the previous hosting ended and before its pin was deleted, and the store does not notify this
// node of its own deletion. If later is set, the keeper reads the pin a second time, because an unanswered
// deletion may take effect later.
func (r *Resolver) recheck(room string, later bool) {
	h := r.hosts.get(room)
	if h == nil {
		return
	}
	r.work.rooms.add(room)
	if later {
		r.hosts.verifyAt(h, time.Now().Add(storeclient.BulkTime))
	}
}

// end ends a hosting and logs the reason.
func (r *Resolver) end(h *Hosting, why error) {
	if r.hosts.end(h, why) {
		r.cfg.Log.Info("hosting ended", "room", h.room, "why", why)
	}
}

// checkFence ends all hostings if this node's lease has expired since the last call.
func (r *Resolver) checkFence() { r.logFenced(r.hosts.fence(r.agent.Snapshot().Stats.Fences)) }

// watchFence is a goroutine that ends the hostings when this node is fenced, even while the keeper waits for
// the store.
func (r *Resolver) watchFence(ctx context.Context, agent *cluster.Agent) {
	for range agent.Watch(ctx) {
		r.checkFence()
	}
}

func (r *Resolver) logFenced(ended int) {
	if ended > 0 {
		r.cfg.Log.Warn("all hostings ended", "rooms", ended, "why", ErrFenced)
	}
}
