package clusterhttp

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// The snapshot, /v1/stats, /readyz and the doctor show each hold in the same words.
func TestHolds(t *testing.T) {
	with := clustertest.WithConfig
	for cause, tt := range map[cluster.Cause]struct {
		reason  string // a part of the reason
		ends    bool   // the hold ends at a known time
		produce func(t *testing.T, c *clustertest.Cluster) (id string)
	}{
		cluster.CauseDuplicate: {"another process, at ", false, func(_ *testing.T, c *clustertest.Cluster) string {
			c.Crash("b")
			c.StartWith("b", clustertest.WithClockOffset(-time.Hour)) // so its incarnation is earlier
			return "b"
		}},
		cluster.CauseClockAhead: {"ahead of the cluster's, and may be 5s ahead at most", false, func(_ *testing.T, c *clustertest.Cluster) string {
			c.StartWith("d", clustertest.WithClockOffset(7*time.Second))
			return "d"
		}},
		cluster.CauseIsolated: {"too few members: it sees 4, itself included, and needs 5", false, func(_ *testing.T, c *clustertest.Cluster) string {
			c.StartWith("d", with(func(cfg *cluster.Config) { cfg.MinMembers = 5 }))
			return "d"
		}},
		cluster.CauseUnhealthy: {"no disk", false, func(_ *testing.T, c *clustertest.Cluster) string {
			c.StartWith("d", with(unhealthy))
			return "d"
		}},
		cluster.CauseFlapping: {"it came back 3 times lately", true, func(_ *testing.T, c *clustertest.Cluster) string {
			for range 3 {
				c.Restart("b")
				c.WaitAgreed(5 * time.Second)
			}
			return "b"
		}},
		cluster.CauseCordoned: {"slow disk", true, func(t *testing.T, c *clustertest.Cluster) string {
			if err := c.Agent("a").Cordon(t.Context(), "b", time.Minute, "slow disk"); err != nil {
				t.Error(err)
			}
			return "b"
		}},
		cluster.CauseDraining: {"by command", false, func(t *testing.T, c *clustertest.Cluster) string {
			if err := c.Agent("b").Drain(t.Context()); err != nil {
				t.Error(err)
			}
			return "b"
		}},
	} {
		t.Run(string(cause), func(t *testing.T) {
			inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, _ *api) {
				a := c.Agent(tt.produce(t, c))
				h := newAPI(a, Options{Log: quiet})
				for range 100 {
					if all := a.Snapshot().Holds; len(all) > 0 && strings.Contains(all[0].Reason, tt.reason) {
						break
					}
					time.Sleep(100 * time.Millisecond)
				}
				all := a.Snapshot().Holds
				if len(all) != 1 || all[0].Cause != cause || !strings.Contains(all[0].Reason, tt.reason) ||
					all[0].Until.IsZero() == tt.ends || len(a.Owned()) > 0 {
					t.Fatalf("%+v, owns %d", all, len(a.Owned()))
				}
				explains(t, h, cause)
			})
		})
	}
}

func unhealthy(cfg *cluster.Config) {
	cfg.Health = func(context.Context) error { return errors.New("no disk") }
}

// explains fails the test unless the API lists exactly these holds, everywhere in the same order and in the same words.
func explains(t *testing.T, h *api, causes ...cluster.Cause) {
	t.Helper()
	var stats Stats
	var diagnosis doctor.Diagnosis
	var problem Problem
	for path, into := range map[string]any{"/v1/stats": &stats, "/readyz": &problem, "/v1/doctor?over=0s": &diagnosis} {
		if err := json.Unmarshal(do(h, "GET", path, "").Body.Bytes(), into); err != nil {
			t.Fatal(path, err)
		}
	}
	if stats.State != string(causes[0]) || problem.State != string(causes[0]) || len(stats.Holds) != len(causes) {
		t.Fatalf("want %v; stats: %s %+v; ready: %s", causes, stats.State, stats.Holds, problem.State)
	}
	for i, hold := range stats.Holds {
		e := hold.Explain()
		if hold.Cause != causes[i] || !strings.Contains(e.Finding, hold.Reason) || strings.Contains(e.Finding, "its hold is") {
			t.Errorf("%+v: %+v, want %s", hold, e, causes[i])
		}
		if first := i == 0; first != (strings.Contains(problem.Message, e.Finding) &&
			strings.Contains(problem.Message, e.Means) && strings.Contains(problem.Message, e.Do)) {
			t.Errorf("hold %d: /readyz says %q; want %+v", i, problem.Message, e)
		}
		if !slices.ContainsFunc(diagnosis.Checks, func(c doctor.Check) bool {
			return c.Name == "ready" && strings.Contains(c.Finding, e.Finding) && c.Means == e.Means && c.Do == e.Do
		}) {
			t.Errorf("the doctor says %+v; want %+v", diagnosis.Checks, e)
		}
	}
}

// A node with several holds lists all of them, and explains the first one. It owns partitions again after the last hold
// has ended.
func TestSeveralHolds(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, _ *api) {
		d := c.StartWith("d", clustertest.WithConfig(func(cfg *cluster.Config) { unhealthy(cfg); cfg.MinMembers, cfg.StartDraining = 5, true }))
		h := newAPI(d, Options{Log: quiet})
		time.Sleep(time.Second)
		if err := c.Agent("a").Cordon(t.Context(), "d", 20*time.Second, "slow disk"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		explains(t, h, cluster.CauseIsolated, cluster.CauseUnhealthy, cluster.CauseCordoned, cluster.CauseDraining)
		c.Start("e")
		time.Sleep(time.Second)
		explains(t, h, cluster.CauseUnhealthy, cluster.CauseCordoned, cluster.CauseDraining)
		if _, unhealthy := d.Snapshot().Held(cluster.CauseIsolated, cluster.CauseUnhealthy); !unhealthy {
			t.Error("Held finds no hold")
		}
		if err := d.Undrain(t.Context()); err != nil { // does not wait until the other holds end
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		explains(t, h, cluster.CauseUnhealthy)
	})
}
