package placement_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// A key's partition depends on nothing but the key and the number of partitions.
func ExampleOf() {
	fmt.Println(placement.Of("room-8842", placement.DefaultPartitions))
	fmt.Println(placement.Of("room-8843", placement.DefaultPartitions))
	// Output:
	// 813
	// 163
}

// Who owns a room, and who would take over.
func ExampleCompute() {
	table, err := placement.Compute(placement.Input{
		Nodes: []placement.Node{
			{ID: "node-a", Weight: 1},
			{ID: "node-b", Weight: 1},
			{ID: "node-c", Weight: 2}, // twice the machine
			{ID: "node-d", Weight: 0}, // draining
		},
		Partitions: placement.DefaultPartitions,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := placement.Of("room-8842", table.Partitions())
	owner, _ := table.Owner(p)
	fmt.Println("owner:", owner)
	fmt.Println("ranked:", table.Rank(p, 3))
	fmt.Println("partitions:", table.Balance().Counts)
	// Output:
	// owner: node-c
	// ranked: [node-c node-a node-b]
	// partitions: map[node-a:254 node-b:255 node-c:515]
}

// Few partitions spread unevenly; the report says what to do.
func ExampleBalance_Advice() {
	nodes := make([]placement.Node, 10)
	for i := range nodes {
		nodes[i] = placement.Node{ID: lease.NodeID(fmt.Sprintf("node-%d", i)), Weight: 1}
	}
	table, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: 64})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(table.Balance().Advice())
	// Output:
	// load varies by 40 % between nodes (above 15 %): raise Partitions from 64 to 1024 on every node of the cluster.
}

// reserved keeps the first partitions for nodes of a role, by the prefix of
// their ids, and leaves the others to rendezvous.
type reserved struct {
	placement.Strategy
	prefix string
	first  int
}

func (r reserved) Name() string { return fmt.Sprintf("reserved(%s,%d)", r.prefix, r.first) }

func (r reserved) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	owners, err := r.Strategy.Assign(nodes, partitions)
	if err != nil {
		return nil, err
	}
	for p := range min(r.first, partitions) {
		owners[p] = r.Rank(nodes, placement.Partition(p), 1)[0]
	}
	return owners, nil
}

// Rank puts the nodes of the role first, in the order of rendezvous.
func (r reserved) Rank(nodes []placement.Node, p placement.Partition, n int) []int {
	ranked := r.Strategy.Rank(nodes, p, len(nodes))
	if int(p) < r.first {
		slices.SortStableFunc(ranked, func(a, b int) int {
			return cmp.Compare(r.cost(nodes[a]), r.cost(nodes[b]))
		})
	}
	return ranked[:min(n, len(ranked))]
}

func (r reserved) cost(n placement.Node) int {
	if strings.HasPrefix(string(n.ID), r.prefix) {
		return 0
	}
	return 1
}

// A rule of one's own, on top of rendezvous.
func ExampleStrategy() {
	table, err := placement.Compute(placement.Input{
		Nodes:      []placement.Node{{ID: "edge-1", Weight: 1}, {ID: "core-1", Weight: 1}, {ID: "core-2", Weight: 1}},
		Partitions: 16,
		Strategy:   reserved{placement.Rendezvous(), "core-", 8},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("edge-1 owns", table.Owned("edge-1"))
	fmt.Println("partition 0 ranks", table.Rank(0, 3))
	// Output:
	// edge-1 owns [9 10 12 14]
	// partition 0 ranks [core-2 core-1 edge-1]
}
