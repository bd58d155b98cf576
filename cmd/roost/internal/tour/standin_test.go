package tour

import (
	"log/slog"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cmd/roost/internal/store"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/internal/standin"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// TestStandIn: keys in the stand-in for Redis last as long as in Redis, and scripts see the correct time.
func TestStandIn(t *testing.T) {
	url, stop, err := standin.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	store, err := store.Open(t.Context(), url, "demo", 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	const ttl = 500 * time.Millisecond
	began := time.Now()
	life := lease.Incarnation{Node: "a", Number: 1}
	op := pinstore.Op{Partition: 7, Room: "lobby", Set: pinstore.Pin{Incarnation: life, Size: 3}, TTL: ttl}
	res := store.Swap(t.Context(), op)[0]
	if res.Err != nil || !res.Done {
		t.Fatalf("%+v", res)
	}
	// A new epoch is the server's time in microseconds.
	if off := time.UnixMicro(int64(res.Pin.Epoch)).Sub(began).Abs(); off > time.Minute {
		t.Errorf("scripts see a time that is off by %v", off)
	}
	if alive, err := store.Heartbeat(t.Context(), life, ttl, []lease.Incarnation{life}); err != nil || !alive[0] {
		t.Errorf("no heartbeat: %v %v", alive, err)
	}
	redistest.Until(t, "the pin is gone", func() bool {
		res := store.Swap(t.Context(), pinstore.Op{Partition: 7, Room: "lobby"})[0]
		return res.Err == nil && res.Pin == pinstore.Pin{}
	})
	if took := time.Since(began); took < ttl-standin.Precision {
		t.Errorf("the pin was gone after %v, it was to last %v", took, ttl)
	}
	redistest.Until(t, "the heartbeat has expired", func() bool {
		alive, err := store.Heartbeat(t.Context(), lease.Incarnation{Node: "b", Number: 1}, ttl, []lease.Incarnation{life})
		return err == nil && !alive[0]
	})
	found, err := store.Index(t.Context(), []placement.Partition{7}, func(lease.Incarnation) bool { return true }, 10)
	if err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}
