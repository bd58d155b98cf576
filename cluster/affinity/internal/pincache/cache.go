// Package pincache holds the pins that a node has learned from the store.
//
// An entry outlives its freshness: while the store does not answer, a stale entry is the best
// guess. The store may lose its data, or go back to an earlier copy: that begins a new generation.
package pincache

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// Cache has an entry for each known room. All methods may be called from any goroutine.
//
// Entries are immutable and replaced by compare-and-swap. A caller stores an entry
// before it queries the store (Begin) and replaces just that entry by the answer
// (Learn). A notification in between replaces the entry, too, so that an answer
// that is out of date when it arrives is never taken for fresh.
type Cache struct {
	rooms      sync.Map      // room → *Entry
	generation atomic.Uint64 // counts how often the store may have lost its data
	count      atomic.Int64
	begun      atomic.Uint64 // counts the entries that come of no other
	max        int64

	// younger is the first epoch that the store has given to a pin in a generation. The
	// pins with smaller epochs may be older than the loss before it.
	younger atomic.Pointer[inGeneration]
}

type inGeneration struct{ generation, epoch uint64 }

// Entry has the last known pin of a room.
type Entry struct {
	Pin        pinstore.Pin
	fresh      time.Time // until when Pin is valid without a query, in its generation
	Generation uint64    // in which Pin was learned
	Asked      uint64    // the generation in which the store was queried
	Fences     uint64    // of the agent, before the store was queried
	Confirmed  bool      // by the store; otherwise requested or assumed
	Learned    time.Time // when the store confirmed it
	Late       bool      // Pin is the answer to a query since which the room's entry was removed
	begun      uint64    // number of the entry from which this one comes
	ended      bool      // the room of Pin is no longer hosted here, and the store may delete Pin at any time: see Void
}

// New returns a cache for so many rooms at most.
func New(rooms int) *Cache { return &Cache{max: int64(rooms)} }

// Size returns the number of entries.
func (c *Cache) Size() int64 { return c.count.Load() }

// Generation counts how often the store may have lost its data.
func (c *Cache) Generation() uint64 { return c.generation.Load() }

// First returns the latest generation in which the store has given a new epoch, and the
// first epoch in it. It is for the model of rooms.
func (c *Cache) First() (generation, epoch uint64, ok bool) {
	if first := c.younger.Load(); first != nil {
		return first.generation, first.epoch, true
	}
	return 0, 0, false
}

// Get returns the entry of a room, or nil.
func (c *Cache) Get(room string) *Entry {
	if e, ok := c.rooms.Load(room); ok {
		return e.(*Entry)
	}
	return nil
}

// IsFresh reports whether e is valid without a query to the store.
func (c *Cache) IsFresh(e *Entry) bool {
	return e.Generation == c.generation.Load() && time.Until(e.fresh) > 0 // reads the monotonic clock alone
}

// Lost reports whether the store may have lost the pin after it confirmed the pin.
// A deleted pin is not lost: the store notifies of it.
func (c *Cache) Lost(e *Entry) bool { return e.Confirmed && e.Generation != c.generation.Load() }

// InvalidateAll makes all entries stale: the store may have lost its data or its
// notifications.
func (c *Cache) InvalidateAll() { c.generation.Add(1) }

// Gave records a new epoch from the store, for a query in a generation.
func (c *Cache) Gave(epoch, generation uint64) {
	for {
		first := c.younger.Load()
		if first != nil && (first.generation > generation || first.generation == generation && first.epoch <= epoch) {
			return
		}
		if c.younger.CompareAndSwap(first, &inGeneration{generation, epoch}) {
			return
		}
	}
}

// MayBeOlder reports whether a pin with that epoch may be older than a loss of data of
// the store: there may have been later hostings, which the store has forgotten.
func (c *Cache) MayBeOlder(epoch uint64) bool {
	generation, first := c.generation.Load(), c.younger.Load()
	return generation > 0 && (first == nil || first.generation < generation || epoch < first.epoch)
}

// Known returns the pin of a room as the store has confirmed it, or none.
func (c *Cache) Known(room string) pinstore.Pin { return c.Get(room).Known() }

// Least returns the smallest epoch of a pin that stands. A pin of the room with a smaller one is of a hosting
// that has ended.
func (c *Cache) Least(room string) uint64 { return c.Get(room).Least() }

// Known is Cache.Known for an entry, or for none.
func (e *Entry) Known() pinstore.Pin {
	if e == nil || !e.Confirmed {
		return pinstore.Pin{}
	}
	return e.Pin
}

// Least is Cache.Least for an entry, or for none.
func (e *Entry) Least() uint64 {
	if e != nil && e.ended {
		return e.Pin.Epoch + 1
	}
	return e.Known().Epoch
}

// Begin records that a query to the store begins. It keeps the pin. fences is the
// agent's count.
func (c *Cache) Begin(room string, fences uint64) *Entry {
	for {
		generation := c.generation.Load()
		old, ok := c.rooms.Load(room)
		if !ok {
			e := &Entry{Generation: generation, Asked: generation, Fences: fences, begun: c.begun.Add(1)}
			if _, taken := c.rooms.LoadOrStore(room, e); !taken {
				c.added()
				return e
			}
			continue
		}
		e := old.(*Entry).stale()
		e.Asked, e.Fences = generation, fences
		if c.rooms.CompareAndSwap(room, old, e) {
			return e
		}
	}
}

// Learn replaces the entry asked by the store's answer, unless its epoch is smaller: then
// the store has gone back to older data. If another change came in between, the answer is
// kept only if it is newer, and not as fresh. Learn reports whether the pin is news: of several callers that learn a
// pin, one gets true.
func (c *Cache) Learn(room string, asked *Entry, pin pinstore.Pin, fresh time.Time) (news bool) {
	if pin == (pinstore.Pin{}) {
		if c.rooms.CompareAndDelete(room, asked) {
			c.count.Add(-1)
		}
		return false
	}
	if pin.Epoch < asked.Least() {
		return false
	}
	e := &Entry{
		Pin:        pin,
		fresh:      fresh,
		Generation: asked.Asked,
		Fences:     asked.Fences,
		Confirmed:  true,
		Learned:    time.Now(),
		begun:      asked.begun,
	}
	old := any(asked)
	for !c.rooms.CompareAndSwap(room, old, e) {
		var ok bool
		if old, ok = c.rooms.Load(room); !ok {
			return true // evicted in between
		}
		if old.(*Entry).Pin.Epoch >= pin.Epoch {
			return false
		}
		e = e.stale()
		e.begun, e.Late = old.(*Entry).begun, old.(*Entry).begun != asked.begun
	}
	return old.(*Entry).Pin.Epoch < pin.Epoch
}

// Update stores a pin that was learned without Begin, if the room has an entry. It
// reports whether the pin is news; for a room without an entry it is.
func (c *Cache) Update(room string, pin pinstore.Pin) (news bool) {
	for {
		old, ok := c.rooms.Load(room)
		if !ok {
			return true
		}
		if old.(*Entry).Pin.Epoch >= pin.Epoch {
			return false
		}
		if c.rooms.CompareAndSwap(room, old, &Entry{Pin: pin, Generation: c.generation.Load(), Confirmed: true, begun: c.begun.Add(1)}) {
			return true
		}
	}
}

// Void records that a hosting of this node has ended, before its pin is deleted. The deletion may take effect
// much later. So this node no longer takes the pin for one that stands, and gives the room a greater epoch.
func (c *Cache) Void(room string, pin pinstore.Pin) {
	next := &Entry{Pin: pin, Generation: c.generation.Load(), Confirmed: true, ended: true, begun: c.begun.Add(1)}
	for {
		old, ok := c.rooms.LoadOrStore(room, next)
		switch {
		case !ok:
			c.added()
			return
		case old.(*Entry).Least() > pin.Epoch, c.rooms.CompareAndSwap(room, old, next):
			return
		}
	}
}

// Assume stores a guess, unless the store has confirmed a pin.
func (c *Cache) Assume(room string, pin pinstore.Pin) {
	guess := &Entry{Pin: pin, Generation: c.generation.Load(), begun: c.begun.Add(1)}
	old, ok := c.rooms.LoadOrStore(room, guess)
	if !ok {
		c.added()
		return
	}
	if e := old.(*Entry); !e.Confirmed {
		c.rooms.CompareAndSwap(room, old, guess)
	}
}

// Invalidate makes a room's entry stale after a notification, and reports whether
// there is an entry.
func (c *Cache) Invalidate(room string) bool {
	for {
		old, ok := c.rooms.Load(room)
		if !ok {
			return false
		}
		if c.rooms.CompareAndSwap(room, old, old.(*Entry).stale()) {
			return true
		}
	}
}

// On returns the rooms pinned to an incarnation that want selects. O(rooms).
func (c *Cache) On(want func(lease.Incarnation) bool) []string {
	var rooms []string
	c.rooms.Range(func(room, e any) bool {
		if at := e.(*Entry).Pin.Incarnation; at != (lease.Incarnation{}) && want(at) {
			rooms = append(rooms, room.(string))
		}
		return true
	})
	return rooms
}

// Evict removes the entry of a room.
func (c *Cache) Evict(room string) {
	if _, ok := c.rooms.LoadAndDelete(room); ok {
		c.count.Add(-1)
	}
}

// added evicts arbitrary entries if the new one is too many.
func (c *Cache) added() {
	over := c.count.Add(1) - c.max
	if over <= 0 {
		return
	}
	over += c.max / 16 // so that the next few need no eviction
	c.rooms.Range(func(room, _ any) bool {
		c.Evict(room.(string))
		over--
		return over > 0
	})
}

// stale returns e without its freshness.
func (e *Entry) stale() *Entry {
	return &Entry{Pin: e.Pin, Generation: e.Generation, Confirmed: e.Confirmed, Late: e.Late, begun: e.begun, ended: e.ended}
}
