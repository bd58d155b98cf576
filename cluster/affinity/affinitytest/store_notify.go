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

// unnoticed is how long a result may be considered fresh after the pin has changed.
const unnoticed = 5 * time.Second

// After a fresh result, either the store sends a notification when another instance changes the pin, or the
// freshness expires. The test obtains the result for each room with a different op. The second round checks
// results that follow a notification.
func notifies(p *pins) {
	set := func(l lease.Incarnation, size int) pinstore.Op {
		return pinstore.Op{If: pinstore.Pin{Incarnation: p.first}, Set: pinstore.Pin{Incarnation: l, Size: size}, TTL: long}
	}
	ways := []struct {
		before lease.Incarnation // the room's pin at the start, from another instance
		op     pinstore.Op
	}{
		{op: claimOf(p.first)},
		{p.second, claimOf(p.first)}, // the room is already pinned
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

// After a user has stopped, the store no longer notifies that user but still notifies the others.
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

// change uses another instance to change the pin of a room.
func (p *pins) change(room string, pin pinstore.Pin) {
	p.Helper()
	to := p.again
	if pin.Incarnation == p.again {
		to = p.first
	}
	p.succeed(p.b, pinstore.Op{Room: room, If: pin, Set: pinstore.Pin{Incarnation: to}, TTL: long}, to)
}

// stale is a result that was fresh for a while, together with the time at which the pin changed.
type stale struct {
	room  string
	fresh time.Duration
	at    time.Time
}

// pendingRooms is the set of rooms for which a notification from the store is pending.
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

// The store calls notified for each changed room. The room "" means all rooms.
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

// wait returns when the store has notified of the room or when the result is no longer fresh.
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
