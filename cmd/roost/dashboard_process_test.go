//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/redistest"
)

// TestDashboard: each query of the Grafana dashboard returns data from a real Prometheus that scrapes agents with
// rooms. One agent has crashed, one is cordoned, one is unhealthy, and Redis has lost its data.
func TestDashboard(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	args := append(calm(), "--capacity", "1000", "--resources", "cpu=100", "--report-load", "--redis", redis.URL())
	a := agent(t, "a", args...)
	args = append(args, "--join", a.Gossip)
	b, c, d := agent(t, "b", args...), agent(t, "c", args...), agent(t, "d", args...)
	agree(t, a, b, c, d)
	config := shipped(t, a.Base, b.Base, c.Base, d.Base)
	quick := "global: {evaluation_interval: 1s}\n" + strings.Replace(config, "scrape_interval: 15s", "scrape_interval: 1s", 1)
	api := prometheus(t, quick)
	reaches := func(expr, want string) {
		t.Helper()
		eventually(t, func() error {
			if got := query(t, api, expr); got != want {
				return fmt.Errorf("%s is %q, want %q", expr, got, want)
			}
			return nil
		})
	}
	reaches("count(roost_node_info)", "4") // increases before the first scrape do not show

	for i := range 60 {
		pinRoom(t, a, fmt.Sprint("room-", i), 2)
	}
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	reaches("count(sum(roost_rooms_failed_over_total) > 0)", "1")
	if _, err := a.Cordon(t.Context(), "c", time.Hour, "slow disk"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ReportHealth(t.Context(), 100*time.Millisecond); err != nil { // the application's next report will be late
		t.Fatal(err)
	}
	redis.Do("FLUSHALL")

	left := dashboardQueries(t)
	eventually(t, func() error {
		pinRoom(t, a, fmt.Sprint("room-after-", time.Now().UnixNano()), 2)
		maps.DeleteFunc(left, func(_, expr string) bool {
			return slices.ContainsFunc(vector(t, api, expr), func(value string) bool { return value != "NaN" })
		})
		if len(left) > 0 {
			return fmt.Errorf("no data: %q", left)
		}
		return nil
	})
	shown := dashboardQueries(t)
	for title, want := range map[string]string{"Members": "3", "Lost members": "1", "Nodes that own nothing": "2", "Stores up": "1"} {
		reaches(shown[title+" A"], want)
	}
}

// dashboardQueries returns the queries of the dashboard in deploy/ by panel, and the queries of its variables and
// annotations, for the cluster in the shipped configuration.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.ReadFile("../../deploy/grafana/roost.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
		Annotations struct {
			List []struct{ Name, Expr string }
		}
		Templating struct {
			List []struct {
				Name  string
				Query any // an object for a variable whose values come from Prometheus
			}
		}
	}
	if err := json.Unmarshal(file, &d); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$__rate_interval", "10m", "$job", "roost", "$instance", ".*")
	all := make(map[string]string)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all[p.Title+" "+target.RefID] = fill.Replace(target.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		all["annotation "+a.Name] = fill.Replace(a.Expr)
	}
	for _, v := range d.Templating.List {
		q, ok := v.Query.(map[string]any)
		if !ok {
			continue
		}
		var expr, label string
		values, isValues := strings.CutPrefix(fmt.Sprint(q["query"]), "label_values(")
		if at := strings.LastIndex(values, ", "); isValues && at > 0 {
			expr, label = values[:at], strings.TrimSuffix(values[at+2:], ")")
		}
		all["variable "+v.Name] = fill.Replace(fmt.Sprintf("count by (%s) (%s)", label, expr))
	}
	if len(all) < 50 {
		t.Fatalf("the dashboard has %d queries", len(all))
	}
	return all
}
