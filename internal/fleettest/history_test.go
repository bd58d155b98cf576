package fleettest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
)

// Redis is paused and resumed, and later loses its data, and a node is killed. Every node that saw these events has
// each of them in its history exactly once, no matter how many rooms there are.
func TestHistory(t *testing.T) {
	long(t)
	t.Parallel()
	redis := redistest.Start(t)
	// The budget is long, because otherwise a busy machine would look like an outage.
	h := newHerd(t, setup{URL: redis.URL(), Budget: 3 * time.Second}, "a", "b", "c")
	h.host(names(many(2000)))
	look := newEye(t, redis.URL())
	told := func(want ...cluster.EventKind) {
		t.Helper()
		redistest.Eventually(t, fmt.Sprintf("the history %v", want), func() error {
			for id, p := range h.nodes {
				var got []cluster.EventKind
				for _, e := range p.history() {
					got = append(got, e.Kind)
				}
				if len(got) > len(want) {
					t.Fatalf("%s tells %v", id, got)
				}
				if !slices.Equal(got, want) {
					return fmt.Errorf("%s tells %v", id, got)
				}
			}
			return nil
		})
	}
	told()
	redis.Pause()
	told(affinity.EventStoreAway)
	redis.Resume()
	told(affinity.EventStoreAway, affinity.EventStoreBack)

	redis.Do("FLUSHALL")
	told(affinity.EventStoreAway, affinity.EventStoreBack, affinity.EventDataLost, affinity.EventPinsRestored)
	redistest.Eventually(t, "all pins", func() error {
		pins, err := look.pins(h.rooms)
		if err == nil && len(pins) < len(h.rooms) {
			err = fmt.Errorf("%d pins", len(pins))
		}
		return err
	})

	dead, since := h.nodes["c"].incarnation, time.Now()
	rooms, err := look.of(dead)
	if err != nil || rooms == 0 {
		t.Fatalf("%d rooms, %v", rooms, err)
	}
	h.kill("c")
	h.waitGone(look, dead, since)
	told(affinity.EventStoreAway, affinity.EventStoreBack, affinity.EventDataLost, affinity.EventPinsRestored, affinity.EventRoomsMoved)
	for id, p := range h.nodes {
		redistest.Eventually(t, "the number of rooms", func() error {
			switch e := p.history()[4]; {
			case e.Member != dead.Node || e.Reason != "its node died" || e.Rooms > rooms:
				t.Fatalf("%s tells %+v of %d rooms", id, e, rooms)
			case e.Rooms < int(p.status().FailedOver):
				return fmt.Errorf("%s tells of %d rooms", id, e.Rooms)
			}
			return nil
		})
	}
}
