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

An agent of ` + "`roost agent`" + ` serves these at ` + "`GET /metrics`" + `, beside those of the Go runtime
(` + "`go_…`" + `) and of the process (` + "`process_…`" + `). A program that embeds an agent registers
` + "`clusterprom.New(agent, rooms)`" + ` with its own registry.

    scrape_configs:
      - job_name: sfu            # one job for each cluster: rules add up what a job has
        scrape_interval: 15s     # at most 30s, or the waiting times of the alerts are too short
        static_configs:
          - targets: [10.0.0.1:8401, 10.0.0.2:8401]
    rule_files: [recording.yml, alerts.yml]   # of deploy/prometheus

[deploy/grafana/roost.json](../deploy/grafana/roost.json) is a dashboard, and
[runbooks.md](runbooks.md) says what to do about each alert.

Everything is one node's view, as of its latest snapshot: at most a heartbeat old. There
are as many series whatever the number of nodes, partitions, keys and rooms. Counters begin
at 0 with the agent.

- **Look-ups** are timed by the scrape itself, 256 each: the program's own pay nothing. What
  ` + "`roost_lookup_duration_seconds`" + ` shows beyond some nanoseconds is how long the process waits
  for the CPU.
- **Misroutes** are known only to a program that tells of the requests which come to it
  because of a key: it calls ` + "`Agent.Arrived(key)`" + ` where it would call ` + "`IsOwner(key)`" + `. Calls of
  ` + "`Resolver.Host`" + ` count as such requests for rooms. Whoever asks the HTTP API where a room
  lives is no misroute, wherever the answer sends it.
- **How far subscribers lag** is counted in states, not in time: nobody sends them events,
  they read the latest state when they come round to it. A lag that stays above 0 is a
  loop that hangs in what it does with one. ` + "`watch`, `subscribe` and `run_owned`" + ` are those
  methods of the agent, ` + "`http`" + ` the event streams; rooms with a store use one ` + "`subscribe`" + `.
  RunOwned itself never hangs, whatever the function that it runs does.

This page is written by ` + "`go test ./cluster/clusterprom -run MetricsReference -update`" + `.

`

// all are the metrics of an agent with rooms that has just been started.
func all() fixed {
	cfg := cluster.Config{Strategy: placement.Rendezvous()}
	return fixed{
		append(append(agentFamilies(), lookupFamily()), roomFamilies()...),
		&view{Snapshot: new(cluster.Snapshot), cfg: &cfg, rooms: affinity.Stats{Breaker: "closed"}},
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

// labelsOf names the labels of a family, with their values where those are fixed.
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
