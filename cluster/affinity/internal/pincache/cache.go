// Package pincache caches the pins that a node has learned from the store.
//
// The cache keeps stale entries, because a stale entry is the best guess while the store does not answer. A
// new generation begins when the store may have lost its data or reverted to an earlier copy. All entries of
// earlier generations are stale.
package pincache

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// Cache contains an entry for each known room. All methods are safe for concurrent use.
//
// Entries are immutable, and callers replace them with compare-and-swap. Before a caller queries the store, it stores
// an entry with Begin. Afterwards, Learn replaces only that entry with the answer. If a notification arrives in
// between, the notification also replaces the entry, so an outdated answer is never considered fresh.
type Cache struct {
	rooms      sync.Map      // room → *Entry
	generation atomic.Uint64 // counts how often the store may have lost its data
	count      atomic.Int64
	begun      atomic.Uint64 // number of entries that were not derived from an earlier entry
	max        int64

	// younger is the latest generation in which the store has assigned an epoch, with the first epoch of that
	// generation. A pin with a smaller epoch may be from before the data loss that started the generation.
	younger atomic.Pointer[inGeneration]
}

type inGeneration struct{ generation, epoch uint64 }

// Entry contains the last known pin of a room.
type Entry struct {
	Pin        pinstore.Pin
	fresh      time.Time // until then, Pin is valid without a query, unless a new generation begins
	Generation uint64    // generation in which Pin was learned
	Asked      uint64    // the generation in which the store was queried
	Fences     uint64    // how often the agent had been fenced before the store was queried
	Confirmed  bool      // the store has confirmed Pin; otherwise Pin is a guess
	Learned    time.Time // when the store confirmed Pin
	Late       bool      // the room's entry was removed during the query for Pin
	begun      uint64    // number of the first entry from which this entry was derived
	ended      bool      // this node's hosting with Pin has ended, and the store may delete Pin at any time: see Void
}

// New returns a cache for at most the given number of rooms.
func New(rooms int) *Cache { return &Cache{max: int64(rooms)} }

// Size returns the number of entries.
func (c *Cache) Size() int64 { return c.count.Load() }

// Generation counts how often the store may have lost its data.
func (c *Cache) Generation() uint64 { return c.generation.Load() }

// First returns the latest generation in which the store has assigned an epoch, and the first epoch of that generation.
// Only tests use First.
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

// IsFresh reports whether a caller can use e without querying the store.
func (c *Cache) IsFresh(e *Entry) bool {
	return e.Generation == c.generation.Load() && time.Until(e.fresh) > 0 // only reads the monotonic clock
}

// Lost reports whether the store may have lost the pin of e after confirming it. Lost is false for a deleted
// pin, because the store sends a notification of the deletion.
func (c *Cache) Lost(e *Entry) bool { return e.Confirmed && e.Generation != c.generation.Load() }

// InvalidateAll makes all entries stale, because the store may have lost its data or its notifications.
func (c *Cache) InvalidateAll() { c.generation.Add(1) }

// Gave records an epoch that the store has assigned. generation is the generation before the query.
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

// MayBeOlder reports whether a pin with this epoch may be from before the store lost data. If so, the room
// may have had later hostings that the store has lost.
func (c *Cache) MayBeOlder(epoch uint64) bool {
	generation, first := c.generation.Load(), c.younger.Load()
	return generation > 0 && (first == nil || first.generation < generation || epoch < first.epoch)
}

// Known returns the last pin of a room that the store has confirmed, or the zero Pin.
func (c *Cache) Known(room string) pinstore.Pin { return c.Get(room).Known() }

// Least returns the smallest epoch that a valid pin of the room can have. A pin with a smaller epoch belongs
// to a hosting that has ended.
func (c *Cache) Least(room string) uint64 { return c.Get(room).Least() }

// Known is Cache.Known for an entry. e may be nil.
func (e *Entry) Known() pinstore.Pin {
	if e == nil || !e.Confirmed {
		return pinstore.Pin{}
	}
	return e.Pin
}

// Least is Cache.Least for an entry. e may be nil.
func (e *Entry) Least() uint64 {
	if e != nil && e.ended {
		return e.Pin.Epoch + 1
	}
	return e.Known().Epoch
}

// Begin must be called before a query to the store. Begin replaces the room's entry with a stale entry for
// the same pin, and returns the new entry for Learn. fences is how often the agent has been fenced.
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

// Learn replaces the entry asked with the store's answer, unless the answer has a smaller epoch because the
// store has reverted to older data. If the entry has changed since Begin, Learn only stores the answer if the
// answer has a greater epoch than the changed entry, and then marks the answer as stale. Learn returns true if the
// pin is newer than the room's previous pin. If several callers learn the same pin, only one of them gets true.
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
			return true // the entry was removed in between
		}
		if old.(*Entry).Pin.Epoch >= pin.Epoch {
			return false
		}
		e = e.stale()
		e.begun, e.Late = old.(*Entry).begun, old.(*Entry).begun != asked.begun
	}
	return old.(*Entry).Pin.Epoch < pin.Epoch
}

// Update stores a pin that was learned without Begin, if the room has an entry with a smaller epoch. Update
// reports whether the pin is newer than the cached pin. For a room without an entry, Update always returns
// true.
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

// Void records that a hosting of this node has ended. Call it before deleting the hosting's pin. The deletion
// may take effect much later, so from now on this node ignores the pin and gives the room a greater epoch.
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

// Assume stores a pin as a guess, unless the room's entry was confirmed by the store.
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

// Invalidate makes a room's entry stale after a notification. Invalidate returns false if the room has no
// entry.
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

// On returns the cached rooms whose pin names an incarnation for which want returns true. Each call iterates
// over the whole cache.
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

// added counts a new entry, and evicts arbitrary entries if the cache is too large.
func (c *Cache) added() {
	over := c.count.Add(1) - c.max
	if over <= 0 {
		return
	}
	over += c.max / 16 // evict more than necessary, so that the next additions need no eviction
	c.rooms.Range(func(room, _ any) bool {
		c.Evict(room.(string))
		over--
		return over > 0
	})
}

// stale returns a stale copy of e.
func (e *Entry) stale() *Entry {
	return &Entry{Pin: e.Pin, Generation: e.Generation, Confirmed: e.Confirmed, Late: e.Late, begun: e.begun, ended: e.ended}
}
