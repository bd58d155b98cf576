package affinity_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// fresh is a store whose answers are fresh for a minute.
type fresh struct{ pinstore.Store }

func (f fresh) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	results := f.Store.Swap(ctx, ops...)
	for i := range results {
		results[i].Fresh = time.Minute
	}
	return results
}

// The store no longer notifies a resolver that was closed or refused. So such a resolver must not answer calls from its
// cache, because no notification would correct the cache.
func TestStoreForgetsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: fresh{pinstore.NewMemory()}}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		f.resolve("b", "room", 2)
		for range 3 {
			_, err := affinity.Start(loner(t, "x", 128), store, affinity.Config{Log: slog.New(slog.DiscardHandler)})
			refused(t, err)
		}
		for range 3 {
			_ = f.rooms["b"].Close()
			f.resolver("b")
			f.resolve("b", "room", 2)
			f.resolve("b", "room", 2)
		}
		if n := store.notified.Load(); n != 2 {
			t.Errorf("the store notifies %d resolvers, and 2 run", n)
		}
		closed := f.rooms["b"]
		_ = closed.Close()
		if a, err := closed.Resolve(t.Context(), "room", affinity.Demand{Size: 2}); !errors.Is(err, affinity.ErrClosed) {
			t.Errorf("a closed resolver resolves to %v, %v", a, err)
		}
	})
}
