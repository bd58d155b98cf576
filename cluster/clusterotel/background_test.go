package clusterotel_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/cluster/clusterotel"
)

// Ten minutes of heartbeats, pin refreshes and sweeps create no trace, even if the callers that created the pins were
// traced. When a node crashes, each batch of rooms that moves has one trace.
func TestBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRoomCluster(t, clusterotel.Options{})
		here, err := presence.Start(h.tracing.PresenceStore(presence.NewMemory()), 64, presence.Config{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer here.Close()
		ctx, span := h.provider.Tracer("test").Start(t.Context(), "joins")
		orphans := 0
		for i := range 60 {
			room := fmt.Sprint("r", i)
			a, err := h.rooms["a"].Resolve(ctx, room, affinity.Demand{Size: 2})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.rooms[string(a.Node)].Host(ctx, room, affinity.Demand{Size: 2}); err != nil {
				t.Fatal(err)
			}
			if err := here.Join(ctx, room, "jane"); err != nil {
				t.Fatal(err)
			}
			if a.Node == "b" {
				orphans++
			}
		}
		span.End()
		time.Sleep(time.Second) // until their calls have ended
		h.spans.Reset()

		idle := 10 * time.Minute
		if testing.Short() {
			idle = 3 * time.Minute // three times PinTTL
		}
		time.Sleep(idle)
		if got := h.tree(); got != "" {
			t.Errorf("an idle cluster traces:\n%.1000s", got)
		}

		if err := h.rooms["b"].Close(); err != nil {
			t.Error(err)
		}
		h.Crash("b")
		time.Sleep(time.Minute)
		failedOver, batches := 0, 0
		for _, s := range h.spans.GetSpans() {
			switch s.Name {
			case "roost.failover":
				batches++
				if s.Parent.IsValid() {
					t.Error("a batch is not its own trace")
				}
				for _, kv := range s.Attributes {
					if kv.Key == "roost.failed_over" {
						failedOver += int(kv.Value.AsInt64())
					}
				}
			case "roost.store.swap":
				if !s.Parent.IsValid() {
					t.Error("a call of the store is its own trace")
				}
			default:
				t.Errorf("%s is traced", s.Name)
			}
		}
		if orphans == 0 || failedOver != orphans || batches == 0 || batches > 2 {
			t.Errorf("%s rooms were failed over in %d traces, want %d in one by each remaining node", strconv.Itoa(failedOver), batches, orphans)
		}
	})
}
