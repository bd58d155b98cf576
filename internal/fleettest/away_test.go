package fleettest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/redistest"
)

// Redis is away for ten seconds, or for minutes with -long, while clients join running and new rooms at six nodes. All
// joins are answered, no node becomes unready, and no room loses its host. Once Redis has returned, all rooms are
// pinned to their hosts.
func TestRedisAway(t *testing.T) {
	long(t)
	t.Parallel()
	away, fresh := 10*time.Second, 200 // rooms whose first join comes while Redis is away
	if *whole {
		away, fresh = 7*time.Minute, 2000
	}
	for name, tt := range map[string]struct{ begin, end func(*redistest.Server) }{
		"killed, and empty afterwards": {(*redistest.Server).Kill, (*redistest.Server).Restart},
		"SIGSTOP":                      {(*redistest.Server).Pause, (*redistest.Server).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			f := newFleet(t, setup{URL: redis.URL()}, "a", "b", "c", "d", "e", "f")
			rooms := names(300)
			f.scatter(rooms)
			running := f.host(rooms, 3)
			eye := newEye(t, redis.URL())
			eye.mustPins(rooms)
			f.introduce(rooms)

			var mu sync.Mutex
			begun := make(map[*affinity.Hosting]*node) // hostings of rooms whose first join was during the outage
			tt.begin(redis)
			l := newLoad(t)
			l.run(8*time.Millisecond, func() {
				room := rooms[rand.IntN(len(rooms))]
				if rand.IntN(2) == 0 {
					room = fmt.Sprint("fresh-", rand.IntN(fresh))
				}
				a, ok := l.join(f.nodes[rand.IntN(len(f.nodes))], room, 3)
				if !ok {
					return
				}
				host := f.node(a.Node)
				h, err := host.rooms.Host(context.Background(), room, affinity.Demand{Size: 3})
				if err != nil {
					return // a real client would retry
				}
				mu.Lock()
				defer mu.Unlock()
				if _, ok := running[h]; !ok {
					begun[h] = host
				}
			})
			healthy := func() error { return errors.Join(allHosted(running), f.allReady()) }
			settle(t, "while Redis is away", away, healthy)
			tt.end(redis)
			ended := time.Now()
			redistest.Eventually(t, "all nodes to use Redis again", func() error {
				if err := healthy(); err != nil {
					t.Fatal(err)
				}
				return f.wellAgain()
			})
			t.Logf("all nodes use Redis again after %v", time.Since(ended).Round(10*time.Millisecond))
			count := 0
			redistest.Eventually(t, "all pins", func() error {
				if err := healthy(); err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				all := maps.Clone(begun)
				mu.Unlock()
				maps.Copy(all, running)
				count = len(all)
				return eye.pinned(all)
			})
			t.Logf("all %d rooms are pinned again after %v", count, time.Since(ended).Round(10*time.Millisecond))
			l.stop()
			l.report()
			if l.degraded() == 0 {
				t.Error("no join was degraded: Redis was not away")
			}
			mu.Lock()
			defer mu.Unlock()
			yielded := 0
			for h := range begun {
				switch {
				case !lost(h):
				case errors.Is(h.Err(), affinity.ErrSplit):
					yielded++ // a first join without Redis may open a second host
				default:
					t.Errorf("%s is lost: %v", h.Room(), h.Err())
				}
			}
			t.Logf("%d rooms were first joined without Redis; %d second hosts of these yielded", len(begun), yielded)
		})
	}
}

// allReady returns an error unless every node is ready, both in Go and over HTTP, and sees all other nodes.
func (f *fleet) allReady() error {
	for _, n := range f.nodes {
		s := n.agent.Snapshot()
		w := httptest.NewRecorder()
		api := clusterhttp.Handler(n.agent, clusterhttp.Options{Rooms: n.rooms})
		api.ServeHTTP(w, httptest.NewRequestWithContext(f.t.Context(), http.MethodGet, "/readyz", nil))
		if w.Code != http.StatusOK || len(s.Table.Nodes()) != len(f.nodes) {
			return fmt.Errorf("%s is not ready: %d %s; it sees %d nodes", s.Self.ID, w.Code, w.Body, len(s.Table.Nodes()))
		}
	}
	return nil
}
