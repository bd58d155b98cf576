package bench

import (
	"fmt"
	"path"
	"strconv"
	"testing"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
	"github.com/dgryski/go-rendezvous"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

var strategies = []placement.Strategy{
	placement.Rendezvous(), placement.Bounded(105), placement.Bounded(125), placement.Modulo(), placement.VnodeRing(),
	placement.ClassicRing(), placement.LeastPartitions(1, 3), placement.Zoned(placement.Rendezvous()),
}

// sizes runs a benchmark with the given name for each number of partitions and nodes.
func sizes(b *testing.B, name string, run func(b *testing.B, partitions, nodes int)) {
	b.Helper()
	all := []int{64, 1024, 16384}
	if testing.Short() {
		all = all[:2]
	}
	for _, partitions := range all {
		for _, nodes := range []int{10, 100, 1000} {
			b.Run(path.Join(name, fmt.Sprintf("%dx%d", partitions, nodes)), func(b *testing.B) { run(b, partitions, nodes) })
		}
	}
}

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("node-%04d", i)
	}
	return all
}

// fleet returns nodes that all have the same weight, or three different weights.
func fleet(n int, weighted bool) []placement.Node {
	nodes := make([]placement.Node, n)
	for i, name := range names(n) {
		nodes[i] = placement.Node{ID: lease.NodeID(name), Weight: 100, Zone: strconv.Itoa(i % 3)}
		if weighted {
			nodes[i].Weight += 50 * uint32(i%3)
		}
	}
	return nodes
}

func compute(b *testing.B, in placement.Input) *placement.Table {
	b.Helper()
	t, err := placement.Compute(in)
	if err != nil {
		b.Fatal(err)
	}
	return t
}

// fresh returns a new instance of s, because the ring strategies keep their last ring.
func fresh(b *testing.B, s placement.Strategy) placement.Strategy {
	b.Helper()
	f, err := placement.ParseStrategy(s.Name())
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// BenchmarkCompute measures how long it takes to compute a table without an earlier table, as when a node starts.
func BenchmarkCompute(b *testing.B) {
	for _, s := range strategies {
		sizes(b, s.Name(), func(b *testing.B, partitions, nodes int) {
			b.Helper()
			in := placement.Input{Nodes: fleet(nodes, false), Partitions: partitions}
			for b.Loop() {
				in.Strategy = fresh(b, s)
				compute(b, in)
			}
		})
	}
	sizes(b, "weighted-rendezvous", func(b *testing.B, partitions, nodes int) {
		b.Helper()
		in := placement.Input{Nodes: fleet(nodes, true), Partitions: partitions}
		for b.Loop() {
			compute(b, in)
		}
	})
	sizes(b, "go-rendezvous", func(b *testing.B, partitions, nodes int) {
		b.Helper()
		ids := names(nodes)
		owners := make([]string, partitions)
		for b.Loop() {
			r := rendezvous.New(ids, xxhash.Sum64String)
			for p := range owners {
				owners[p] = r.Lookup(strconv.Itoa(p))
			}
		}
	})
	sizes(b, "consistent", func(b *testing.B, partitions, nodes int) {
		b.Helper()
		m := roomFor(b, partitions, nodes)
		for b.Loop() {
			consistent.New(m, config(partitions))
		}
	})
}

// BenchmarkJoin measures what an agent does when a node joins. If the strategy allows it, the agent derives the new
// table from the last table.
func BenchmarkJoin(b *testing.B) {
	for _, s := range strategies {
		sizes(b, s.Name(), func(b *testing.B, partitions, nodes int) {
			b.Helper()
			all := fleet(nodes+1, false)
			in := placement.Input{Nodes: all[:nodes], Partitions: partitions, Strategy: s}
			in.Base = compute(b, in)
			in.Base = compute(b, in) // derive this table, too, as agents do after the first change
			if placement.Remembers(s) {
				in.Memory = assignment.Record(in.Base, assignment.Coordinator{ID: "node-0000"})
			}
			in.Nodes = all
			for b.Loop() {
				in.Strategy = fresh(b, s)
				compute(b, in)
			}
		})
	}
	sizes(b, "consistent", func(b *testing.B, partitions, nodes int) {
		b.Helper()
		ring := consistent.New(roomFor(b, partitions, nodes), config(partitions))
		newcomer := member("newcomer")
		for b.Loop() {
			ring.Add(newcomer)
			b.StopTimer()
			ring.Remove(newcomer.String())
			b.StartTimer()
		}
	})
}

// BenchmarkPass measures a pass of least-partitions after a join, together with the record that precedes it.
func BenchmarkPass(b *testing.B) {
	sizes(b, "", func(b *testing.B, partitions, nodes int) {
		b.Helper()
		all := fleet(nodes+1, false)
		in := placement.Input{Nodes: all[:nodes], Partitions: partitions, Strategy: placement.LeastPartitions(1, 3)}
		c := assignment.Coordinator{ID: "node-0000"}
		assigned := assignment.Record(compute(b, in), c)
		in.Memory = assigned
		in.Nodes = all
		t := compute(b, in)
		for b.Loop() {
			assignment.Record(t, c)
			if _, err := assignment.Level(t, c, assigned.Version(), false); err != nil {
				b.Fatal(err)
			}
		}
	})
}

type member string

// String implements consistent.Member.
func (m member) String() string { return string(m) }

func members(n int) []consistent.Member {
	all := make([]consistent.Member, n)
	for i, name := range names(n) {
		all[i] = member(name)
	}
	return all
}

// roomFor returns the members for consistent, and skips the benchmark if there are too few partitions, because
// consistent panics with fewer than a few partitions per node.
func roomFor(b *testing.B, partitions, nodes int) []consistent.Member {
	b.Helper()
	if partitions < 10*nodes {
		b.Skip("too few partitions for consistent")
	}
	return members(nodes)
}

type hasher struct{}

// Sum64 implements consistent.Hasher.
func (hasher) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }

func config(partitions int) consistent.Config {
	return consistent.Config{Hasher: hasher{}, PartitionCount: partitions, ReplicationFactor: 20, Load: 1.25}
}
