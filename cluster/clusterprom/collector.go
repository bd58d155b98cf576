package clusterprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/placement"
)

// Collector is a [prometheus.Collector] of one agent.
type Collector struct {
	families []family
	view     func() *view // called at each scrape
}

// New returns a collector for an agent and, unless rooms is nil, for its rooms. The collector needs no Close, and you
// can use it after the agent and the rooms have ended.
func New(agent *cluster.Agent, rooms *affinity.Resolver) *Collector {
	cfg := agent.Config()
	families := append(agentFamilies(), lookupFamily())
	if rooms != nil {
		families = append(families, roomFamilies()...)
	}
	return &Collector{families, func() *view {
		v := &view{
			Snapshot: agent.Snapshot(), cfg: &cfg, owned: len(agent.Owned()), readers: agent.ReaderStats(), loopAge: agent.LoopAge(),
			resources: agent.Load().Resources,
		}
		v.balance = v.Table.Balance()
		if rooms != nil {
			v.rooms = rooms.Stats()
		}
		return v
	}}
}

// Joining returns a collector for the time until [cluster.Start] returns. The collector only exports the
// phase of the node, which is joining, so that an alert can report a node that cannot join. Unregister this
// collector before you register [New].
func Joining() *Collector {
	v := &view{Snapshot: &cluster.Snapshot{Phase: cluster.PhaseJoining}}
	return &Collector{[]family{phaseFamily()}, func() *view { return v }}
}

// Sources returns a collector for a process that reloads its settings while it runs, such as roost agent. At
// each scrape, the collector calls readable, which reports whether the last reload succeeded.
func Sources(readable func() bool) *Collector {
	return &Collector{sourceFamilies(), func() *view { return &view{readable: readable()} }}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range c.families {
		to <- f.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	v := c.view()
	for _, f := range c.families {
		f.read(v, to)
	}
}

// view is the data of one scrape.
type view struct {
	*cluster.Snapshot
	cfg       *cluster.Config
	owned     int // number of owned partitions; unlike in the snapshot, 0 after the node's own lease has expired
	balance   placement.Balance
	readers   []events.ReaderStats
	loopAge   time.Duration
	resources []cluster.Resource
	rooms     affinity.Stats

	readable bool // the last reload of the settings succeeded
}

// live returns the members that are live as far as this node knows. While the node is fenced, that is only
// the node itself, because the snapshot then has the other members from before the fence.
func (v *view) live() []*cluster.Member {
	if v.Fenced {
		return []*cluster.Member{v.Self}
	}
	return v.Members
}

// family is a group of metrics with the same name.
type family struct {
	desc *prometheus.Desc
	read func(*view, chan<- prometheus.Metric)
}

func gauge(name, help string, read func(*view) float64) family {
	return single(desc(name, help), prometheus.GaugeValue, read)
}

func counter(name, help string, read func(*view) uint64) family {
	return single(desc(name, help), prometheus.CounterValue, func(v *view) float64 { return float64(read(v)) })
}

func single(d *prometheus.Desc, kind prometheus.ValueType, read func(*view) float64) family {
	return family{d, func(v *view, to chan<- prometheus.Metric) {
		to <- prometheus.MustNewConstMetric(d, kind, read(v))
	}}
}

// gauges and counters return a family with one metric for each value of a label.
func gauges(name, help, label string, read func(*view) map[string]uint64) family {
	return several(desc(name, help, label), prometheus.GaugeValue, read)
}

func counters(name, help, label string, read func(*view) map[string]uint64) family {
	return several(desc(name, help, label), prometheus.CounterValue, read)
}

func several(d *prometheus.Desc, kind prometheus.ValueType, read func(*view) map[string]uint64) family {
	return family{d, func(v *view, to chan<- prometheus.Metric) {
		for label, n := range read(v) {
			to <- prometheus.MustNewConstMetric(d, kind, float64(n), label)
		}
	}}
}

// durations returns a summary without quantiles. The mean is the sum of the summary divided by its count.
func durations(name, help string, read func(*view) (count uint64, total time.Duration)) family {
	d := desc(name, help)
	return family{d, func(v *view, to chan<- prometheus.Metric) {
		count, total := read(v)
		to <- prometheus.MustNewConstSummary(d, count, total.Seconds(), nil)
	}}
}

// histogram returns a histogram. within maps each duration to the number of calls that took at most this
// duration.
func histogram(name, help string, read func(*view) (count uint64, total time.Duration, within map[time.Duration]uint64)) family {
	d := desc(name, help)
	return family{d, func(v *view, to chan<- prometheus.Metric) {
		count, total, within := read(v)
		buckets := make(map[float64]uint64, len(within))
		for bound, n := range within {
			buckets[bound.Seconds()] = n
		}
		to <- prometheus.MustNewConstHistogram(d, count, total.Seconds(), buckets)
	}}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("roost_"+name, help, labels, nil)
}
