package placement_test

import (
	"hash/fnv"
	"math"
	"strconv"
	"testing"

	"github.com/roost-cluster/roost/placement"
)

// chiSquare returns the sum of (count − expected)² / expected over the nodes. If partitions go to nodes at random, its
// mean is nodes−1 and its variance is 2·(nodes−1), for any weights.
func chiSquare(t *placement.Table) float64 {
	cv := t.Balance().CV // checked against plain arithmetic in balance_test.go
	return cv * cv * float64(t.Partitions())
}

// Averaged over many fleets, the spread equals the spread of independent random draws, neither larger nor suspiciously
// small. The fleets are fixed, so the test always gives the same result.
func TestSpreadIsRandom(t *testing.T) {
	const fleets = 200
	for _, tt := range []struct {
		name    string
		weights []uint32 // repeated over the fleet
		nodes   int
	}{
		{"3 nodes", []uint32{1}, 3},
		{"10 nodes", []uint32{1}, 10},
		{"50 nodes", []uint32{1}, 50},
		{"weights 1 and 2", []uint32{1, 2}, 10},
		{"weights 1 to 8", []uint32{1, 8, 2, 5, 1, 1}, 12},
		{"all weights differ", []uint32{11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, 10},
		{"weights 1 to 100", []uint32{1, 10, 100}, 3},
		{"great weights", []uint32{1 << 30, 1 << 31, 1<<32 - 1}, 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sum := 0.0
			for seed := range fleets {
				nodes := fleet(seed, tt.nodes)
				for i := range nodes {
					nodes[i].Weight = tt.weights[i%len(tt.weights)]
				}
				sum += chiSquare(mustCompute(t, placement.DefaultPartitions, nodes...))
			}
			freedom := float64(tt.nodes - 1)
			mean, sigma := sum/fleets, math.Sqrt(2*freedom/fleets)
			t.Logf("mean chi-square %.2f, expected %.0f ± %.2f", mean, freedom, sigma)
			if math.Abs(mean-freedom) > 4*sigma {
				t.Errorf("mean chi-square %.2f over %d fleets, want %.0f ± %.2f", mean, fleets, freedom, 4*sigma)
			}
		})
	}
}

// rawFNV is a strategy with a weak hash. The node with the highest FNV-1a of node‖partition owns the partition.
type rawFNV struct{ byTurns }

func (rawFNV) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	owners := make([]int, partitions)
	for p := range owners {
		highest := uint64(0)
		for i, n := range nodes {
			h := fnv.New64a()
			h.Write([]byte(string(n.ID) + strconv.Itoa(p)))
			if sum := h.Sum64(); sum > highest {
				owners[p], highest = i, sum
			}
		}
	}
	return owners, nil
}

// starved creates 300 fleets of three nodes, and returns in how many of them a node owns no partition.
func starved(t *testing.T, s placement.Strategy, partitions int) int {
	t.Helper()
	const fleets = 300
	n := 0
	for seed := range fleets {
		for _, count := range mustComputeBy(t, s, partitions, fleet(seed, 3)...).Balance().Counts {
			if count == 0 {
				n++
				break
			}
		}
	}
	return n
}

// With a well-mixed hash every node owns partitions.
func TestEveryNodeOwnsPartitions(t *testing.T) {
	for _, partitions := range []int{64, placement.DefaultPartitions} {
		if n := starved(t, placement.Rendezvous(), partitions); n > 0 {
			t.Errorf("%d partitions: in %d fleets a node owns nothing", partitions, n)
		}
	}
	// With a weak hash, a node owns nothing in nearly every fleet, so the check above can fail.
	if n := starved(t, rawFNV{}, 64); n < 270 {
		t.Errorf("raw FNV-1a starves a node in only %d fleets of 300", n)
	}
}
