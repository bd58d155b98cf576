package clusterprom

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

var update = flag.Bool("update", false, "rewrite testdata and docs/metrics.md from the present metrics")

// golden compares a text with the content of a file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(read(t, path), got); diff != "" {
		t.Errorf("%s; if the change is intended, run with -update:\n%s", path, diff)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// started returns a cluster whose nodes agree. Call it in a synctest bubble.
func started(t *testing.T, ids ...string) *clustertest.Cluster {
	t.Helper()
	c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Partitions = 64 }})
	c.Start(ids...)
	c.WaitAgreed(5 * time.Second)
	return c
}

// samples are the values that a scrape returns. The key is the name with the labels, as in
// roost_members{state="active"}. A summary has its _sum and _count.
type samples map[string]float64

// scrape returns the samples, and checks that the metrics match their descriptions.
func scrape(t *testing.T, c prometheus.Collector) samples {
	t.Helper()
	got := make(samples)
	for _, f := range gather(t, c) {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			suffix := ""
			if len(labels) > 0 {
				suffix = "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetGauge() != nil:
				got[name+suffix] = m.GetGauge().GetValue()
			case m.GetCounter() != nil:
				got[name+suffix] = m.GetCounter().GetValue()
			case m.GetHistogram() != nil:
				got[name+"_sum"+suffix] = m.GetHistogram().GetSampleSum()
				got[name+"_count"+suffix] = float64(m.GetHistogram().GetSampleCount())
				for _, b := range m.GetHistogram().GetBucket() {
					got[fmt.Sprintf("%s_bucket{le=%q}", name, fmt.Sprint(b.GetUpperBound()))] = float64(b.GetCumulativeCount())
				}
			default:
				got[name+"_sum"+suffix] = m.GetSummary().GetSampleSum()
				got[name+"_count"+suffix] = float64(m.GetSummary().GetSampleCount())
			}
		}
	}
	return got
}

// want fails the test unless the samples have these values.
func (s samples) want(t *testing.T, want samples) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got, ok := s[name]; !ok || got != want[name] {
			t.Errorf("%s is %v (there: %t), want %v", name, got, ok, want[name])
		}
	}
}

// grew fails the test unless all of these samples have grown.
func (s samples) grew(t *testing.T, before samples, names ...string) {
	t.Helper()
	for _, name := range names {
		if s[name] <= before[name] {
			t.Errorf("%s has not grown: %v, then %v", name, before[name], s[name])
		}
	}
}
