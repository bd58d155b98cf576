// Package pincache holds the pins that a node has learned from the store.
//
// An entry stays after its freshness has ended, because while the store does not answer, a stale entry is the
// best guess. When the store may have lost its data, or gone back to an earlier copy, a new generation
// begins.
package pincache

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// Cache has an entry for each known room. All methods are safe for concurrent use.
//
// Entries are immutable and replaced with compare-and-swap. A caller stores an entry before it queries the
// store (Begin), and replaces only that entry with the answer (Learn). A notification in between also
// replaces the entry, so an answer that is out of date when it arrives never counts as fresh.
type Cache struct {
	rooms      sync.Map      // room → *Entry
	generation atomic.Uint64 // counts how often the store may have lost its data
	count      atomic.Int64
	begun      atomic.Uint64 // counts the entries that do not come from another entry
	max        int64

	// younger is the first epoch that the store has given to a pin in a generation. Pins with smaller epochs
	// may be from before the loss that began the generation.
	younger atomic.Pointer[inGeneration]
}

type inGeneration struct{ generation, epoch uint64 }

// Entry has the last known pin of a room.
type Entry struct {
	Pin        pinstore.Pin
	fresh      time.Time // until when Pin is valid without a query, in its generation
	Generation uint64    // generation in which Pin was learned
	Asked      uint64    // the generation in which the store was queried
	Fences     uint64    // the agent's count, before the store was queried
	Confirmed  bool      // confirmed by the store; otherwise requested or assumed
	Learned    time.Time // when the store confirmed it
	Late       bool      // the room's entry was removed while Pin was queried
	begun      uint64    // number of the entry from which this one comes
	ended      bool      // the room of Pin is no longer hosted here, and the store may delete Pin at any time: see Void
}

// New returns a cache for at most the given number of rooms.
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

// IsFresh reports whether e can be used without a query to the store.
func (c *Cache) IsFresh(e *Entry) bool {
	return e.Generation == c.generation.Load() && time.Until(e.fresh) > 0 // only reads the monotonic clock
}

// Lost reports whether the store may have lost the pin after it confirmed it. A deleted pin is not lost,
// because the store notifies of the deletion.
func (c *Cache) Lost(e *Entry) bool { return e.Confirmed && e.Generation != c.generation.Load() }

// InvalidateAll makes all entries stale, because the store may have lost its data or its notifications.
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

// MayBeOlder reports whether a pin with this epoch may be from before the store lost data, so that there may
// have been later hostings that the store has forgotten.
func (c *Cache) MayBeOlder(epoch uint64) bool {
	generation, first := c.generation.Load(), c.younger.Load()
	return generation > 0 && (first == nil || first.generation < generation || epoch < first.epoch)
}

// Known returns the pin of a room as the store has confirmed it, or none.
func (c *Cache) Known(room string) pinstore.Pin { return c.Get(room).Known() }

// Least returns the smallest epoch that a valid pin of the room can have. A pin with a smaller epoch belongs
// to a hosting that has ended.
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

// Learn replaces the entry asked with the store's answer, unless the answer's epoch is smaller because the
// store has gone back to older data. If another change came in between, it keeps the answer only if it is
// newer, and not as fresh. Learn reports whether the pin is news. If several callers learn the same pin, one
// gets true.
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
			return true // the entry was evicted in between
		}
		if old.(*Entry).Pin.Epoch >= pin.Epoch {
			return false
		}
		e = e.stale()
		e.begun, e.Late = old.(*Entry).begun, old.(*Entry).begun != asked.begun
	}
	return old.(*Entry).Pin.Epoch < pin.Epoch
}

// Update stores a pin that was learned without Begin, if the room has an entry. It reports whether the pin is
// news, which it always is for a room without an entry.
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

// Void records that a hosting of this node has ended, before its pin is deleted. Because the deletion may
// take effect much later, this node no longer counts the pin as valid, and gives the room a greater epoch.
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

// On returns the rooms that are pinned to an incarnation for which want returns true. It costs O(rooms).
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

// added evicts arbitrary entries if there are too many.
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
