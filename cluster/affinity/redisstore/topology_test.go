package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// load sends calls to two stores in all partitions until stop is called. Each call must return in time, and must either
// succeed or fail with an ErrStore.
type load struct {
	stores     []*Store
	partitions int
	quit       chan struct{}
	wg         sync.WaitGroup
	good, bad  atomic.Int64
}

func startLoad(t *testing.T, stores ...*Store) *load {
	l := &load{stores: stores, partitions: 48, quit: make(chan struct{})}
	for c := range 4 {
		l.wg.Go(func() {
			for i := c; ; i++ {
				select {
				case <-l.quit:
					return
				case <-time.After(time.Millisecond): // leave time for other tests
				}
				err := within(budget, func(ctx context.Context) error { return l.call(ctx, i) })
				switch {
				case err == nil:
					l.good.Add(1)
				case errors.Is(err, pinstore.ErrStore) && !errors.Is(err, errLate):
					l.bad.Add(1)
				default:
					t.Errorf("call: %v; want an ErrStore in time", err)
				}
			}
		})
	}
	return l
}

func (l *load) call(ctx context.Context, i int) error {
	p := placement.Partition(i % l.partitions)
	op := pinstore.Op{Partition: p, Room: fmt.Sprint("load ", p), Set: pinstore.Pin{Incarnation: node("n", uint64(i%2)+1)}, TTL: time.Hour}
	if i%3 == 0 {
		op.If = pinstore.Pin{Incarnation: node("n", uint64(i/3%2)+1)}
	}
	return l.stores[i%len(l.stores)].Swap(ctx, op)[0].Err
}

func (l *load) stop() {
	close(l.quit)
	l.wg.Wait()
}

// all claims a room in each partition through each store, and checks that all stores get the same pin.
func (l *load) all(ctx context.Context, room string) error {
	for i := range l.partitions {
		var pins []pinstore.Pin
		for j, s := range l.stores {
			r := s.Swap(ctx, pinstore.Op{
				Partition: placement.Partition(i), Room: fmt.Sprint(room, " ", i),
				Set: pinstore.Pin{Incarnation: node("n", uint64(j)+1)}, TTL: time.Hour,
			})[0]
			if r.Err != nil {
				return r.Err
			}
			pins = append(pins, r.Pin)
		}
		if pins[0] != pins[1] {
			return fmt.Errorf("partition %d: one store returned %v, one %v", i, pins[0], pins[1])
		}
	}
	return nil
}

// Masters fail while the stores are busy, and other servers take over.
func TestFailover(t *testing.T) {
	long(t)
	for name, start := range map[string]func(*testing.T) (url string, fail func(key string)){
		"cluster": func(t *testing.T) (string, func(string)) {
			cluster := redistest.StartCluster(t, 3, 1)
			return cluster.URL(), func(key string) { cluster.Owner(key).Kill() }
		},
		"sentinel, killed": func(t *testing.T) (string, func(string)) {
			sentinel := redistest.StartSentinel(t)
			return sentinel.URL(), func(string) { sentinel.Master().Kill() }
		},
		"sentinel, hangs": func(t *testing.T) (string, func(string)) {
			sentinel := redistest.StartSentinel(t)
			return sentinel.URL(), func(string) { sentinel.Master().Pause() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			url, fail := start(t)
			a, b := ready(t, redisAt{URL: url}), ready(t, redisAt{URL: url})
			failover(t, a, b, func() { fail(names(a).pin(17, "room")) })
		})
	}
}

func failover(t *testing.T, a, b *Store, fail func()) {
	notified := listen(a)
	l := startLoad(t, a, b)
	redistest.Eventually(t, "before", func() error { return l.all(t.Context(), "before") })
	before := swap(t, a, first("room", node("n", 1))).Pin
	notified.reset()
	fail()
	start := time.Now()
	redistest.Eventually(t, "notice", func() error { return notified.have("") })
	redistest.Eventually(t, "a new master", func() error {
		return errors.Join(try(a, first("after", node("n", 1))), try(b, first("after", node("n", 1))))
	})
	t.Logf("partition 17 was away for %v", time.Since(start).Round(time.Millisecond))
	redistest.Eventually(t, "all partitions", func() error { return l.all(t.Context(), "after") })
	l.stop()
	t.Logf("%d calls succeeded, %d failed", l.good.Load(), l.bad.Load())
	claimed := swap(t, b, pinstore.Op{
		Partition: 17,
		Room:      "room",
		Set:       pinstore.Pin{Incarnation: node("m", 1), Epoch: before.Epoch},
		TTL:       time.Hour,
	})
	if claimed.Done && claimed.Pin.Epoch <= before.Epoch {
		t.Errorf("epoch %d after %d", claimed.Pin.Epoch, before.Epoch)
	}
	works(t, b) // even on connections that were idle
	// The new master sends notifications and has an index.
	redistest.Eventually(t, "a subscription", a.Notified)
	is := swap(t, a, read("after")).Pin
	notified.reset()
	swap(t, b, pinstore.Op{Partition: 17, Room: "after", If: is, Set: pinstore.Pin{Incarnation: node("m", 2)}, TTL: time.Hour})
	redistest.Eventually(t, "change", func() error { return notified.have("after") })
	entries, err := b.Index(t.Context(), []placement.Partition{17}, func(l lease.Incarnation) bool { return l == node("m", 2) }, 10)
	if err != nil || len(entries) != 1 {
		t.Errorf("index: %v, %v; want the room that was moved", entries, err)
	}
}
