//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/roost-cluster/roost/internal/redistest"
)

// metricsOf scrapes an agent.
func metricsOf(t *testing.T, addr string) string {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		t.Fatalf("/metrics: %s %v %v\n%s", resp.Status, resp.Header, err, b)
	}
	return string(b)
}

// values returns the samples in the text of a scrape, by name and labels.
func values(t *testing.T, text string) map[string]float64 {
	t.Helper()
	all := make(map[string]float64)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all[line[:at]] = value
	}
	return all
}

// TestMetrics: an agent has exactly the metrics in docs/metrics.md, in the form that Prometheus expects, and the
// metrics of Go and of the process.
func TestMetrics(t *testing.T) {
	t.Parallel()
	a, b := pair(t, redistest.Start(t), append(calm(), "--resources", "cpu=100")...)
	for i := range 20 {
		pinRoom(t, a, fmt.Sprint("room-", i), 2)
	}
	eventually(t, func() error { // the counters are updated at each heartbeat
		got := values(t, metricsOf(t, a.Base))
		for name, want := range map[string]float64{
			`roost_members{state="active"}`: 2, "roost_table_diverged_members": 0, "roost_store_up": 1, "roost_lease_ttl_seconds": 600,
			"roost_partitions_owned":                    1024 - values(t, metricsOf(t, b.Base))["roost_partitions_owned"],
			`roost_rooms_resolved_total{source="hash"}`: 20,
		} {
			if got[name] != want {
				return fmt.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
		for _, name := range []string{
			"roost_heartbeats_sent_total", `roost_heartbeats_received_total{result="applied"}`, "roost_lookup_duration_seconds_sum",
			"roost_rooms_hosted", "roost_store_call_duration_seconds_sum", "go_goroutines", "process_resident_memory_bytes",
		} {
			if got[name] <= 0 {
				return fmt.Errorf("%s is %v", name, got[name])
			}
		}
		return nil
	})

	text := metricsOf(t, b.Base)
	check := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	check.Stdin = strings.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v (is it missing? run scripts/deps.sh)\n%s", err, out)
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := names(`(?m)^\| .(roost_\w+). \|`, string(page))
	if diff := cmp.Diff(documented, names(`(?m)^# TYPE (roost_\w+) `, text)); diff != "" || len(documented) < 40 {
		t.Errorf("docs/metrics.md (-) and what the agent shows (+):\n%s", diff)
	}
}

func names(pattern, text string) []string {
	all := make(map[string]bool)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	return slices.Sorted(maps.Keys(all))
}
