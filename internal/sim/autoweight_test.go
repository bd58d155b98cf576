package sim_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/placement"
)

// weighing is a fleet whose weights follow their loads. Each partition causes a load, which follows the partition to
// its owner with a delay.
type weighing struct {
	fleet
	loads    []float64 // by partition, in units
	lag      time.Duration
	served   map[string]float64 // units per node, as measured
	capacity func(id string) int64
}

const weighingStep = 2 * time.Second

func (w *weighing) options(slow time.Duration) sim.Options {
	return sim.Options{Config: func(c *node.Config) {
		c.AutoWeight, c.SlowStart = true, slow
		c.Self.Capacity = w.capacity(string(c.Self.ID))
	}}
}

// run lets time pass while the loads follow the partitions, and returns how often a weight changed.
func (w *weighing) run(d time.Duration) (changes int) {
	for range int(d / weighingStep) {
		before := w.weights()
		w.Run(weighingStep)
		table := w.Node(w.IDs()[0]).View().Table
		now := make(map[string]float64)
		for p, units := range w.loads {
			if owner, ok := table.Owner(placement.Partition(p)); ok {
				now[string(owner)] += units
			}
		}
		for _, id := range w.IDs() {
			share := 1 - math.Exp(-float64(weighingStep)/float64(w.lag))
			w.served[id] += (now[id] - w.served[id]) * share
			w.Node(id).SetLoad(int64(w.served[id]))
		}
		for id, weight := range w.weights() {
			if was, known := before[id]; known && was != weight {
				changes++
			}
		}
	}
	return changes
}

func (w *weighing) weights() map[string]uint32 {
	all := make(map[string]uint32)
	for _, id := range w.IDs() {
		all[id] = w.member(w.IDs()[0], id).Weight
	}
	return all
}

// uneven returns the greatest and the smallest utilization relative to the mean.
func (w *weighing) uneven() (most, least float64) {
	var load, capacity float64
	for _, id := range w.IDs() {
		load, capacity = load+w.served[id], capacity+float64(w.capacity(id))
	}
	least = math.Inf(1)
	for _, id := range w.IDs() {
		ratio := w.served[id] / float64(w.capacity(id)) / (load / capacity)
		most, least = max(most, ratio), min(least, ratio)
	}
	return most, least
}

// Loads become even, whether they follow the partitions at once or minutes later, and the weights then stay.
func TestAutoWeight(t *testing.T) {
	even := func(string) int64 { return 10_000 }
	for what, c := range map[string]struct {
		capacity func(id string) int64
		hot      float64 // load of a partition that n00 owns at first, relative to the others
		lag      time.Duration
	}{
		"a small node":               {func(id string) int64 { return map[bool]int64{true: 6_000, false: 10_000}[id == "n00"] }, 1, time.Second},
		"a large node":               {func(id string) int64 { return map[bool]int64{true: 17_000, false: 10_000}[id == "n00"] }, 1, time.Second},
		"hot partitions":             {even, 2, time.Second},
		"hot partitions, late loads": {even, 2, 3 * time.Minute},
	} {
		t.Run(what, func(t *testing.T) {
			w := &weighing{lag: c.lag, served: make(map[string]float64), capacity: c.capacity}
			w.fleet = started(t, 5, w.options(0))
			table := w.Node("n00").View().Table
			for p := range table.Partitions() {
				units := 25_000 / float64(table.Partitions())
				if owner, _ := table.Owner(placement.Partition(p)); owner == "n00" {
					units *= c.hot
				}
				w.loads = append(w.loads, units)
			}
			moving := w.run(5*c.lag + time.Minute)
			first, _ := w.uneven()
			moving += w.run(40 * time.Minute)
			later := w.run(20 * time.Minute)
			most, least := w.uneven()
			t.Logf("fullest node %.2f of the mean at first, then %.2f to %.2f; %d changes of a weight, then %d; weights %v",
				first, least, most, moving, later, w.weights())
			if most > 1.15 || least < 0.85 {
				t.Errorf("utilization of %.2f to %.2f of the mean", least, most)
			}
			if moving == 0 || later > 1 {
				t.Errorf("%d changes of a weight in 40 minutes, %d in the next 20", moving, later)
			}
			for id, weight := range w.weights() {
				if weight < 50 || weight > 200 {
					t.Errorf("%s has weight %d", id, weight)
				}
			}
		})
	}
}

// Before there are loads, in an idle cluster, and during a slow start, weights stay as they are.
func TestAutoWeightWaits(t *testing.T) {
	w := &weighing{lag: time.Second, served: make(map[string]float64), capacity: func(string) int64 { return 10_000 }}
	w.fleet = started(t, 3, w.options(10*time.Minute))
	w.Run(10 * time.Minute)
	for id, load := range map[string]int64{"n00": 900, "n01": 10, "n02": 10} {
		w.Node(id).SetLoad(load)
	}
	w.Run(10 * time.Minute)
	if got := fmt.Sprint(w.weights()); got != "map[n00:100 n01:100 n02:100]" {
		t.Errorf("weights %s of an idle cluster", got)
	}
	for _, id := range w.IDs() {
		w.Node(id).SetLoad(5_000)
	}
	w.Start("new")
	w.Run(2 * time.Second)
	w.Node("new").SetLoad(9_000)
	w.Run(5 * time.Minute)
	if weight := w.weightOf("new"); weight < 40 || weight > 60 {
		t.Errorf("weight %d in the middle of a slow start", weight)
	}
}

// SetWeight gives the weight that the load then changes.
func TestAutoWeightStartsFromTheWeightThatIsSet(t *testing.T) {
	w := &weighing{lag: time.Second, served: make(map[string]float64), capacity: func(string) int64 { return 10_000 }}
	w.fleet = started(t, 3, w.options(0))
	for id, load := range map[string]int64{"n00": 9_000, "n01": 3_000, "n02": 3_000} {
		w.Node(id).SetLoad(load)
	}
	w.Run(20 * time.Minute)
	if got := fmt.Sprint(w.weights()); got != "map[n00:50 n01:200 n02:200]" {
		t.Errorf("weights %s, want the bounds, because the loads do not change", got)
	}
	w.Node("n00").SetWeight(1000)
	w.Run(30 * time.Second)
	if weight := w.weightOf("n00"); weight != 1000 {
		t.Errorf("weight %d within a minute after SetWeight(1000)", weight)
	}
	w.Run(20 * time.Minute)
	if weight := w.weightOf("n00"); weight != 500 {
		t.Errorf("weight %d, want half of what was set", weight)
	}
}
