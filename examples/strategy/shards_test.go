package main

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/placementtest"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestConforms(t *testing.T) {
	fresh := func() placement.Strategy { return shards{role: "ssd", pinned: 16} }
	var nodes []placement.Node // replaces the nodes of the suite, which have other roles
	for i, role := range []string{"ssd", "hdd", "ssd", "", "ssd"} {
		nodes = append(nodes, placement.Node{
			ID: lease.NodeID(fmt.Sprint("node-", i)), Weight: 100, Capacity: 500 * int64(i),
			Zone: []string{"east", "west"}[i%2], Labels: map[string]string{"role": role},
		})
	}
	placementtest.Strategy(t, fresh, placementtest.Options{Nodes: nodes})
}

func table(t *rapid.T, s placement.Strategy, nodes []placement.Node) *placement.Table {
	t.Helper()
	table, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: 64, Strategy: s})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func owner(table *placement.Table, p int) placement.Node {
	return table.Nodes()[table.OwnerIndex(placement.Partition(p))]
}

func fleet(least int) *rapid.Generator[[]placement.Node] {
	return rapid.Custom(func(t *rapid.T) []placement.Node {
		nodes := make([]placement.Node, rapid.IntRange(least, 8).Draw(t, "nodes"))
		for i := range nodes {
			nodes[i] = placement.Node{
				ID: lease.NodeID(fmt.Sprint("n", i)), Weight: 100,
				Zone:     rapid.SampledFrom([]string{"", "east", "west"}).Draw(t, "zone"),
				Capacity: rapid.Int64Range(0, 5).Draw(t, "capacity"),
				Labels:   map[string]string{"role": rapid.SampledFrom([]string{"", "ssd", "hdd"}).Draw(t, "role")},
			}
		}
		return nodes
	})
}

// obeying returns the nodes that obey a rule, or all nodes if none does.
func obeying(nodes []placement.Node, rule func(placement.Node) bool) []placement.Node {
	if obey := slices.DeleteFunc(slices.Clone(nodes), func(n placement.Node) bool { return !rule(n) }); len(obey) > 0 {
		return obey
	}
	return nodes
}

// TestRules: role pinning and anti-affinity hold wherever possible.
func TestRules(t *testing.T) {
	s := shards{role: "ssd", pinned: 15} // partition 14 is pinned, but its mirror is not
	rapid.Check(t, func(t *rapid.T) {
		table := table(t, s, fleet(1).Draw(t, "nodes"))
		for p := range table.Partitions() {
			may := table.Nodes()
			if p < s.pinned {
				may = obeying(may, func(n placement.Node) bool { return n.Labels["role"] == "ssd" })
			}
			if p%2 == 1 {
				may = obeying(may, func(n placement.Node) bool { return n.Zone != owner(table, p-1).Zone })
			}
			if n := owner(table, p); !slices.ContainsFunc(may, n.Equal) {
				t.Fatalf("partition %d belongs to %+v; it should be one of %+v", p, n, may)
			}
		}
	})
}

// TestExplain: the reason names the rules that decided and the rules that could not be followed.
func TestExplain(t *testing.T) {
	nodes := []placement.Node{
		{ID: "a", Weight: 1, Zone: "east", Labels: map[string]string{"role": "ssd"}},
		{ID: "b", Weight: 1, Zone: "west"},
	}
	for _, tt := range []struct {
		s     shards
		p     placement.Partition
		owner int
		want  string
	}{
		{shards{role: "ssd", pinned: 2}, 4, 1, "b has the best score for it by capacity and weight"},
		{
			shards{role: "ssd", pinned: 2},
			0, 0,
			"a has the best score for it by capacity and weight among nodes of role ssd, to which it is pinned",
		},
		{
			shards{role: "gpu", pinned: 2},
			0, 0,
			"a has the best score for it by capacity and weight; none has the role gpu, to which it is pinned",
		},
		{
			shards{role: "ssd", pinned: 1},
			1, 1,
			`b has the best score for it by capacity and weight, and mirrors partition 0, which a in zone "east" has`,
		},
	} {
		if got := tt.s.Explain(nodes, tt.p, tt.owner); got != tt.want {
			t.Errorf("%s, partition %d: %s\nwant %s", tt.s.Name(), tt.p, got, tt.want)
		}
	}
}

// TestMoves: when a node joins or leaves, partitions move only to or from this node. Mirrors of these partitions may
// move between other nodes.
func TestMoves(t *testing.T) {
	s := shards{role: "ssd", pinned: 16}
	rapid.Check(t, func(t *rapid.T) {
		nodes := fleet(2).Draw(t, "nodes")
		with, sans := table(t, s, nodes), table(t, s, nodes[1:])
		moved := func(p int) bool { return owner(with, p).ID != owner(sans, p).ID }
		for p := range with.Partitions() {
			own := owner(with, p).ID == nodes[0].ID
			if makesWay := p%2 == 1 && moved(p-1); moved(p) && !own && !makesWay {
				t.Fatalf("when %s comes or goes, partition %d moves between %s and %s",
					nodes[0].ID, p, owner(with, p).ID, owner(sans, p).ID)
			}
		}
	})
}

// TestCapacity: without other rules, the owners are the same as in rendezvous hashing with capacity times weight as the
// weight, even for the largest numbers.
func TestCapacity(t *testing.T) {
	for capacity, weight := range map[int64]uint32{
		0:             100,
		1:             100,
		5:             500,
		42_949_672:    4_294_967_200,
		42_949_673:    math.MaxUint32,
		math.MaxInt64: math.MaxUint32,
	} {
		nodes := []placement.Node{
			{ID: "a", Weight: 100, Capacity: capacity},
			{ID: "b", Weight: 100, Capacity: 2},
			{ID: "c", Weight: 50, Capacity: 2},
		}
		got, err := shards{}.Assign(nodes, 1024)
		if err != nil {
			t.Fatal(err)
		}
		nodes[0].Weight, nodes[1].Weight, nodes[2].Weight = weight, 200, 100
		if want, _ := placement.Rendezvous().Assign(nodes, 1024); !slices.Equal(got, want) {
			t.Errorf("of capacity %d, owners differ from those of weight %d", capacity, weight)
		}
	}
}
