package clusterprom

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/placement"
)

const docs = "../../docs/"

const metricsHead = `# Metrics

An agent of ` + "`roost agent`" + ` serves these at ` + "`GET /metrics`" + `, with those of the Go runtime
(` + "`go_…`" + `) and of the process (` + "`process_…`" + `). A program that embeds an agent registers
` + "`clusterprom.New(agent, rooms)`" + ` with its own registry.

    scrape_configs:
      - job_name: sfu            # one job for each cluster: rules add up what a job has
        scrape_interval: 15s     # at most 30s, or the waiting times of the alerts are too short
        static_configs:
          - targets: [10.0.0.1:8401, 10.0.0.2:8401]
    rule_files: [recording.yml, alerts.yml]   # of deploy/prometheus

[deploy/grafana/roost.json](../deploy/grafana/roost.json) is a dashboard, and
[runbooks.md](runbooks.md) has a section for each alert.

All values are one node's view, as of its latest snapshot, which is at most one heartbeat
old. The number of series does not depend on nodes, partitions, keys or rooms. Counters
start at 0 with the agent.

- **Lookups**: each scrape times 256 extra lookups, so that the program's own lookups cost
  nothing extra. If ` + "`roost_lookup_duration_seconds`" + ` is above some nanoseconds, the process
  waits for the CPU.
- **Misroutes** need the help of the program: for a request that was routed to it by a key,
  it calls ` + "`Agent.Arrived(key)`" + ` in place of ` + "`IsOwner(key)`" + `. Calls of ` + "`Resolver.Host`" + ` count as
  requests for rooms. A resolve over the HTTP API is never a misroute.
- **The lag of readers** is a number of states, not a time: readers get the latest state when
  they read again. A lag that stays above 0 shows a loop that hangs while it handles a state.
  ` + "`watch`, `subscribe` and `run_owned`" + ` are methods of the agent, ` + "`http`" + ` the event streams; rooms
  with a store use one ` + "`subscribe`" + `. RunOwned itself never hangs, even if its function does.

` + "`go test ./cluster/clusterprom -run MetricsReference -update`" + ` writes this page.

`

// all are the metrics of a new agent with rooms.
func all() fixed {
	cfg := cluster.Config{Strategy: placement.Rendezvous()}
	return fixed{
		append(append(agentFamilies(), lookupFamily()), roomFamilies()...),
		&view{Snapshot: &cluster.Snapshot{Self: new(cluster.Member)}, cfg: &cfg, rooms: affinity.Stats{Breaker: "closed"}},
	}
}

func gather(t *testing.T, all ...prometheus.Collector) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(all...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func TestMetricsReference(t *testing.T) {
	var text strings.Builder
	text.WriteString(metricsHead)
	for _, part := range []struct {
		title    string
		families []family
	}{
		{"The node", nodeFamilies()},
		{"Events", eventFamilies()},
		{"Members", memberFamilies()},
		{"Partitions and the table", append(tableFamilies(), lookupFamily())},
		{"Gossip", gossipFamilies()},
		{"Rooms, with `--redis`", roomFamilies()},
	} {
		fmt.Fprintf(&text, "## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", part.title)
		for _, f := range gather(t, fixed{part.families, all().view}) {
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n",
				f.GetName(), strings.ToLower(f.GetType().String()), labelsOf(f), f.GetHelp())
		}
		text.WriteString("\n")
	}
	golden(t, docs+"metrics.md", strings.TrimSuffix(text.String(), "\n"))
}

// labelsOf names the labels of a family, with the values of labels that have fixed values.
func labelsOf(f *dto.MetricFamily) string {
	var names []string
	values := make(map[string][]string)
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if values[l.GetName()] == nil {
				names = append(names, "`"+l.GetName()+"`")
			}
			values[l.GetName()] = append(values[l.GetName()], l.GetValue())
		}
	}
	if len(names) == 1 {
		return names[0] + ": " + strings.Join(values[strings.Trim(names[0], "`")], ", ")
	}
	return strings.Join(names, ", ")
}

// exposed are the metrics of roost agent, with the values that each label can have.
func exposed(t *testing.T) map[string]map[string][]string {
	t.Helper()
	names := make(map[string]map[string][]string)
	for _, f := range gather(t, all(), collectors.NewBuildInfoCollector(), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		labels := make(map[string][]string)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = append(labels[l.GetName()], l.GetValue())
			}
		}
		names[f.GetName()] = labels
		if t := f.GetType(); t == dto.MetricType_SUMMARY || t == dto.MetricType_HISTOGRAM {
			names[f.GetName()+"_sum"], names[f.GetName()+"_count"] = labels, labels
		}
	}
	return names
}
