package placement_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// careless is a user's strategy whose rank may contain a node twice, or no node at all.
type careless struct{ byTurns }

func (c careless) Name() string { return "careless" }

func (c careless) Rank(nodes []placement.Node, p placement.Partition, n int) []int {
	if p%5 == 0 {
		return nil
	}
	ranked := placement.Rendezvous().Rank(nodes, p, n)
	if p%3 == 0 {
		ranked = append([]int{len(nodes), -1, ranked[0]}, ranked...)
	}
	return ranked
}

// referenceRank is a slow reference model of [placement.Table.Rank]. The owner comes first, and the other nodes follow
// in the order of the strategy, spread over the zones if zones is true.
func referenceRank(t *placement.Table, s placement.Strategy, zones bool, p placement.Partition, n int) []lease.NodeID {
	nodes := t.Nodes()
	owner := t.OwnerIndex(p)
	if owner < 0 || n < 1 {
		return nil
	}
	order := []int{owner}
	for _, i := range s.Rank(nodes, p, len(nodes)) {
		if i >= 0 && i < len(nodes) && !slices.Contains(order, i) {
			order = append(order, i)
		}
	}
	taken := make(map[string]int)
	var best []lease.NodeID
	for len(order) > 0 && len(best) < n {
		at := 0
		for k, i := range order {
			if zones && taken[nodes[i].Zone] < taken[nodes[order[at]].Zone] {
				at = k
			}
		}
		taken[nodes[order[at]].Zone]++
		best = append(best, nodes[order[at]].ID)
		order = slices.Delete(order, at, at+1)
	}
	return best
}

// For each strategy and after any changes, a table returns the same ranks as its strategy, whatever ranks it has
// already stored.
func TestRankIsThatOfTheStrategy(t *testing.T) {
	strategies := map[string]func() placement.Strategy{
		"careless": func() placement.Strategy { return careless{} },
		"by-turns": func() placement.Strategy { return byTurns{} },
	}
	for name, b := range builtins() {
		if !strings.HasSuffix(name, "+zones") { // the test itself adds zones to every strategy
			strategies[name] = b.fresh
		}
	}
	for name, fresh := range strategies {
		for _, zones := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/zones=%v", name, zones), func(t *testing.T) {
				plain := fresh()
				used := plain
				if zones {
					used = placement.Zoned(plain)
				}
				rapid.Check(t, func(t *rapid.T) {
					partitions := rapid.IntRange(1, 30).Draw(t, "partitions")
					var table *placement.Table
					for range rapid.IntRange(1, 3).Draw(t, "changes") {
						var err error
						if table, err = placement.Compute(placement.Input{
							Nodes: anyFleet(0).Draw(t, "nodes"), Partitions: partitions, Strategy: used, Base: table,
						}); err != nil {
							t.Fatal(err)
						}
						for range rapid.IntRange(0, 20).Draw(t, "ranks") {
							p := placement.Partition(rapid.IntRange(0, partitions).Draw(t, "partition"))
							n := rapid.IntRange(-1, 11).Draw(t, "n")
							if got, want := table.Rank(p, n), referenceRank(table, plain, zones, p, n); !slices.Equal(got, want) {
								t.Fatalf("of %v, Rank(%d, %d) = %v, want %v", table.Nodes(), p, n, got, want)
							}
						}
					}
				})
			})
		}
	}
}

// Goroutines that rank the nodes of a table at the same time get the same answer. Once the answer is stored, there is
// no further allocation.
func TestRankIsShared(t *testing.T) {
	nodes := fleet(1, 50)
	for range 20 {
		table, reference := mustCompute(t, 64, nodes...), mustCompute(t, 64, nodes...)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for p := range placement.Partition(64) {
					if got, want := table.Rank(p, 3), referenceRank(reference, placement.Rendezvous(), false, p, 3); !slices.Equal(got, want) {
						t.Errorf("Rank(%d, 3) = %v, want %v", p, got, want)
					}
				}
			})
		}
		all.Wait()
		var room [3]int
		if n := testing.AllocsPerRun(100, func() { table.AppendRank(room[:0], 17, 3) }); n > 0 {
			t.Fatalf("AppendRank allocates %v times", n)
		}
	}
}
