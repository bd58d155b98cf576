package placement

import (
	"fmt"
	"math"

	"github.com/roost-cluster/roost/lease"
)

const (
	// warnCV is the [Balance.CV] from which on there is an Advice, which the log, the doctor, the dashboard
	// and commands show. The alerts and the Grafana dashboard repeat this number.
	warnCV = 0.15

	targetCV = 0.10 // what the advised number of partitions should reach
)

// Balance reports how evenly a table spreads its partitions. It is for people and monitors, because its
// floating-point numbers may differ in the last digit between CPUs.
//
// A node's fair share is proportional to its weight. MaxMean and CV measure the load of a node as a multiple
// of its fair share, and CV counts each node by its weight, so a small node that is one partition off matters
// less than a large one that is off by a tenth. With equal weights, MaxMean is the greatest count divided by
// the mean count, and CV is the standard deviation divided by the mean.
type Balance struct {
	Counts  map[lease.NodeID]int `json:"counts"`   // partitions of each candidate, including those with 0
	Mean    float64              `json:"mean"`     // partitions per candidate
	MaxMean float64              `json:"max_mean"` // greatest load, in fair shares; 1 is perfect
	CV      float64              `json:"cv"`       // coefficient of variation of the load; 0 is perfect

	// Levelling is set while passes of a Stateful strategy still have partitions to move.
	Levelling bool `json:"levelling,omitempty"`
}

// Balance reports how evenly t spreads its partitions. Without nodes all fields are
// zero. It costs one pass over the table.
func (t *Table) Balance() Balance {
	b := Balance{Counts: make(map[lease.NodeID]int, len(t.Nodes()))}
	if len(t.Nodes()) == 0 {
		return b
	}
	counts := make([]int, len(t.nodes))
	for _, owner := range t.owners {
		counts[owner]++
	}
	var total float64
	for _, n := range t.nodes {
		total += float64(n.Weight)
	}
	var variance float64
	for i, n := range t.nodes {
		share := float64(n.Weight) / total
		load := float64(counts[i]) / (share * float64(t.partitions))
		variance += share * (load - 1) * (load - 1) // the mean load is 1
		b.MaxMean = max(b.MaxMean, load)
		b.Counts[n.ID] = counts[i]
	}
	b.Mean = float64(t.partitions) / float64(len(t.nodes))
	b.CV = math.Sqrt(variance)
	b.Levelling = t.levelling()
	return b
}

// levelling reports whether a pass would move partitions of t.
func (t *Table) levelling() bool {
	if !Remembers(t.strategy) {
		return false
	}
	all := make([]Partition, t.partitions)
	for p := range all {
		all[p] = Partition(p)
	}
	moves, _ := t.Level(all, false) // the agent logs the error when it makes a pass
	return len(moves) > 0
}

// Advice returns a sentence about how to fix an uneven spread (CV above 15 %). It is empty if the spread is
// even.
func (b Balance) Advice() string {
	if b.CV <= warnCV {
		return ""
	}
	if b.Levelling {
		return fmt.Sprintf("load varies by %.0f %% between nodes (above %.0f %%), and passes even it out a few partitions at a time: "+
			"wait, or allow more moves per pass in the name of the strategy.", 100*b.CV, 100*warnCV)
	}
	partitions := 0
	for _, n := range b.Counts {
		partitions += n
	}
	if partitions >= MaxPartitions {
		return fmt.Sprintf("load varies by %.0f %% between nodes (above %.0f %%) and Partitions is already at its maximum of %d: "+
			"run fewer, larger nodes or a strategy that bounds the load.", 100*b.CV, 100*warnCV, MaxPartitions)
	}
	return fmt.Sprintf("load varies by %.0f %% between nodes (above %.0f %%): raise Partitions from %d to %d on every node of the cluster.",
		100*b.CV, 100*warnCV, partitions, advisedPartitions(len(b.Counts), partitions))
}

// advisedPartitions returns the power of two at which CV should reach its target, and at least twice the
// present number. With n nodes that draw at random for P partitions, the expected CV² is (n−1)/P for any
// weights.
func advisedPartitions(nodes, partitions int) int {
	const perNode = 1 / (targetCV * targetCV)
	advised := 1
	for advised < MaxPartitions && (advised < perNode*(nodes-1) || advised < 2*partitions) {
		advised *= 2
	}
	return advised
}
