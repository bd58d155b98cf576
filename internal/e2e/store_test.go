package e2e

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/affinity/redisstore"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/redistest"
)

// resolver starts a resolver of an agent on a Redis.
func resolver(t *testing.T, a *cluster.Agent, redis *redistest.Server) *affinity.Resolver {
	t.Helper()
	store, err := redisstore.Open(t.Context(), redisstore.Options{URL: redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	rooms, err := affinity.Start(a, store, affinity.Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rooms.Close() })
	return rooms
}

// While Redis is down, the page says so, and what to do. It does not say that rooms moved: none did.
func TestRedisStops(t *testing.T) { // S8.6
	const ttl = 10 * time.Second
	a := agent(t, ttl, "node-a")
	b := agent(t, ttl, "node-b", a.Addr())
	redis := redistest.Start(t)
	rooms := resolver(t, a, redis)
	resolver(t, b, redis)
	address, client := serve(t, a, clusterhttp.Options{Rooms: rooms})
	members(t, client, "node-a", "node-b")
	<-a.Ready()
	for i := range 50 {
		if _, err := rooms.Resolve(t.Context(), fmt.Sprint("room-", i), affinity.Demand{Size: 2}); err != nil {
			t.Fatal(err)
		}
	}
	p := open(t, address, 1440, 900)
	p.ready(2)

	redis.Kill()
	wait(t, "an agent that notices", func() bool { return rooms.Stats().StoreDoubt })
	p.text("#health-found [data-level=bad] .finding", "Redis has not answered lately")
	p.text("#health-found .remedy", "see whether Redis runs")
	p.text("#store-figure", "Down")
	if seen := eval[string](p, `document.getElementById("events").innerText`); strings.Contains(seen, "moved") {
		t.Errorf("Redis stopped, no room moved, and the page says\n%s", seen)
	}
}
