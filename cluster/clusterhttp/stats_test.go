package clusterhttp

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// TestStats: the response has the agent's counters and its settings, including defaults, but not the key of the
// cluster.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := []byte("0123456789abcdef")
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) {
			cfg.Cluster, cfg.Key, cfg.Partitions = "fleet", key, 64
		}})
		c.Start("a", "b")
		c.WaitAgreed(5 * time.Second)
		rooms := startRooms(t, c, pinstore.NewMemory(), affinity.Config{})
		a := c.Agent("a")
		synctest.Wait() // until the rooms have read the events

		w := do(Handler(a, Options{Log: quiet, Rooms: rooms["a"]}), http.MethodGet, "/v1/stats", "")
		var got Stats
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d: %v", w.Code, err)
		}
		cfg, roomStats := a.Config(), rooms["a"].Stats()
		roomStats.StoreWithin, roomStats.AskedWithin = nil, nil // only the metrics contain these fields
		want := Stats{
			Self: "a", State: "active", Counts: a.Snapshot().Stats, Rooms: &roomStats,
			Readers: a.ReaderStats(),
			Settings: Settings{
				Cluster:     "fleet",
				Partitions:  64,
				Strategy:    "rendezvous",
				Addr:        a.Addr(),
				Join:        cfg.Join,
				HeartbeatMS: cfg.HeartbeatInterval.Milliseconds(),
				TTLMS:       cfg.LeaseTTL.Milliseconds(),
				MaxSkewMS:   cfg.MaxSkew.Milliseconds(),
				MinMembers:  1,
				Split:       "continue",
			},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if got.Counts.HeartbeatsApplied == 0 || got.Counts.PacketsReceived == 0 || got.Settings.TTLMS == 0 ||
			len(got.Settings.Join) == 0 || len(got.Readers) == 0 {
			t.Errorf("all counters are zero: %+v", got)
		}
		for _, secret := range []string{string(key), base64.StdEncoding.EncodeToString(key), hex.EncodeToString(key)} {
			if strings.Contains(w.Body.String(), secret) {
				t.Errorf("the answer holds the key: %s", w.Body)
			}
		}

		w = do(Handler(c.Agent("b"), Options{Log: quiet}), http.MethodGet, "/v1/stats", "")
		expect(t, w, http.StatusOK, `"state":"active"`)
		if strings.Contains(w.Body.String(), `"rooms"`) {
			t.Errorf("an agent without a store has counters of rooms: %s", w.Body)
		}
		served := Handler(c.Agent("b"), Options{Log: quiet})
		c.Pause("b")
		time.Sleep(time.Minute)
		w = do(served, http.MethodGet, "/v1/stats", "")
		expect(t, w, http.StatusOK, `"state":"joining"`)
		expect(t, w, http.StatusOK, `"uptime_ms":60000,`)
		c.Resume("b")
	})
}

// The stats say how much of each resource is in use, and which resource is the tightest. A node that computes its units
// from its rooms accepts the use of its resources, but no units, not even together with a use.
func TestUseNextToAComputedLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) {
			cfg.Capacity, cfg.Resources = 500, map[string]int64{"cpu": 800, "egress_mbit": 10_000}
		}})
		c.Start("a")
		c.WaitAgreed(5 * time.Second)
		rooms := startRooms(t, c, pinstore.NewMemory(), affinity.Config{ReportLoad: true})
		client := serve(t, NewServer(Handler(c.Agent("a"), Options{Log: quiet, Rooms: rooms["a"]}))).client(t)
		want := func(cpu, egress cluster.Resource) {
			t.Helper()
			got, err := client.Stats(t.Context())
			if diff := cmp.Diff([]cluster.Resource{cpu, egress}, got.Resources); diff != "" || err != nil {
				t.Errorf("%v: %s", err, diff)
			}
		}
		cpu, egress := cluster.Resource{Name: "cpu", Capacity: 800}, cluster.Resource{Name: "egress_mbit", Capacity: 10_000}
		want(cpu, egress)
		if got, err := client.SetUse(t.Context(), map[string]int64{"egress_mbit": 9300}); err != nil || got.Load != 465 {
			t.Errorf("%+v, %v", got, err)
		}
		if w := do(Handler(c.Agent("a"), Options{Log: quiet}), "POST", "/v1/load", `{"units":7,"use":{"cpu":800}}`); w.Code != http.StatusConflict {
			t.Errorf("units and use: %d %s", w.Code, w.Body)
		}
		egress.Use, egress.Tightest = 9300, true
		want(cpu, egress)
	})
}
