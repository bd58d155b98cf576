package affinity

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/roost-cluster/roost/lease"
)

// Pressure tells how full a node is with its rooms, in units of load (see
// Config.Cost), and which of them weigh most. A room that grows after it was
// pinned is never moved by itself: somebody has to look at this and move one.
type Pressure struct {
	Node     lease.NodeID `json:"node"`
	Load     int64        `json:"load"`     // units
	Ceiling  int64        `json:"ceiling"`  // units up to which the node is given new rooms
	Capacity int64        `json:"capacity"` // units that it can carry
	Over     bool         `json:"over"`     // Load is above Ceiling

	// Heaviest has the rooms of most units, the heaviest first. Readers share it:
	// it must not be changed.
	Heaviest []RoomLoad `json:"heaviest"`
}

// RoomLoad is what one room costs its node.
type RoomLoad struct {
	Room  string `json:"room"`
	Size  int    `json:"size"`  // participants
	Units int64  `json:"units"` // of load
}

func (p *Pressure) equal(o *Pressure) bool {
	return p.Node == o.Node && p.Load == o.Load && p.Ceiling == o.Ceiling && p.Capacity == o.Capacity &&
		p.Over == o.Over && slices.Equal(p.Heaviest, o.Heaviest)
}

// pressures is a feed of one node's pressure. It is level-triggered: readers get
// the newest value and skip what lies between. The zero value is ready to use,
// from any goroutine; publishing waits for nobody.
type pressures struct {
	cell atomic.Pointer[pressureCell]
}

// pressureCell is one publication. Its channel is closed by whoever replaces it,
// so a reader that holds a cell cannot miss the next one.
type pressureCell struct {
	value *Pressure     // nil: none yet
	next  chan struct{} // nil: the feed is closed
}

// publish makes p the newest value; if it is that already, readers are not told
// again. p.Heaviest must not be changed afterwards. After close, publish does
// nothing.
func (f *pressures) publish(p Pressure) {
	f.replace(func(*pressureCell) *pressureCell {
		return &pressureCell{value: &p, next: make(chan struct{})}
	})
}

// close ends the feed: readers get to the last value, then to the end. It may be
// called again.
func (f *pressures) close() {
	f.replace(func(c *pressureCell) *pressureCell { return &pressureCell{value: c.value} })
}

// watch returns the newest value, as soon as there is one, and after that the
// newest one each time that it differs from what the loop was given last. It ends
// with ctx or the feed, and needs no goroutine. Each range over it starts anew.
func (f *pressures) watch(ctx context.Context) iter.Seq[Pressure] {
	return func(yield func(Pressure) bool) {
		var told *Pressure
		for ctx.Err() == nil {
			c := f.load()
			if c.value != nil && (told == nil || !told.equal(c.value)) {
				if told = c.value; !yield(*told) {
					return
				}
			}
			if c.next == nil {
				return
			}
			select {
			case <-c.next:
			case <-ctx.Done():
			}
		}
	}
}

func (f *pressures) load() *pressureCell {
	for {
		if c := f.cell.Load(); c != nil {
			return c
		}
		f.cell.CompareAndSwap(nil, &pressureCell{next: make(chan struct{})})
	}
}

// replace swaps the cell, unless the feed is closed, and wakes whoever waits.
func (f *pressures) replace(by func(*pressureCell) *pressureCell) {
	for {
		c := f.load()
		if c.next == nil {
			return
		}
		if f.cell.CompareAndSwap(c, by(c)) {
			close(c.next)
			return
		}
	}
}
