package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func TestLimiter(t *testing.T) {
	var l limiter
	for _, tt := range []struct {
		ms   int
		want bool
	}{{0, true}, {1, false}, {999, false}, {1000, true}, {1001, false}, {5000, true}} {
		if got := l.allow(at(tt.ms), time.Second); got != tt.want {
			t.Errorf("after %d ms: %v", tt.ms, got)
		}
	}
}

// tableOf returns a table of eight partitions over nodes of equal weight.
func tableOf(t *testing.T, ids ...string) *placement.Table {
	t.Helper()
	in := placement.Input{Partitions: 8, Strategy: placement.Rendezvous()}
	for _, id := range ids {
		in.Nodes = append(in.Nodes, placement.Node{ID: lease.NodeID(id), Weight: 100})
	}
	table, err := placement.Compute(in)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// At most one line is logged per minute. A line that has to wait is logged later if it is still true.
func TestBalanceReview(t *testing.T) {
	even, uneven := tableOf(t, "a"), tableOf(t, "a", "b")
	if uneven.Balance().Advice() == "" {
		t.Fatal("the table of two nodes is even")
	}
	for name, tt := range map[string]struct {
		tables map[int]*placement.Table // by second
		want   string                   // seconds and levels of the lines
	}{
		"even":                     {map[int]*placement.Table{0: even}, ""},
		"no nodes":                 {map[int]*placement.Table{0: tableOf(t)}, ""},
		"uneven":                   {map[int]*placement.Table{0: even, 10: uneven}, "10:4"},
		"even again":               {map[int]*placement.Table{0: uneven, 80: even}, "0:4 80:0"},
		"even again, within 60 s":  {map[int]*placement.Table{0: uneven, 10: even}, "0:4 60:0"},
		"back within 60 s":         {map[int]*placement.Table{0: uneven, 10: even, 30: uneven}, "0:4"},
		"without nodes for a time": {map[int]*placement.Table{0: uneven, 70: tableOf(t), 80: even}, "0:4 80:0"},
	} {
		var b balance
		var lines []string
		var table *placement.Table
		for second := range 200 {
			if next := tt.tables[second]; next != nil {
				table = next
			}
			b.review(at(1000*second), table, func(level Level, _ string, _ ...any) {
				lines = append(lines, fmt.Sprintf("%d:%d", second, level))
			})
		}
		if got := strings.Join(lines, " "); got != tt.want {
			t.Errorf("%s: lines at %q, want %q", name, got, tt.want)
		}
	}
}

func TestDivergenceCount(t *testing.T) {
	type step struct {
		second   int
		hasTable bool
		members  int
	}
	for name, tt := range map[string]struct {
		steps []step
		times uint64
		total time.Duration
	}{
		"none":              {[]step{{0, true, 0}, {10, true, 0}}, 0, 0},
		"before a table":    {[]step{{0, false, 5}, {10, false, 5}}, 0, 0},
		"once":              {[]step{{0, true, 2}, {3, true, 1}, {5, true, 0}, {9, true, 0}}, 1, 5 * time.Second},
		"still":             {[]step{{0, true, 2}, {3, true, 1}}, 1, 3 * time.Second},
		"twice":             {[]step{{0, true, 2}, {3, true, 0}, {5, true, 1}, {6, true, 0}}, 2, 4 * time.Second},
		"fenced in between": {[]step{{0, true, 2}, {3, true, 2}, {60, false, 2}, {63, true, 1}, {64, true, 0}}, 2, 4 * time.Second},
	} {
		var d divergence
		for _, s := range tt.steps {
			d.count(at(1000*s.second), s.hasTable, s.members)
		}
		if d.times != tt.times || d.total != tt.total {
			t.Errorf("%s: %d times, %v in all; want %d, %v", name, d.times, d.total, tt.times, tt.total)
		}
	}
}
