package clusterprom

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/evacuate"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

var quiet = slog.New(slog.DiscardHandler)

// flaky is a store that hangs if the test wants that.
type flaky struct {
	pinstore.Store
	hangs atomic.Bool
}

func (f *flaky) wait(ctx context.Context) error {
	if !f.hangs.Load() {
		time.Sleep(time.Millisecond) // a round trip
		return nil
	}
	<-ctx.Done()
	return fmt.Errorf("%w: %w", pinstore.ErrStore, ctx.Err())
}

func (f *flaky) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	if err := f.wait(ctx); err != nil {
		results := make([]pinstore.Result, len(ops))
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	return f.Store.Swap(ctx, ops...)
}

func (f *flaky) Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	return f.Store.Heartbeat(ctx, self, ttl, ask)
}

// roomCluster is a cluster of a, b and c with rooms.
type roomCluster struct {
	*clustertest.Cluster
	store flaky
	rooms map[string]*affinity.Resolver
	of    map[string]*Collector
}

func newRoomCluster(t *testing.T) *roomCluster {
	t.Helper()
	h := &roomCluster{
		Cluster: started(t, "a", "b", "c"), store: flaky{Store: pinstore.NewMemory()},
		rooms: make(map[string]*affinity.Resolver), of: make(map[string]*Collector),
	}
	for _, id := range h.IDs() {
		r, err := affinity.Start(h.Agent(id), &h.store, affinity.Config{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		h.rooms[id], h.of[id] = r, New(h.Agent(id), r)
	}
	time.Sleep(10 * time.Second)
	return h
}

// sum adds up the values of all nodes.
func (h *roomCluster) sum(t *testing.T) samples {
	t.Helper()
	all := make(samples)
	for _, c := range h.of {
		for name, value := range scrape(t, c) {
			all[name] += value
		}
	}
	return all
}

func TestRooms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRoomCluster(t)
		const rooms = 30
		wrong := 0
		for i := range rooms {
			room := fmt.Sprint("room-", i)
			for range 2 { // first placed by the hash, then found by its pin
				if _, err := h.rooms["a"].Resolve(t.Context(), room, affinity.Demand{Size: 2}); err != nil {
					t.Fatal(err)
				}
			}
			at, err := h.rooms["b"].Resolve(t.Context(), room, affinity.Demand{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.rooms[string(at.Node)].Host(t.Context(), room, affinity.Demand{Size: 2}); err != nil {
				t.Fatal(err)
			}
			if at.Node != "c" {
				if _, err := h.rooms["c"].Host(t.Context(), room, affinity.Demand{}); !errors.Is(err, affinity.ErrNotOwner) {
					t.Fatalf("c hosts %s, too: %v", room, err)
				}
				wrong++
			}
		}
		time.Sleep(5 * time.Second)
		before := h.sum(t)
		before.want(t, samples{
			`roost_rooms_resolved_total{source="hash"}`: rooms, `roost_rooms_resolved_total{source="degraded"}`: 0,
			"roost_rooms_hosted": rooms, "roost_store_up": 3, `roost_store_breaker{state="closed"}`: 3,
			`roost_requests_total{kind="room"}`: float64(rooms + wrong), `roost_requests_misrouted_total{kind="room"}`: float64(wrong),
			`roost_rooms_without_headroom_total{result="placed"}`: 0, `roost_rooms_without_headroom_total{result="refused"}`: 0,
			"roost_rooms_failed_over_total": 0, "roost_rooms_failover_duration_seconds_count": 0, "roost_store_errors_total": 0,
		})
		before.grew(t, samples{}, `roost_rooms_resolved_total{source="pinned"}`, "roost_rooms_known")
		calls, took := before["roost_store_call_duration_seconds_count"], before["roost_store_call_duration_seconds_sum"]
		if calls == 0 || took < 0.99*calls/1000 || took > 1.01*calls/1000 {
			t.Errorf("%v calls of a millisecond took %v s", calls, took)
		}
		// If a pin is not in the cache, resolve calls the store once. Every call ends within the largest bucket.
		asked := before["roost_rooms_resolve_duration_seconds_count"]
		if pinned := before[`roost_rooms_resolved_total{source="pinned"}`]; asked < rooms || asked > rooms+pinned {
			t.Errorf("%v resolve calls of %d rooms took a call of the store, %v found a pin", asked, rooms, pinned)
		}
		before.want(t, samples{
			`roost_store_call_duration_seconds_bucket{le="0.0005"}`: 0, `roost_store_call_duration_seconds_bucket{le="0.001"}`: calls,
			`roost_store_call_duration_seconds_bucket{le="1"}`: calls, `roost_rooms_resolve_duration_seconds_bucket{le="1"}`: asked,
		})

		if _, err := h.rooms["b"].Relays(t.Context(), "room-1", affinity.Demand{Size: 2}, 2); err != nil {
			t.Fatal(err)
		}
		if err := h.Agent("b").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		empty := scrape(t, h.of["b"])["roost_rooms_hosted"]
		half := false
		err := evacuate.Run(t.Context(), h.Agent("b"), h.rooms["b"], evacuate.Plan{}, func(e affinity.Evacuation) {
			scrape(t, h.of["b"]).want(t, samples{
				"roost_rooms_evacuating":                1,
				`roost_rooms_evacuation{state="moved"}`: float64(e.Moved),
				`roost_rooms_evacuation{state="left"}`:  empty - float64(e.Moved),
			})
			half = half || e.Moved > 0 && e.Left > 0
		})
		if err != nil || !half {
			t.Fatalf("%v, seen half-way: %v", err, half)
		}
		scrape(t, h.of["b"]).want(t, samples{
			"roost_rooms_evacuating": 0, `roost_rooms_evacuation{state="moved"}`: empty, `roost_rooms_evacuation{state="left"}`: 0,
			`roost_rooms_evacuation{state="failed"}`: 0, `roost_rooms_evacuation{state="ended"}`: 0, "roost_rooms_relays_total": 1,
		})
		scrape(t, h.of["c"]).want(t, samples{"roost_rooms_evacuating": 0, `roost_rooms_evacuation{state="moved"}`: 0})

		pinned, err := h.rooms["a"].Rooms(t.Context(), "c", rooms)
		lost := float64(len(pinned))
		if err != nil || lost == 0 || wrong == 0 {
			t.Fatalf("c has %v rooms of %d, %v: the test sees too little", lost, rooms, err)
		}
		h.Crash("c")
		_ = h.rooms["c"].Close() // no caller uses it any more
		delete(h.of, "c")
		time.Sleep(20 * time.Second)
		after := h.sum(t)
		after.want(t, samples{"roost_rooms_failed_over_total": lost})
		after.grew(t, before, "roost_rooms_failover_duration_seconds_count", "roost_rooms_failover_duration_seconds_sum")
	})
}

func TestStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRoomCluster(t)
		h.store.hangs.Store(true)
		for i := range 5 {
			if _, err := h.rooms["a"].Resolve(t.Context(), fmt.Sprint("new-", i), affinity.Demand{}); err != nil {
				t.Fatal(err)
			}
		}
		scrape(t, h.of["a"]).want(t, samples{
			"roost_store_up": 0, `roost_store_breaker{state="open"}`: 1, `roost_store_breaker{state="closed"}`: 0,
			`roost_rooms_resolved_total{source="degraded"}`: 5, "roost_store_errors_total": 5,
			"roost_store_call_duration_seconds_count": 3, // after three calls, the breaker is open
		})
		time.Sleep(10 * time.Second)
		scrape(t, h.of["b"]).want(t, samples{"roost_store_up": 0}) // it only sends heartbeats
		h.store.hangs.Store(false)
		time.Sleep(10 * time.Second)
		if _, err := h.rooms["a"].Resolve(t.Context(), "later", affinity.Demand{}); err != nil {
			t.Fatal(err)
		}
		scrape(t, h.of["a"]).want(t, samples{"roost_store_up": 1, `roost_store_breaker{state="closed"}`: 1})
	})
}
