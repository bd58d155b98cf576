package affinity

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// pinCache holds the pins that this node has learned. An entry outlives its
// freshness: while the store does not answer, a stale entry is the best guess.
//
// Entries are immutable and replaced by compare-and-swap. A caller stores an entry
// before it queries the store (begin) and replaces just that entry by the answer
// (learn). A notification in between replaces the entry, too, so that an answer
// that is out of date when it arrives is never taken for fresh.
type pinCache struct {
	rooms      sync.Map      // room → *cached
	generation atomic.Uint64 // counts how often the store may have lost its data
	count      atomic.Int64
	max        int64
}

type cached struct {
	pin        Pin
	fresh      time.Time // until when pin is valid without a query, in its generation
	generation uint64    // in which pin was learned
	asked      uint64    // the generation in which the store was queried
	fences     uint64    // of the agent, before the store was queried
	confirmed  bool      // by the store; otherwise requested or assumed
	learned    time.Time // when the store confirmed it
}

// get returns the entry of a room, or nil.
func (c *pinCache) get(room string) *cached {
	if e, ok := c.rooms.Load(room); ok {
		return e.(*cached)
	}
	return nil
}

// isFresh reports whether e is valid without a query to the store.
func (c *pinCache) isFresh(e *cached, now time.Time) bool {
	return now.Before(e.fresh) && e.generation == c.generation.Load()
}

// lost reports whether the store may have lost the pin after it confirmed the pin.
// A deleted pin is not lost: the store notifies of it.
func (c *pinCache) lost(e *cached) bool { return e.confirmed && e.generation != c.generation.Load() }

// invalidateAll makes all entries stale: the store may have lost its data or its
// notifications.
func (c *pinCache) invalidateAll() { c.generation.Add(1) }

// begin records that a query to the store begins. It keeps the pin. fences is the
// agent's count.
func (c *pinCache) begin(room string, fences uint64) *cached {
	for {
		generation := c.generation.Load()
		old, ok := c.rooms.Load(room)
		if !ok {
			e := &cached{generation: generation, asked: generation, fences: fences}
			if _, taken := c.rooms.LoadOrStore(room, e); !taken {
				c.added()
				return e
			}
			continue
		}
		e := old.(*cached).stale()
		e.asked, e.fences = generation, fences
		if c.rooms.CompareAndSwap(room, old, e) {
			return e
		}
	}
}

// learn replaces the entry asked by the store's answer. If another change came in
// between, the answer is kept only if it is newer, and not as fresh. learn reports
// whether the pin is news: of several callers that learn a pin, one gets true.
func (c *pinCache) learn(room string, asked *cached, pin Pin, fresh time.Time) (news bool) {
	if pin == (Pin{}) {
		if c.rooms.CompareAndDelete(room, asked) {
			c.count.Add(-1)
		}
		return false
	}
	e := &cached{pin: pin, fresh: fresh, generation: asked.asked, fences: asked.fences, confirmed: true, learned: time.Now()}
	old := any(asked)
	for !c.rooms.CompareAndSwap(room, old, e) {
		var ok bool
		if old, ok = c.rooms.Load(room); !ok {
			return true // evicted in between
		}
		if old.(*cached).pin.Epoch >= pin.Epoch {
			return false
		}
		e = e.stale()
	}
	return old.(*cached).pin.Epoch < pin.Epoch
}

// update stores a pin that was learned without begin, if the room has an entry. It
// reports whether the pin is news; for a room without an entry it is.
func (c *pinCache) update(room string, pin Pin) (news bool) {
	for {
		old, ok := c.rooms.Load(room)
		if !ok {
			return true
		}
		if old.(*cached).pin.Epoch >= pin.Epoch {
			return false
		}
		if c.rooms.CompareAndSwap(room, old, &cached{pin: pin, generation: c.generation.Load(), confirmed: true}) {
			return true
		}
	}
}

// assume stores a guess, unless the store has confirmed a pin.
func (c *pinCache) assume(room string, pin Pin) {
	guess := &cached{pin: pin, generation: c.generation.Load()}
	old, ok := c.rooms.LoadOrStore(room, guess)
	if !ok {
		c.added()
		return
	}
	if e := old.(*cached); !e.confirmed {
		c.rooms.CompareAndSwap(room, old, guess)
	}
}

// invalidate makes a room's entry stale after a notification, and reports whether
// there is an entry.
func (c *pinCache) invalidate(room string) bool {
	for {
		old, ok := c.rooms.Load(room)
		if !ok {
			return false
		}
		if c.rooms.CompareAndSwap(room, old, old.(*cached).stale()) {
			return true
		}
	}
}

// on returns the rooms pinned to an incarnation that want selects. O(rooms).
func (c *pinCache) on(want func(lease.Incarnation) bool) []string {
	var rooms []string
	c.rooms.Range(func(room, e any) bool {
		if at := e.(*cached).pin.Incarnation; at != (lease.Incarnation{}) && want(at) {
			rooms = append(rooms, room.(string))
		}
		return true
	})
	return rooms
}

func (c *pinCache) evict(room string) {
	if _, ok := c.rooms.LoadAndDelete(room); ok {
		c.count.Add(-1)
	}
}

// added evicts arbitrary entries if the new one is too many.
func (c *pinCache) added() {
	over := c.count.Add(1) - c.max
	if over <= 0 {
		return
	}
	over += c.max / 16 // so that the next few need no eviction
	c.rooms.Range(func(room, _ any) bool {
		c.evict(room.(string))
		over--
		return over > 0
	})
}

// stale returns e without its freshness.
func (e *cached) stale() *cached {
	return &cached{pin: e.pin, generation: e.generation, confirmed: e.confirmed}
}
