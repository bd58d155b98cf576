package affinity

import (
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// A participant who has seen a fence joins no hosting from before it, while the rooms end,
// open again and are kept. Then the table has the same rooms for all its readers.
func TestHostTableConcurrent(t *testing.T) {
	const rooms, fences = 8, 30
	table := newHostTable()
	var fenced atomic.Uint64 // of the agent
	var joins atomic.Uint64
	var done atomic.Bool
	var wait sync.WaitGroup
	loop := func(step func(room string)) {
		wait.Go(func() {
			for i := 0; !done.Load(); i++ {
				step(strconv.Itoa(i % rooms))
			}
		})
	}
	for range 4 {
		loop(func(room string) { // a participant joins, as in Resolver.host
			joins.Add(1)
			count := fenced.Load()
			table.fence(count)
			if h := table.get(room); h != nil {
				if h.generation < count {
					t.Errorf("joined a hosting of fence %d after fence %d", h.generation, count)
				}
				h.join(mesh(3))
				return
			}
			h := hostingOf(room)
			h.generation = count
			_, _ = table.open(h, count, 0)
		})
	}
	loop(func(room string) {
		if h := table.get(room); h != nil {
			table.end(h, ErrReleased)
		}
	})
	loop(func(string) { // the keeper
		write, _, _ := table.due(time.Now(), time.Hour, rooms, 0)
		table.ops(write, func(h *Hosting) pinstore.Op { return pinstore.Op{Set: h.needed().Pin(h.pin)} })
		table.needs()
	})
	for range fences {
		fenced.Add(1)
		for before := joins.Load(); joins.Load() < before+50; {
			runtime.Gosched()
		}
	}
	done.Store(true)
	wait.Wait()
	table.fence(fenced.Load())
	names := table.names()
	for i := range rooms {
		room := strconv.Itoa(i)
		if h := table.get(room); (h != nil) != slices.Contains(names, room) {
			t.Errorf("room %s is hosted: %v; the names are %q", room, h != nil, names)
		}
	}
}
