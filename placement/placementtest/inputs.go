package placementtest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// input contains the arguments of Assign.
type input struct {
	fleet      string
	nodes      []placement.Node
	partitions int
	extreme    bool // the strategy may reject this input
}

func (in input) String() string {
	return fmt.Sprintf("%d partitions on %s", in.partitions, in.fleet)
}

// given returns a copy of the nodes, so that the suite can detect a strategy that modifies its arguments.
func (in input) given() []placement.Node {
	nodes := slices.Clone(in.nodes)
	for i := range nodes {
		nodes[i].Labels = maps.Clone(nodes[i].Labels)
	}
	return nodes
}

// inputs combines each fleet with a few numbers of partitions, and a single fleet with MaxPartitions.
func inputs(own []placement.Node) []input {
	mixed := mixedFleet(10)
	fleets := []input{
		{fleet: "a single node", nodes: plainFleet(1)},
		{fleet: "2 equal nodes", nodes: plainFleet(2)},
		{fleet: "3 equal nodes", nodes: plainFleet(3)},
		{fleet: "10 mixed nodes", nodes: mixed},
		{fleet: "10 mixed nodes with other weights", nodes: reweighed(mixed)},
		{fleet: "9 of the 10 mixed nodes", nodes: slices.Delete(slices.Clone(mixed), 4, 5)},
		{fleet: "40 mixed nodes", nodes: mixedFleet(40)},
		{fleet: "4 nodes of the greatest weight", nodes: greatFleet(4), extreme: true},
	}
	if len(own) > 0 {
		fleets = append(fleets, input{fleet: fmt.Sprintf("Options.Nodes (%d)", len(own)), nodes: own})
	}
	var all []input
	for _, partitions := range []int{1, 2, 7, 256} {
		for _, f := range fleets { // so that adjacent inputs have different fleets and the same number of partitions
			f.partitions = partitions
			all = append(all, f)
		}
	}
	return append(all, input{fleet: "3 equal nodes", nodes: plainFleet(3), partitions: placement.MaxPartitions})
}

// plainFleet returns nodes with an agent's default settings.
func plainFleet(n int) []placement.Node {
	nodes := make([]placement.Node, n)
	for i := range nodes {
		nodes[i] = placement.Node{ID: lease.NodeID(fmt.Sprintf("node-%02d", i)), Weight: 100}
	}
	return nodes
}

// mixedFleet returns nodes that differ in every field. Some nodes have no zone, capacity or role.
func mixedFleet(n int) []placement.Node {
	nodes := plainFleet(n)
	for i := range nodes {
		nodes[i].Weight = []uint32{100, 100, 200, 50, 1, 137, 1000}[i%7]
		nodes[i].Zone = []string{"", "east", "west", "east", "north"}[i%5]
		nodes[i].Capacity = []int64{0, 500, 1000, 1}[i%4]
		if i%3 > 0 {
			nodes[i].Labels = map[string]string{"role": []string{"", "sfu", "relay"}[i%3]}
		}
	}
	return nodes
}

// reweighed returns the same nodes with different weights. It detects strategies that cache results by ids
// only.
func reweighed(nodes []placement.Node) []placement.Node {
	changed := slices.Clone(nodes)
	for i := range changed {
		changed[i].Weight = nodes[len(nodes)-1-i].Weight + 1
	}
	return changed
}

func greatFleet(n int) []placement.Node {
	nodes := plainFleet(n)
	for i := range nodes {
		nodes[i].Weight = lease.MaxWeight
		nodes[i].Capacity = 1<<63 - 1
	}
	return nodes
}
