package affinity

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// known remembers where rooms live, as far as this instance was told. A memo
// outlives its freshness: it is what is left to go by when the store is gone.
//
// Memos are immutable and replaced by compare-and-swap. Whoever asks the store
// leaves a memo behind first (begin) and replaces just that one by the answer
// (learn); a notification in between replaces it, too, so that an answer that
// was out of date when it arrived is never taken for fresh.
type known struct {
	rooms sync.Map      // room → *memo
	era   atomic.Uint64 // counts how often the store may have lost its data
	count atomic.Int64
	max   int64
}

type memo struct {
	pin       Pin
	fresh     time.Time // until when pin may be relied on, in its era
	era       uint64    // when pin was learned
	asked     uint64    // the era in which the store was asked
	confirmed bool      // the store said so; else it was asked for, or assumed
	learned   time.Time // when it said so
}

// get returns what is known of a room, or nil.
func (k *known) get(room string) *memo {
	if m, ok := k.rooms.Load(room); ok {
		return m.(*memo)
	}
	return nil
}

// isFresh reports whether the memo may be relied on without asking the store.
func (k *known) isFresh(m *memo, now time.Time) bool {
	return now.Before(m.fresh) && m.era == k.era.Load()
}

// lost reports whether the store may have lost the pin since it said that it
// stands. A pin that somebody deletes is notified of, and is not lost.
func (k *known) lost(m *memo) bool { return m.confirmed && m.era != k.era.Load() }

// doubtAll makes everything stale, since the store may have lost its data or
// its notifications.
func (k *known) doubtAll() { k.era.Add(1) }

// begin marks that the store is about to be asked. It keeps what is known.
func (k *known) begin(room string) *memo {
	for {
		era := k.era.Load()
		old, ok := k.rooms.Load(room)
		if !ok {
			m := &memo{era: era, asked: era}
			if _, taken := k.rooms.LoadOrStore(room, m); !taken {
				k.added()
				return m
			}
			continue
		}
		m := old.(*memo).stale()
		m.asked = era
		if k.rooms.CompareAndSwap(room, old, m) {
			return m
		}
	}
}

// learn replaces asked by what the store said. If something came in between, the
// pin is kept only if it is newer, and not as fresh. It reports whether the pin is
// news; of several who learn of a pin, one has the news.
func (k *known) learn(room string, asked *memo, pin Pin, fresh time.Time) (news bool) {
	if pin == (Pin{}) {
		if k.rooms.CompareAndDelete(room, asked) {
			k.count.Add(-1)
		}
		return false
	}
	m := &memo{pin: pin, fresh: fresh, era: asked.asked, confirmed: true, learned: time.Now()}
	old := any(asked)
	for !k.rooms.CompareAndSwap(room, old, m) {
		var ok bool
		if old, ok = k.rooms.Load(room); !ok {
			return true // it was forgotten meanwhile, for want of space
		}
		if old.(*memo).pin.Epoch >= pin.Epoch {
			return false
		}
		m = m.stale()
	}
	return old.(*memo).pin.Epoch < pin.Epoch
}

// set remembers a pin that this instance came to know by the way, if it knows
// the room. It reports whether the pin is news, as for a room that is not known.
func (k *known) set(room string, pin Pin) (news bool) {
	for {
		old, ok := k.rooms.Load(room)
		if !ok {
			return true
		}
		if old.(*memo).pin.Epoch >= pin.Epoch {
			return false
		}
		if k.rooms.CompareAndSwap(room, old, &memo{pin: pin, era: k.era.Load(), confirmed: true}) {
			return true
		}
	}
}

// assume remembers a guess, unless the store has said something already.
func (k *known) assume(room string, pin Pin) {
	guess := &memo{pin: pin, era: k.era.Load()}
	old, ok := k.rooms.LoadOrStore(room, guess)
	if !ok {
		k.added()
		return
	}
	if m := old.(*memo); !m.confirmed {
		k.rooms.CompareAndSwap(room, old, guess)
	}
}

// doubt makes what is known of a room stale, since somebody has changed its pin,
// and reports whether anything is known.
func (k *known) doubt(room string) bool {
	for {
		old, ok := k.rooms.Load(room)
		if !ok {
			return false
		}
		if k.rooms.CompareAndSwap(room, old, old.(*memo).stale()) {
			return true
		}
	}
}

// of returns the rooms that are thought to live where want selects. O(rooms).
func (k *known) of(want func(lease.Incarnation) bool) []string {
	var rooms []string
	k.rooms.Range(func(room, m any) bool {
		if life := m.(*memo).pin.Incarnation; life != (lease.Incarnation{}) && want(life) {
			rooms = append(rooms, room.(string))
		}
		return true
	})
	return rooms
}

func (k *known) forget(room string) {
	if _, ok := k.rooms.LoadAndDelete(room); ok {
		k.count.Add(-1)
	}
}

// added makes room for a new entry by dropping some others, whichever come first.
func (k *known) added() {
	over := k.count.Add(1) - k.max
	if over <= 0 {
		return
	}
	over += k.max / 16 // not again for the next one
	k.rooms.Range(func(room, _ any) bool {
		k.forget(room.(string))
		over--
		return over > 0
	})
}

// stale is m without its freshness.
func (m *memo) stale() *memo {
	return &memo{pin: m.pin, era: m.era, confirmed: m.confirmed}
}
