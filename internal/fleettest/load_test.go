package fleettest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
)

// clients is the number of clients of a load.
const clients = 6

// load is a set of clients that join rooms continuously.
type load struct {
	t     *testing.T
	quit  chan struct{}
	once  sync.Once    // for stop
	ticks atomic.Int64 // see stopwatch
	wait  sync.WaitGroup

	mu      sync.Mutex
	took    []time.Duration
	late    int
	sources map[affinity.Source]int
}

// load starts clients that join known and new rooms until stop is called.
func (f *fleet) load(known []string, fresh string) *load {
	l := newLoad(f.t)
	l.run(8*time.Millisecond, func() {
		room := known[rand.IntN(len(known))]
		if rand.IntN(2) == 0 {
			room = fmt.Sprint(fresh, rand.IntN(1000))
		}
		l.join(f.nodes[rand.IntN(len(f.nodes))], room, 3)
	})
	return l
}

func newLoad(t *testing.T) *load {
	l := &load{t: t, quit: make(chan struct{}), sources: make(map[affinity.Source]int)}
	t.Cleanup(l.stop)
	l.wait.Go(func() {
		for tick := time.NewTicker(tick); ; {
			select {
			case <-l.quit:
				return
			case <-tick.C:
				l.ticks.Add(1)
			}
		}
	})
	return l
}

// run starts some clients that call f repeatedly.
func (l *load) run(every time.Duration, f func()) {
	for range clients {
		l.wait.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				select {
				case <-l.quit:
					return
				case <-tick.C:
					f()
				}
			}
		})
	}
}

func (l *load) join(n *node, room string, size int) (a affinity.Assignment, ok bool) {
	// The context of the test ends before its cleanup.
	since, over := time.Now(), l.stopwatch(budget)
	a, err := n.rooms.Resolve(context.Background(), room, affinity.Demand{Size: size})
	took := time.Since(since)
	l.heed(over())
	if err != nil || a.Member == nil {
		l.t.Errorf("%s at %s: %#v, %v", room, n.incarnation(), a, err)
		return a, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, took)
	l.sources[a.Source]++
	return a, true
}

// heed records how much a call exceeded its limit.
func (l *load) heed(by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if by > late {
		l.late++
	}
}

func (l *load) degraded() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sources[affinity.Degraded]
}

func (l *load) stop() {
	l.once.Do(func() { close(l.quit) })
	l.wait.Wait()
}

// tick is the interval between the ticks of a load.
const tick = 10 * time.Millisecond

// stopwatch returns a function that reports how much a call has exceeded a limit. A timer in another goroutine marks
// the limit, and the excess is counted in ticks of a third goroutine. If a process gets no CPU, there are no ticks, and
// a busy machine delays the timer and the ticks as much as the call.
func (l *load) stopwatch(limit time.Duration) (over func() time.Duration) {
	end := make(chan int64, 1)
	timer := time.AfterFunc(limit, func() { end <- l.ticks.Load() })
	return func() time.Duration {
		timer.Stop()
		select {
		case at := <-end:
			return time.Duration(l.ticks.Load()-at) * tick
		default:
			return 0
		}
	}
}

// report logs how long joins took, and fails the test if joins waited for the store. In that case, every client was
// late at least once. If fewer joins are late, the machine is just busy.
func (l *load) report() {
	l.t.Helper()
	slices.Sort(l.took)
	n := len(l.took)
	over := n - max(0, slices.IndexFunc(l.took, func(d time.Duration) bool { return d > budget+50*time.Millisecond }))
	if over == n {
		over = 0
	}
	l.t.Logf("%d joins %v: p50 %v, p99 %v, max %v, %d above the budget + 50 ms, %d late", n, l.sources,
		l.took[n/2].Round(time.Microsecond), l.took[n*99/100].Round(time.Millisecond), l.took[n-1].Round(time.Millisecond), over, l.late)
	if l.late >= clients {
		l.t.Errorf("%d of %d joins exceeded the limit by %v", l.late, n, late)
	}
}
