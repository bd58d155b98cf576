package placement

import (
	"fmt"
	"math"

	"github.com/roost-cluster/roost/lease"
)

const (
	// warnCV is the [Balance.CV] above which Advice returns a sentence, which appears in the log, the doctor,
	// the dashboard and commands. The alerts and the Grafana dashboard use the same number.
	warnCV = 0.15

	targetCV = 0.10 // the CV that the advised number of partitions should reach
)

// Balance reports how evenly a table spreads its partitions. Use Balance only for display and monitoring,
// because its floating-point numbers can differ in the last digit between CPUs.
//
// A node's fair share is proportional to its weight. The load of a node is its number of partitions as a
// multiple of its fair share. MaxMean and CV refer to loads. CV weights each node's load by the node's
// weight, because a difference of one partition changes the load of a small node much more than the load of a
// large node. With equal weights, MaxMean is the greatest count divided by the mean count, and CV is the
// standard deviation divided by the mean.
type Balance struct {
	Counts  map[lease.NodeID]int `json:"counts"`   // partitions of each candidate, including those with 0
	Mean    float64              `json:"mean"`     // partitions per candidate
	MaxMean float64              `json:"max_mean"` // greatest load, in fair shares; 1 is perfect
	CV      float64              `json:"cv"`       // coefficient of variation of the load; 0 is perfect

	// Levelling is true while further passes of a Stateful strategy would move partitions.
	Levelling bool `json:"levelling,omitempty"`
}

// Balance reports how evenly t spreads its partitions. If there are no nodes, all fields are zero. Balance
// costs a pass over the table.
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
	moves, _ := t.Level(all, false) // the agent logs the error during a pass
	return len(moves) > 0
}

// Advice explains in a sentence how to fix an uneven spread, which is a CV above 15 %. It returns "" if the
// spread is even.
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

// advisedPartitions returns the smallest power of two at which CV should reach targetCV, but at least twice
// the current number. If n nodes own P partitions at random, the expected CV² is (n−1)/P for any weights.
func advisedPartitions(nodes, partitions int) int {
	const perNode = 1 / (targetCV * targetCV)
	advised := 1
	for advised < MaxPartitions && (advised < perNode*(nodes-1) || advised < 2*partitions) {
		advised *= 2
	}
	return advised
}
