package affinity_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/internal/redistest"
)

// farFleet starts agents that reach Redis over a link with the given round trip, and returns their Resolvers.
func farFleet(t *testing.T, roundTrip, budget time.Duration, ids ...string) (rooms []*affinity.Resolver) {
	t.Helper()
	server := redistest.Start(t)
	link := redistest.Proxy(t, server.Addr())
	link.Delay(roundTrip / 2)
	var agents []*cluster.Agent
	for _, id := range ids {
		cfg := cluster.Config{
			ID: id, Cluster: "far", Bind: "127.0.0.1:0", Capacity: 1 << 30,
			HeartbeatInterval: time.Second, LeaseTTL: 20 * time.Second, Log: slog.New(slog.DiscardHandler),
		}
		for _, other := range agents {
			cfg.Join = append(cfg.Join, other.Addr())
		}
		agent, err := cluster.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = agent.Close() })
		redis, err := rueidisconn.Open(context.Background(), rueidisconn.Options{URL: link.URL(server), Budget: budget})
		if err != nil {
			t.Fatal(err)
		}
		store, err := redisstore.New(redis, redisstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		r, err := affinity.Start(agent, store, affinity.Config{Budget: budget, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		agent.SetLoad(0)
		agents, rooms = append(agents, agent), append(rooms, r)
	}
	for i, agent := range agents {
		redistest.Until(t, "all are active, and measure the distance", func() bool {
			s := agent.Snapshot()
			return s.Converged() && len(s.Table.Nodes()) == len(ids) && rooms[i].Stats().StoreRoundTrip >= roundTrip
		})
	}
	return rooms
}

// joined contains the results of the first joins of rooms.
type joined struct {
	took     []time.Duration
	degraded int
}

func (j *joined) String() string {
	slices.Sort(j.took)
	return fmt.Sprintf("%d joins, %d degraded; median %v, p99 %v", len(j.took), j.degraded,
		j.took[len(j.took)/2].Round(time.Millisecond), j.took[len(j.took)*99/100].Round(time.Millisecond))
}

// joinAtRate resolves the given number of new rooms per second, at each instance in turn.
func joinAtRate(t *testing.T, rooms []*affinity.Resolver, perSecond int, during time.Duration) *joined {
	t.Helper()
	var wait sync.WaitGroup
	var mu sync.Mutex
	j := new(joined)
	began := time.Now()
	for i := range int(during.Seconds() * float64(perSecond)) {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		wait.Go(func() {
			asked := time.Now()
			a, err := rooms[i%len(rooms)].Resolve(t.Context(), fmt.Sprint("room-", i), affinity.Demand{Size: 2})
			took := time.Since(asked)
			mu.Lock()
			defer mu.Unlock()
			j.took = append(j.took, took)
			if err != nil || a.Source == affinity.Degraded {
				j.degraded++
			}
		})
	}
	wait.Wait()
	return j
}

// If the budget is large enough, clients can connect to a Redis that is far away, and joins wait for their round trip.
// With -long, the test also shows for several round trips that joins do not queue behind each other, which requires a
// machine with nothing else to do. TestQueueDistant shows the same in virtual time.
func TestFarStore(t *testing.T) {
	const ms = time.Millisecond
	if !*affinity.Long {
		t.Parallel()
		j := joinAtRate(t, farFleet(t, 400*ms, 10*time.Second, "a", "b"), 50, time.Second)
		t.Logf("%v", j)
		if j.degraded > 0 {
			t.Errorf("%d of %d joins are degraded", j.degraded, len(j.took))
		}
		return
	}
	lan, wan := affinity.BudgetOf(cluster.LAN), affinity.BudgetOf(cluster.WAN)
	for _, tt := range []struct{ roundTrip, budget time.Duration }{
		{0, lan}, {50 * ms, lan}, {100 * ms, lan}, {0, wan}, {50 * ms, wan}, {100 * ms, wan}, {200 * ms, wan}, {250 * ms, wan},
	} {
		t.Run(fmt.Sprintf("%v of %v", tt.roundTrip, tt.budget), func(t *testing.T) {
			j := joinAtRate(t, farFleet(t, tt.roundTrip, tt.budget, "a", "b", "c", "d"), 1000, 2*time.Second)
			t.Logf("1000 a second: %v", j)
			if j.degraded > 0 || j.took[len(j.took)*99/100] > max(50*ms, tt.roundTrip*5/2) {
				t.Error("want no degraded join, and a p99 below 2.5 round trips")
			}
		})
	}
}

// Two agents that are far from Redis join and host the same new rooms at the same time. Each room gets one host.
func TestFarHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const ms = time.Millisecond
	for _, roundTrip := range []time.Duration{200 * ms, 250 * ms} {
		t.Run(roundTrip.String(), func(t *testing.T) {
			if !*affinity.Long {
				t.Parallel()
			}
			const count = 300
			ids := []string{"a", "b"}
			rooms := farFleet(t, roundTrip, affinity.BudgetOf(cluster.WAN), ids...)
			hostings := make([][]*affinity.Hosting, count) // of a room, at either agent
			var wait sync.WaitGroup
			var mu sync.Mutex
			degraded := 0
			join := func(i int, at *affinity.Resolver) {
				room := fmt.Sprint("room-", i)
				a, err := at.Resolve(t.Context(), room, affinity.Demand{Size: 2})
				if err != nil {
					t.Errorf("%s: %v", room, err)
					return
				}
				h, err := rooms[slices.Index(ids, string(a.Node))].Host(t.Context(), room, affinity.Demand{Size: 2})
				mu.Lock()
				defer mu.Unlock()
				if a.Source == affinity.Degraded {
					degraded++
				}
				if err == nil && !slices.Contains(hostings[i], h) {
					hostings[i] = append(hostings[i], h)
				}
			}
			for i := range count {
				for _, at := range rooms {
					wait.Go(func() { join(i, at) })
				}
				time.Sleep(5 * ms) // 400 joins a second
			}
			wait.Wait()
			second := 0
			for _, hs := range hostings {
				if len(hs) > 1 {
					second++
				}
			}
			t.Logf("%d rooms: %d joins of %d degraded, %d rooms had a second host", count, degraded, 2*count, second)
			if *affinity.Long && degraded+second > 0 { // on a machine with nothing else to do
				t.Error("want no degraded join and no second host")
			}
			redistest.Eventually(t, "one host of each room", func() error {
				for i, hs := range hostings {
					if open := slices.DeleteFunc(slices.Clone(hs), lost); len(open) != 1 {
						return fmt.Errorf("room-%d has %d hosts", i, len(open))
					}
				}
				return nil
			})
		})
	}
}
