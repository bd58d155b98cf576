package placement_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Hash64(key) mod partitions.
func TestOf(t *testing.T) {
	// The 64-bit hashes of these keys are the published test values of xxHash64,
	// seed 0.
	const empty, a, abc uint64 = 0xef46db3751d8e999, 0xd24ec4f1a98c6e5b, 0x44bc2cf5ad770999
	for _, tt := range []struct {
		key        string
		partitions int
		want       placement.Partition
	}{
		{"", 1024, placement.Partition(empty % 1024)},
		{"a", 1024, placement.Partition(a % 1024)},
		{"abc", 1000, placement.Partition(abc % 1000)},
		{"abc", placement.MaxPartitions, placement.Partition(abc % placement.MaxPartitions)},
		{"abc", 1, 0},
		{"abc", 0, 0},
		{"abc", -1, 0},
		{"abc", math.MinInt, 0},
	} {
		if got := placement.Of(tt.key, tt.partitions); got != tt.want {
			t.Errorf("Of(%q, %d) = %d, want %d", tt.key, tt.partitions, got, tt.want)
		}
	}
}

// Compute rejects invalid ids and other invalid input, with every strategy, and the error names the problem.
func TestComputeRejects(t *testing.T) {
	two := equals("a", "b")
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		in   placement.Input
		want string
	}{
		{"no partitions", placement.Input{Nodes: two}, "0 partitions; there must be 1 to 65536"},
		{"negative", placement.Input{Nodes: two, Partitions: -1}, "-1 partitions"},
		{"too many", placement.Input{Nodes: two, Partitions: placement.MaxPartitions + 1}, "65537 partitions"},
		{"far too many", placement.Input{Nodes: two, Partitions: math.MaxInt}, "there must be 1 to 65536"},
		{"empty id", placement.Input{Nodes: equals("a", ""), Partitions: 1}, `node id "" has 0 bytes`},
		{"bad byte", placement.Input{Nodes: equals("a", "a b"), Partitions: 1}, `node id "a b": byte ' '`},
		{"twice", placement.Input{Nodes: equals("b", "a", "b"), Partitions: 1}, `node id "b" is given twice`},
		{
			"twice, weightless",
			placement.Input{Nodes: []placement.Node{{ID: "a"}, {ID: "b", Weight: 1}, {ID: "a"}}, Partitions: 1},
			`"a" is given twice`,
		},
		{"bad id, weightless", placement.Input{Nodes: []placement.Node{{ID: "*"}}, Partitions: 1}, `node id "*"`},
		{"nameless", placement.Input{Nodes: two, Partitions: 2, Strategy: fixed{assign: []int{0, 1}}}, "placement_test.fixed has no name"},
		{
			"failing",
			placement.Input{Nodes: two, Partitions: 2, Strategy: fixed{name: "s", err: broken}},
			`strategy "s": assign 2 partitions to 2 nodes: broken`,
		},
		{
			"too short",
			placement.Input{Nodes: two, Partitions: 3, Strategy: fixed{name: "s", assign: []int{0, 1}}},
			`strategy "s": assigned 2 partitions of 3`,
		},
		{"too long", placement.Input{Nodes: two, Partitions: 1, Strategy: fixed{name: "s", assign: []int{0, 1}}}, "assigned 2 partitions of 1"},
		{
			"index too great",
			placement.Input{Nodes: two, Partitions: 2, Strategy: fixed{name: "s", assign: []int{0, 2}}},
			"assigned partition 1 to node index 2 of 2",
		},
		{
			"index negative",
			placement.Input{Nodes: two, Partitions: 2, Strategy: fixed{name: "s", assign: []int{-1, 0}}},
			"assigned partition 0 to node index -1 of 2",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			strategies := []placement.Strategy{tt.in.Strategy}
			if tt.in.Strategy == nil {
				for _, b := range builtins() {
					strategies = append(strategies, b.fresh())
				}
			}
			for _, s := range strategies {
				tt.in.Strategy = s
				table, err := placement.Compute(tt.in)
				if err == nil || !strings.HasPrefix(err.Error(), "placement: ") || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want placement: … %s", err, tt.want)
				}
				if table != nil {
					t.Error("a table and an error")
				}
			}
		})
	}
	_, err := placement.Compute(placement.Input{Nodes: two, Partitions: 2, Strategy: fixed{name: "s", err: broken}})
	if !errors.Is(err, broken) {
		t.Errorf("%v does not wrap the strategy's error", err)
	}
}

// Tables without owners answer every call, and never panic.
func TestNoOwners(t *testing.T) {
	for _, tt := range []struct {
		name       string
		table      *placement.Table
		partitions int
	}{
		{"nil table", nil, 0},
		{"zero table", new(placement.Table), 0},
		{"no nodes", mustCompute(t, 8), 8},
		{"only weight 0", mustCompute(t, 8, placement.Node{ID: "a"}, placement.Node{ID: "b"}), 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.table.Partitions(); got != tt.partitions {
				t.Errorf("%d partitions, want %d", got, tt.partitions)
			}
			if got := tt.table.Nodes(); len(got) != 0 {
				t.Errorf("candidates %v", got)
			}
			for _, p := range []placement.Partition{0, 7, 8, math.MaxUint32} {
				if i := tt.table.OwnerIndex(p); i != -1 {
					t.Errorf("OwnerIndex(%d) = %d", p, i)
				}
				if id, ok := tt.table.Owner(p); ok || id != "" {
					t.Errorf("Owner(%d) = %q, %v", p, id, ok)
				}
				if ids := tt.table.Rank(p, 3); len(ids) != 0 {
					t.Errorf("Rank(%d, 3) = %v", p, ids)
				}
			}
			if ps := tt.table.Owned("a"); len(ps) != 0 {
				t.Errorf("a owns %v", ps)
			}
			if b := tt.table.Balance(); len(b.Counts) != 0 || b.Mean != 0 || b.MaxMean != 0 || b.CV != 0 || b.Advice() != "" {
				t.Errorf("balance %+v", b)
			}
		})
	}
}

func TestTable(t *testing.T) {
	nodes := []placement.Node{{ID: "c", Weight: 1}, {ID: "idle"}, {ID: "a", Weight: 9}, {ID: "b", Weight: 1}}
	given := slices.Clone(nodes)
	table := mustComputeBy(t, byTurns{}, 8, nodes...)

	if diff := cmp.Diff(given, nodes); diff != "" {
		t.Errorf("Compute modified its input (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff([]placement.Node{{ID: "a", Weight: 9}, {ID: "b", Weight: 1}, {ID: "c", Weight: 1}}, table.Nodes()); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]lease.NodeID{"a", "b", "c", "a", "b", "c", "a", "b"}, owners(table)); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	for id, want := range map[lease.NodeID][]placement.Partition{
		"a": {0, 3, 6}, "b": {1, 4, 7}, "c": {2, 5}, "idle": nil, "": nil, "zz": nil,
	} {
		if diff := cmp.Diff(want, table.Owned(id)); diff != "" {
			t.Errorf("owned by %q (-want +got):\n%s", id, diff)
		}
	}
	for _, p := range []placement.Partition{8, 9, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32} {
		if i := table.OwnerIndex(p); i != -1 {
			t.Errorf("OwnerIndex(%d) = %d of a table of 8", p, i)
		}
		if ids := table.Rank(p, 1); ids != nil {
			t.Errorf("Rank(%d, 1) = %v of a table of 8", p, ids)
		}
	}
}

// Whatever the strategy returns, Rank returns at most n distinct nodes, with the owner first.
func TestTableRank(t *testing.T) {
	for _, tt := range []struct {
		name string
		rank []int
		n    int
		want []lease.NodeID
	}{
		{"honest", []int{1, 2, 0}, 3, []lease.NodeID{"b", "c", "a"}},
		{"honest, cut", []int{1, 2}, 2, []lease.NodeID{"b", "c"}},
		{"more than there are", []int{1, 2, 0}, math.MaxInt, []lease.NodeID{"b", "c", "a"}},
		{"none", []int{}, 0, nil},
		{"negative", []int{}, -1, nil},
		{"owner not first", []int{0, 1, 2}, 2, []lease.NodeID{"b", "a"}},
		{"owner missing", []int{0, 2}, 2, []lease.NodeID{"b", "a"}},
		{"repeated", []int{1, 1, 2, 2, 0}, 3, []lease.NodeID{"b", "c", "a"}},
		{"out of range", []int{1, 3, -1, 0}, 3, []lease.NodeID{"b", "a"}},
		{"silent", nil, 3, []lease.NodeID{"b"}},
		{"too long", []int{1, 2, 0}, 1, []lease.NodeID{"b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table := mustComputeBy(t, fixed{name: "s", assign: []int{1}, rank: tt.rank}, 1, equals("a", "b", "c")...)
			if diff := cmp.Diff(tt.want, table.Rank(0, tt.n)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Lookups do not allocate memory.
func TestLookupsDoNotAllocate(t *testing.T) {
	table := mustCompute(t, placement.DefaultPartitions, fleet(0, 100)...)
	key := strings.Repeat("a long room name ", 20)
	for name, f := range map[string]func(){
		"Of":         func() { placement.Of(key, table.Partitions()) },
		"OwnerIndex": func() { table.OwnerIndex(17) },
		"Owner":      func() { table.Owner(17) },
		"Nodes":      func() { table.Nodes() },
		"Digest":     func() { table.Digest() },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

// For every strategy, Why gives a reason for the owner.
func TestWhy(t *testing.T) {
	nodes := equals("a", "b", "c")
	for _, tt := range []struct {
		table *placement.Table
		want  string
	}{
		{mustCompute(t, 8, nodes...), "drew the best number of 3 nodes for it; without it, "},
		{mustCompute(t, 8, nodes[0]), "a is the only node that may own partitions"},
		{mustComputeBy(t, placement.Zoned(placement.Modulo()), 8, nodes...), "5 mod 3 nodes is 2, and c is number 2"},
		{mustComputeBy(t, placement.Bounded(125), 8, nodes...), "below its bound"},
		{mustComputeBy(t, placement.VnodeRing(), 8, nodes...), "on the ring of 3 nodes, the first point at or after its hash is one of "},
		{mustComputeBy(t, placement.LeastPartitions(1, 2), 8, nodes...), "it had no owner on record, and c had the fewest partitions"},
		{mustComputeBy(t, byTurns{}, 8, nodes...), "the strategy by-turns placed it on c"},
		{mustCompute(t, 5, nodes...), "there is no partition 5: partitions are numbered from 0 to 4"},
		{mustCompute(t, 8), "no node may own it"},
		{nil, "there is no partition 5"},
	} {
		if got := tt.table.Why(5); !strings.Contains(got, tt.want) {
			t.Errorf("%q, want … %s", got, tt.want)
		}
	}
}
