package affinitytest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// unnoticed is how long a stale result may count as fresh.
const unnoticed = 5 * time.Second

// After a fresh result, the store notifies when another instance changes the pin, or else the freshness
// expires. Each room gets its result in another way. The second result follows a notification.
func notifies(p *pins) {
	set := func(l lease.Incarnation, size int) pinstore.Op {
		return pinstore.Op{If: pinstore.Pin{Incarnation: p.first}, Set: pinstore.Pin{Incarnation: l, Size: size}, TTL: long}
	}
	ways := []struct {
		before lease.Incarnation // the pin before, by another instance
		op     pinstore.Op
	}{
		{op: claimOf(p.first)},
		{p.second, claimOf(p.first)}, // it is taken
		{p.first, set(p.first, 2)},
		{p.first, set(p.second, 0)},
		{p.first, pinstore.Op{If: pinstore.Pin{Incarnation: p.first}}},
	}
	s := p.instance()
	var pending pendingRooms
	s.Notify(pending.notified)
	for i, way := range ways {
		ways[i].op.Room = fmt.Sprint(p.room, " ", i)
		if way.before != (lease.Incarnation{}) {
			op := claimOf(way.before)
			op.Room = ways[i].op.Room
			p.succeed(p.b, op, way.before)
		}
	}
	for range 2 {
		var changed []stale
		for i, way := range ways {
			result := p.do(s, way.op)
			if result.Fresh < 0 || result.Fresh > long {
				p.Fatalf("fresh for %v; the pin lasts %v", result.Fresh, long)
			}
			changed = append(changed, stale{way.op.Room, result.Fresh, time.Now()})
			pending.add(way.op.Room)
			p.change(way.op.Room, result.Pin)
			ways[i].op = pinstore.Op{Room: way.op.Room}
		}
		for _, c := range changed {
			pending.wait(p, c)
		}
	}
}

// A user that has ended is no longer notified, but the others are.
func notifiesNoLonger(p *pins) {
	ended, on := p.instance(), p.instance()
	var calls atomic.Int64
	stop := ended.Notify(func(string) { calls.Add(1) })
	var pending pendingRooms
	defer on.Notify(pending.notified)()
	stop()
	before := calls.Load()
	result := p.do(on, pinstore.Op{Room: p.room, Set: pinstore.Pin{Incarnation: p.first}, TTL: long})
	p.do(ended, pinstore.Op{Room: p.room})
	asked := time.Now()
	pending.add(p.room)
	p.change(p.room, result.Pin)
	pending.wait(p, stale{p.room, result.Fresh, asked})
	if after := calls.Load(); after != before {
		p.Errorf("notified %d times after the end", after-before)
	}
}

// change makes another instance change the pin of a room.
func (p *pins) change(room string, pin pinstore.Pin) {
	p.Helper()
	to := p.again
	if pin.Incarnation == p.again {
		to = p.first
	}
	p.succeed(p.b, pinstore.Op{Room: room, If: pin, Set: pinstore.Pin{Incarnation: to}, TTL: long}, to)
}

// stale is a result that was fresh for a while, and when it changed.
type stale struct {
	room  string
	fresh time.Duration
	at    time.Time
}

// pendingRooms are the rooms that the store has yet to notify of.
type pendingRooms struct {
	mu    sync.Mutex
	rooms map[string]bool
}

func (n *pendingRooms) add(room string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rooms == nil {
		n.rooms = make(map[string]bool)
	}
	n.rooms[room] = true
}

// notified is called by the store; "" stands for all rooms.
func (n *pendingRooms) notified(room string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if delete(n.rooms, room); room == "" {
		clear(n.rooms)
	}
}

func (n *pendingRooms) has(room string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rooms[room]
}

// wait waits for a notification, or until the result is no longer fresh.
func (n *pendingRooms) wait(p *pins, of stale) {
	p.Helper()
	p.eventually(func() error {
		switch waited := time.Since(of.at); {
		case !n.has(of.room) || waited >= of.fresh:
			return nil
		case waited > unnoticed:
			p.Fatalf("not notified within %v of a change of %q, which was fresh for %v", unnoticed, of.room, of.fresh)
		}
		return errors.New("not notified")
	})
}
