package clusterprom

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// TestEveryCounterIsShown sets each counter of an agent and of its rooms to a different value, and looks for a metric
// with that value. testdata/fields lists the result for readers.
func TestEveryCounterIsShown(t *testing.T) {
	v := view{Snapshot: &cluster.Snapshot{Self: new(cluster.Member)}, cfg: &cluster.Config{Strategy: placement.Rendezvous()}}
	fields := make(map[float64]string)
	var fill func(of reflect.Value)
	fill = func(of reflect.Value) {
		for i := range of.NumField() {
			n := len(fields) + 1000
			switch f := of.Field(i); f.Interface().(type) {
			case uint64:
				f.SetUint(uint64(n))
			case int, int64:
				f.SetInt(int64(n))
			case time.Duration:
				f.SetInt(int64(time.Duration(n) * time.Second))
			case bool, string, time.Time: // states, see TestStore
				continue
			case []lease.NodeID:
				f.Set(reflect.MakeSlice(f.Type(), n, n))
			case map[time.Duration]uint64:
				f.Set(reflect.ValueOf(map[time.Duration]uint64{time.Second: uint64(n)}))
			default:
				if f.Kind() == reflect.Pointer {
					f.Set(reflect.New(f.Type().Elem()))
					f = f.Elem()
				}
				fill(f)
				continue
			}
			fields[float64(n)] = of.Type().String() + "." + of.Type().Field(i).Name
		}
	}
	fill(reflect.ValueOf(&v.Stats).Elem())
	fill(reflect.ValueOf(&v.rooms).Elem())

	shown := make(map[string]string)
	for name, value := range scrape(t, fixed(&v, slices.Concat(agentFamilies(), roomFamilies())...)) {
		if field, ok := fields[value]; ok {
			if other := shown[field]; other != "" {
				t.Errorf("%s is shown by %s and by %s", field, other, name)
			}
			shown[field] = name
		}
	}
	var text strings.Builder
	for _, field := range slices.Sorted(maps.Values(fields)) {
		if shown[field] == "" {
			t.Errorf("no metric shows %s", field)
		}
		fmt.Fprintf(&text, "%-34s %s\n", field, shown[field])
	}
	golden(t, "testdata/fields", text.String())
}

// fixed returns a collector that collects these families from v at each scrape.
func fixed(v *view, families ...family) *Collector {
	return &Collector{families, func() *view { return v }}
}

func TestLifeOfACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, "a", "b", "c")
		of := make(map[string]*Collector)
		for _, id := range c.IDs() {
			of[id] = New(c.Agent(id), nil)
		}
		time.Sleep(10 * time.Second)
		a, b := scrape(t, of["a"]), scrape(t, of["b"])
		balance := c.Agent("a").Snapshot().Table.Balance()
		a.want(t, samples{
			`roost_node_info{cluster="roost",node="a",strategy="rendezvous",zone=""}`: 1,
			`roost_node_phase{phase="active"}`:                                        1, `roost_node_phase{phase="joining"}`: 0,
			`roost_node_hold{cause="draining"}`: 0, `roost_node_hold{cause="unhealthy"}`: 0,
			`roost_members{state="active"}`: 3, `roost_members{state="draining"}`: 0, `roost_members{state="settling"}`: 0,
			"roost_lease_ttl_seconds": 6, "roost_partitions": 64, "roost_partitions_unowned": 0,
			"roost_partitions_owned": float64(len(c.Agent("a").Owned())), "roost_table_diverged_members": 0,
			"roost_balance_cv_ratio": balance.CV, "roost_balance_max_mean_ratio": balance.MaxMean,
			"roost_table_digest": b["roost_table_digest"], "roost_table_version": float64(c.Agent("a").Snapshot().Version()),
			"roost_lookup_duration_seconds_count": 256, "roost_lease_age_seconds_count": 3,
			`roost_lease_age_seconds_bucket{le="3"}`: 3, `roost_lease_age_seconds_bucket{le="6"}`: 3,
		})
		if a["roost_table_digest"] == 0 || balance.CV == 0 || a["roost_partitions_owned"] == 0 {
			t.Errorf("the test sees no traffic: %v", a)
		}
		if age := a["roost_lease_age_p99_seconds"]; age <= 0 || age > 3 {
			t.Errorf("the leases are up to %v s old", age)
		}
		time.Sleep(time.Minute)
		scrape(t, of["a"]).grew(t, a, "roost_heartbeats_sent_total", "roost_heartbeats_relayed_total",
			`roost_heartbeats_received_total{result="applied"}`, `roost_heartbeats_received_total{result="stale"}`,
			"roost_packets_sent_total", "roost_packets_received_total", "roost_packets_sent_bytes_total",
			"roost_packets_received_bytes_total", "roost_lookup_duration_seconds_count",
			"roost_lease_age_seconds_count", "roost_lease_age_seconds_sum")

		if err := c.Agent("b").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		scrape(t, of["a"]).want(t, samples{
			`roost_members{state="active"}`:   2,
			`roost_members{state="draining"}`: 1,
			"roost_lease_expiries_total":      0,
		})
		scrape(t, of["b"]).want(t, samples{
			"roost_partitions_owned": 0, "roost_partitions_unowned": 0, `roost_node_phase{phase="active"}`: 1,
			`roost_node_hold{cause="draining"}`: 1, `roost_node_hold{cause="unhealthy"}`: 0,
		})
		c.Crash("c")
		time.Sleep(10 * time.Second)
		scrape(t, of["a"]).want(t, samples{
			`roost_members{state="active"}`:        1,
			`roost_lost_members{reason="crashed"}`: 1,
			"roost_lease_crashes_total":            1,
			"roost_lease_expiries_total":           0,
			"roost_partitions_owned":               64,
		})
		if err := c.Agent("a").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		scrape(t, of["a"]).want(t, samples{"roost_partitions_owned": 0, "roost_partitions_unowned": 64, "roost_balance_cv_ratio": 0})
		c.Leave("a")
		over := scrape(t, of["a"])
		over.want(t, samples{`roost_node_phase{phase="over"}`: 1, "roost_partitions_owned": 0})
		scrape(t, of["a"]).want(t, samples{"roost_lookup_duration_seconds_count": over["roost_lookup_duration_seconds_count"]})
	})
}

// disguised is a different strategy with the name of rendezvous, as a faulty build could have it.
type disguised struct{ placement.Strategy }

func (disguised) Name() string { return placement.Rendezvous().Name() }

func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, "a", "b", "c")
		a := New(c.Agent("a"), nil)
		c.StartWith("odd", clustertest.WithConfig(func(c *cluster.Config) { c.Strategy = disguised{placement.Modulo()} }))
		time.Sleep(10 * time.Second)
		before := scrape(t, a)
		time.Sleep(time.Minute)
		after := scrape(t, a)
		after.want(t, samples{"roost_table_diverged_members": 1, `roost_members{state="active"}`: 4})
		if d := after["roost_table_diverged_seconds_total"] - before["roost_table_diverged_seconds_total"]; d < 55 || d > 65 {
			t.Errorf("a minute of divergence counts as %v s", d)
		}
		c.Crash("odd")
		time.Sleep(10 * time.Second)

		before = scrape(t, a)
		c.StartWith("ahead", clustertest.WithClockOffset(time.Minute))
		time.Sleep(10 * time.Second)
		after = scrape(t, a)
		after.grew(t, before, `roost_heartbeats_received_total{result="skewed"}`)
		c.Crash("ahead")

		c.Pause("a")
		time.Sleep(20 * time.Second)
		scrape(t, a).want(t, samples{"roost_partitions_owned": 0, "roost_node_fences_total": 0}) // its loop is paused
		c.Resume("a")
		time.Sleep(10 * time.Second)
		scrape(t, a).want(t, samples{"roost_node_fences_total": 1})
	})
}

func TestMisroutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, "a", "b", "c")
		a := c.Agent("a")
		misrouted := 0
		for i := range 100 {
			key := fmt.Sprint("key-", i)
			if owner := a.Arrived(key); owner != a.IsOwner(key) {
				t.Errorf("%s: Arrived says %t", key, owner)
			} else if !owner {
				misrouted++
			}
		}
		time.Sleep(5 * time.Second)
		scrape(t, New(a, nil)).want(t, samples{
			`roost_requests_total{kind="key"}`: 100, `roost_requests_misrouted_total{kind="key"}`: float64(misrouted),
			`roost_requests_total{kind="room"}`: 0,
		})
	})
}

// The metrics show each resource of a node. A node without resources has none of these series.
func TestResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, "a")
		b := c.StartWith("b", clustertest.WithConfig(func(c *cluster.Config) {
			c.Capacity, c.Resources = 100, map[string]int64{"cpu": 800, "egress_mbit": 10_000}
		}))
		if err := b.SetUse(map[string]int64{"egress_mbit": 9300}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		scrape(t, New(b, nil)).want(t, samples{
			`roost_resource_capacity{resource="cpu"}`: 800, `roost_resource_capacity{resource="egress_mbit"}`: 10_000,
			`roost_resource_use{resource="cpu"}`: 0, `roost_resource_use{resource="egress_mbit"}`: 9300, "roost_node_load": 93,
		})
		for name := range scrape(t, New(c.Agent("a"), nil)) {
			if strings.HasPrefix(name, "roost_resource_") {
				t.Errorf("a, which has no resources, has %s", name)
			}
		}
	})
}

// TestAsManySeries: additional nodes or partitions do not add series.
func TestAsManySeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, "a")
		rooms, err := affinity.Start(c.Agent("a"), pinstore.NewMemory(), affinity.Config{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer rooms.Close()
		a := New(c.Agent("a"), rooms)
		alone := slices.Sorted(maps.Keys(scrape(t, a)))
		c.Start("b", "c", "d", "e", "f", "g", "h")
		c.WaitAgreed(5 * time.Second)
		if among := slices.Sorted(maps.Keys(scrape(t, a))); !slices.Equal(alone, among) {
			t.Errorf("alone:   %v\namong 8: %v", alone, among)
		}
	})
}

func TestScrapesOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(started(t, "a").Agent("a"), nil)
		const scrapes = 8
		var wait sync.WaitGroup
		for range scrapes {
			wait.Go(func() { scrape(t, a) })
		}
		wait.Wait()
		scrape(t, a).want(t, samples{"roost_lookup_duration_seconds_count": 256 * (scrapes + 1)})
	})
}

func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		n, percent int
		want       time.Duration
	}{{0, 99, 0}, {1, 99, 1}, {3, 99, 3}, {100, 99, 99}, {101, 99, 100}, {1000, 99, 990}, {10, 50, 5}, {10, 100, 10}} {
		var all []time.Duration
		for i := c.n; i > 0; i-- {
			all = append(all, time.Duration(i))
		}
		if got := percentile(all, c.percent); got != c.want {
			t.Errorf("%d %% of %d: %d, want %d", c.percent, c.n, got, c.want)
		}
	}
}

// If one reader of events hangs in its loop body, a metric shows that, even if other readers keep up.
func TestEventLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := started(t, "a", "b", "c")
		a := c.Agent("a")
		all, hang := New(a, nil), make(chan struct{})
		before := scrape(t, all)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for range a.Watch(ctx) {
				<-hang
			}
		}()
		mine := a.Reader("mine")
		defer mine.Close()
		mine.Latest()
		synctest.Wait()
		lag := func(reader string) string { return fmt.Sprintf("roost_event_lag_states{reader=%q}", reader) }
		scrape(t, all).want(t, samples{
			lag("watch"): 0, lag("mine"): 0, lag("http"): 0, lag("run_owned"): 0, lag("subscribe"): 0,
			`roost_event_readers{reader="watch"}`: before[`roost_event_readers{reader="watch"}`] + 1,
			`roost_event_readers{reader="mine"}`:  1, `roost_event_readers{reader="http"}`: 0,
		})
		c.Crash("c")
		time.Sleep(time.Minute)
		now := scrape(t, all)
		if now[lag("watch")] == 0 || now[lag("mine")] != now[lag("watch")] {
			t.Errorf("%v states behind, and %v", now[lag("watch")], now[lag("mine")])
		}
		close(hang)
		mine.Latest()
		synctest.Wait()
		scrape(t, all).want(t, samples{lag("watch"): 0, lag("mine"): 0})
	})
}
