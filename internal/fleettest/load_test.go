package fleettest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/placement/affinity"
)

// load is clients that join rooms all the time.
type load struct {
	t    *testing.T
	quit chan struct{}
	once sync.Once // for stop
	wait sync.WaitGroup

	mu      sync.Mutex
	took    []time.Duration
	sources map[affinity.Source]int
}

// load has clients join rooms that are known and new ones, until stop.
func (f *fleet) load(known []string, fresh string) *load {
	l := newLoad(f.t)
	l.run(4*time.Millisecond, func() {
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
	return l
}

// run has some clients call f again and again.
func (l *load) run(every time.Duration, f func()) {
	for range 6 {
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
	// The test's own context ends before it is cleaned up.
	since := time.Now()
	a, err := n.rooms.Resolve(context.Background(), room, affinity.Demand{Size: size})
	took := time.Since(since)
	if err != nil || a.Member == nil {
		l.t.Errorf("%s at %s: %#v, %v", room, n.life(), a, err)
		return a, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, took)
	l.sources[a.Source]++
	return a, true
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

// report logs how long joins took, and fails the test if one was late.
func (l *load) report() {
	l.t.Helper()
	slices.Sort(l.took)
	n := len(l.took)
	over := n - max(0, slices.IndexFunc(l.took, func(d time.Duration) bool { return d > budget+50*time.Millisecond }))
	if over == n {
		over = 0
	}
	l.t.Logf("%d joins %v: p50 %v, p99 %v, max %v, %d above the budget + 50 ms", n, l.sources,
		l.took[n/2].Round(time.Microsecond), l.took[n*99/100].Round(time.Millisecond), l.took[n-1].Round(time.Millisecond), over)
	if l.took[n-1] > late {
		l.t.Errorf("a join took %v", l.took[n-1])
	}
}
