package placement_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// All numbers in this test were calculated by hand.
func TestBalance(t *testing.T) {
	type nodes = []placement.Node
	for _, tt := range []struct {
		name   string
		nodes  nodes
		assign []int
		want   placement.Balance
	}{
		{
			"alone",
			equals("a"),
			[]int{0, 0, 0},
			placement.Balance{Counts: map[lease.NodeID]int{"a": 3}, Mean: 3, MaxMean: 1},
		},
		{
			"even",
			equals("a", "b"),
			[]int{0, 1, 1, 0},
			placement.Balance{Counts: map[lease.NodeID]int{"a": 2, "b": 2}, Mean: 2, MaxMean: 1},
		},
		{ // counts 6, 2, 4, 0: deviations 3, −1, 1, −3 from 3; σ = √5
			"uneven",
			equals("a", "b", "c", "d"),
			[]int{0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 2},
			placement.Balance{Counts: map[lease.NodeID]int{"a": 6, "b": 2, "c": 4, "d": 0}, Mean: 3, MaxMean: 2, CV: math.Sqrt(5) / 3},
		},
		{
			"even by weight",
			nodes{{ID: "a", Weight: 300}, {ID: "b", Weight: 100}},
			[]int{0, 0, 0, 1},
			placement.Balance{Counts: map[lease.NodeID]int{"a": 3, "b": 1}, Mean: 2, MaxMean: 1},
		},
		{ // fair shares 3 and 1; loads 2/3 and 2; variance 3/4·(1/3)² + 1/4·1²
			"uneven by weight",
			nodes{{ID: "a", Weight: 3}, {ID: "b", Weight: 1}},
			[]int{0, 0, 1, 1},
			placement.Balance{Counts: map[lease.NodeID]int{"a": 2, "b": 2}, Mean: 2, MaxMean: 2, CV: math.Sqrt(1. / 3)},
		},
		{
			"weight 0 is no candidate",
			nodes{{ID: "a", Weight: 1}, {ID: "b", Weight: 0}},
			[]int{0, 0},
			placement.Balance{Counts: map[lease.NodeID]int{"a": 2}, Mean: 2, MaxMean: 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := mustComputeBy(t, fixed{name: "s", assign: tt.assign}, len(tt.assign), tt.nodes...).Balance()
			close := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-12 })
			if diff := cmp.Diff(tt.want, got, close); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Advice returns a text only if the variation is above 15 %.
func TestAdvice(t *testing.T) {
	counts := func(perNode ...int) map[lease.NodeID]int {
		m := map[lease.NodeID]int{}
		for i, n := range perNode {
			m[lease.NodeID('a'+rune(i))] = n
		}
		return m
	}
	for _, tt := range []struct {
		name    string
		balance placement.Balance
		want    string // part of the advice; "" = no advice
	}{
		{"zero", placement.Balance{}, ""},
		{"even", placement.Balance{Counts: counts(32, 32), CV: 0.05}, ""},
		{"at the limit", placement.Balance{Counts: counts(32, 32), CV: 0.15}, ""},
		{"above", placement.Balance{Counts: counts(40, 24), CV: 0.1501}, "raise Partitions from 64 to 128 on every node"},
		{
			"ten nodes",
			placement.Balance{Counts: counts(6, 7, 6, 7, 6, 7, 6, 7, 6, 6), CV: 0.36},
			"varies by 36 % between nodes (above 15 %): raise Partitions from 64 to 1024",
		},
		{"bad luck at 1024", placement.Balance{Counts: counts(624, 400), CV: 0.2}, "from 1024 to 2048"},
		{"near the maximum", placement.Balance{Counts: counts(40_000, 10_000), CV: 0.6}, "from 50000 to 65536"},
		{"at the maximum", placement.Balance{Counts: counts(65_536, 0), CV: 1}, "already at its maximum of 65536"},
		{"no counts", placement.Balance{CV: 1}, "from 0 to 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.balance.Advice()
			if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("advice %q, want %q", got, tt.want)
			}
		})
	}
}

// With the number of partitions in the advice, the variation is small enough.
func TestAdviceHelps(t *testing.T) {
	worst := 0.0
	for seed := range 20 {
		nodes := fleet(seed, 10)
		before := mustCompute(t, 64, nodes...).Balance()
		if !strings.Contains(before.Advice(), "to 1024") {
			t.Errorf("64 partitions, CV %.2f: advice %q", before.CV, before.Advice())
		}
		after := mustCompute(t, 1024, nodes...).Balance()
		if after.Advice() != "" {
			t.Errorf("1024 partitions, CV %.2f: advice %q", after.CV, after.Advice())
		}
		worst = max(worst, after.CV)
	}
	t.Logf("greatest CV after the advice: %.3f", worst)
}
