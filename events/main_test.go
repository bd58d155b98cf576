package events_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// self is the node to which all states in the tests belong.
const self lease.NodeID = "a"

// step describes a state. owners has one letter per partition: "aab" gives partitions 0 and 1 to a, and 2 to b. "..."
// is a table without owners, and "" is no table. members contains ids with an incarnation: "a1 b1".
type step struct {
	owners  string
	members string
	fenced  bool
}

// next returns the state that follows prev and matches the step.
func (s step) next(tb testing.TB, prev *events.State) *events.State {
	tb.Helper()
	return events.Next(prev, self, tableOf(tb, s.owners), membersOf(tb, s.members), !s.fenced)
}

// chain returns the states of successive steps.
func chain(tb testing.TB, steps ...step) []*events.State {
	tb.Helper()
	var states []*events.State
	var prev *events.State
	for _, s := range steps {
		prev = s.next(tb, prev)
		states = append(states, prev)
	}
	return states
}

// script is a placement strategy with a fixed assignment.
type script []int

func (s script) Name() string                                          { return "script" }
func (s script) Assign([]placement.Node, int) ([]int, error)           { return s, nil }
func (s script) Rank([]placement.Node, placement.Partition, int) []int { return nil }

func tableOf(tb testing.TB, owners string) *placement.Table {
	tb.Helper()
	if owners == "" {
		return nil
	}
	in := placement.Input{Partitions: len(owners)}
	if strings.Trim(owners, ".") != "" {
		ids := slices.Compact(slices.Sorted(slices.Values([]byte(owners))))
		var indexes script
		for i := range len(owners) {
			indexes = append(indexes, slices.Index(ids, owners[i]))
		}
		for _, id := range ids {
			in.Nodes = append(in.Nodes, placement.Node{ID: lease.NodeID(id), Weight: 1})
		}
		in.Strategy = indexes
	}
	table, err := placement.Compute(in)
	if err != nil {
		tb.Fatalf("table %q: %v", owners, err)
	}
	return table
}

func membersOf(tb testing.TB, members string) []lease.Incarnation {
	tb.Helper()
	var list []lease.Incarnation
	for m := range strings.FieldsSeq(members) {
		var inc uint64
		if _, err := fmt.Sscan(m[1:], &inc); err != nil {
			tb.Fatalf("member %q: %v", m, err)
		}
		list = append(list, lease.Incarnation{Node: lease.NodeID(m[:1]), Number: inc})
	}
	return list
}

// text formats a batch for comparison: -0@1 released, +0@3 acquired,
// 0:a>b moved, left:b, joined:c.
func text(b events.Batch) string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, o := range b.Released {
		add("-%d@%d", o.Partition, o.Since)
	}
	for _, o := range b.Acquired {
		add("+%d@%d", o.Partition, o.Since)
	}
	for _, m := range b.Moved {
		add("%d:%s>%s", m.Partition, m.From, m.To)
	}
	for _, id := range b.Left {
		add("left:%s", id)
	}
	for _, id := range b.Joined {
		add("joined:%s", id)
	}
	return strings.Join(out, " ")
}
