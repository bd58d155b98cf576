package affinity_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// deaf is a store that does not say which nodes are alive, and records when it receives a heartbeat of node a.
type deaf struct {
	pinstore.Store

	mu     sync.Mutex
	on     bool
	last   time.Time
	silent time.Duration // the longest time between two heartbeats of a
}

func (s *deaf) Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	s.mu.Lock()
	if self.Node == "a" && len(ask) == 0 {
		if !s.last.IsZero() && s.on {
			s.silent = max(s.silent, time.Since(s.last))
		}
		s.last = time.Now()
	}
	on := s.on
	s.mu.Unlock()
	if on && len(ask) > 0 {
		<-ctx.Done()
		return nil, pinstore.ErrStore
	}
	return s.Store.Heartbeat(ctx, self, ttl, ask)
}

// Even if many rooms are pinned to a node and the store does not say whether that node is dead, only one call at a time
// asks the store. Otherwise this node's own heartbeats and rooms would have to wait for one call per room.
func TestUnansweredContest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deaf{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a")
		ghost := pinstore.Pin{Incarnation: lease.Incarnation{Node: "ghost", Number: 7}}
		var hosted []*affinity.Hosting
		for _, room := range names(40) {
			hosted = append(hosted, f.host("a", room, 2))
		}
		synctest.Wait()
		store.mu.Lock()
		store.on = true
		store.mu.Unlock()
		for _, h := range hosted {
			op := pinstore.Op{
				Partition: placement.Of(h.Room(), 64),
				Room:      h.Room(),
				If:        pinstore.Pin{Incarnation: f.resolve("a", h.Room(), 2).Incarnation},
				Set:       ghost,
				TTL:       time.Hour,
			}
			if res := store.Swap(t.Context(), op)[0]; !res.Done {
				t.Fatalf("%+v", res)
			}
		}
		time.Sleep(time.Minute)
		store.mu.Lock()
		defer store.mu.Unlock()
		if store.silent = max(store.silent, time.Since(store.last)); store.silent > 3*time.Second {
			t.Errorf("no heartbeat for %v", store.silent)
		}
		for _, h := range hosted {
			if lost(h) {
				t.Fatalf("%s is lost: %v", h.Room(), h.Err())
			}
		}
	})
}
