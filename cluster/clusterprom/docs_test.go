package clusterprom

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const docs = "../../docs/"

// newView returns the view of a new agent with rooms.
func newView() *view {
	cfg := cluster.Config{Strategy: placement.Rendezvous()}
	self := &cluster.Member{State: lease.Active}
	return &view{
		Snapshot: &cluster.Snapshot{Self: self, Members: []*cluster.Member{self}},
		cfg:      &cfg,
		rooms:    affinity.Stats{Breaker: "closed"},
		// A resource has a name of the operator's choice.
		resources: []cluster.Resource{{Capacity: 1}},
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

// TestMetricsReference: the sections of docs/metrics.md contain what a scrape returns.
func TestMetricsReference(t *testing.T) {
	var text strings.Builder
	head, _, _ := strings.Cut(read(t, docs+"metrics.md"), "## ")
	text.WriteString(head)
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
		{"Settings, of `roost agent`", sourceFamilies()},
	} {
		fmt.Fprintf(&text, "## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", part.title)
		for _, f := range gather(t, fixed(newView(), part.families...)) {
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n",
				f.GetName(), strings.ToLower(f.GetType().String()), labelsOf(f), f.GetHelp())
		}
		text.WriteString("\n")
	}
	golden(t, docs+"metrics.md", strings.TrimSuffix(text.String(), "\n"))
}

// labelsOf lists the labels of a family. If a label has fixed values, it lists the values, too.
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
		if slices.Equal(values[strings.Trim(names[0], "`")], []string{""}) {
			return names[0]
		}
		return names[0] + ": " + strings.Join(values[strings.Trim(names[0], "`")], ", ")
	}
	return strings.Join(names, ", ")
}

// exposed returns the metrics of roost agent, with the values that each label can have.
func exposed(t *testing.T) map[string]map[string][]string {
	t.Helper()
	names := make(map[string]map[string][]string)
	for _, f := range gather(t,
		fixed(newView(), slices.Concat(agentFamilies(), []family{lookupFamily()}, roomFamilies(), sourceFamilies())...),
		collectors.NewBuildInfoCollector(), collectors.NewGoCollector(),
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
		if f.GetType() == dto.MetricType_HISTOGRAM {
			buckets := maps.Clone(labels)
			buckets["le"] = nil
			names[f.GetName()+"_bucket"] = buckets
		}
	}
	return names
}
