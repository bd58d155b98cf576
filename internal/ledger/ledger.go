// Package ledger checks the batches of events of a node. It adds up the batches and compares the result with
// the state of the node. Test clusters use it.
package ledger

import (
	"fmt"
	"maps"
	"slices"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Ledger adds up the batches of a node. The zero value is ready to use.
type Ledger struct {
	Batches []events.Batch // all batches that were added

	owned    map[placement.Partition]uint64
	members  map[lease.NodeID]bool
	problems []string
}

// Add adds a batch, and records each contradiction between it and earlier batches.
func (l *Ledger) Add(b events.Batch) {
	if l.owned == nil {
		l.owned, l.members = make(map[placement.Partition]uint64), make(map[lease.NodeID]bool)
	}
	report := func(bad bool, format string, args ...any) {
		if bad {
			l.problems = append(l.problems, fmt.Sprintf("version %d: ", b.Version)+fmt.Sprintf(format, args...))
		}
	}
	l.Batches = append(l.Batches, b)
	for _, o := range b.Released {
		report(l.owned[o.Partition] != o.Since, "released %v, owned since %d", o, l.owned[o.Partition])
		delete(l.owned, o.Partition)
	}
	for _, o := range b.Acquired {
		report(l.owned[o.Partition] != 0, "acquired %v, already owned", o)
		l.owned[o.Partition] = o.Since
	}
	for _, id := range b.Left {
		report(!l.members[id], "%s left, was no member", id)
		delete(l.members, id)
	}
	for _, id := range b.Joined {
		report(l.members[id], "%s joined, was a member", id)
		l.members[id] = true
	}
}

// Problems returns all contradictions, and all differences between the sum of the batches and the given state
// of the node. The arguments owned and members must be sorted.
func (l *Ledger) Problems(owned []placement.Partition, members []lease.NodeID) []string {
	problems := slices.Clone(l.problems)
	if sum := slices.Sorted(maps.Keys(l.owned)); !slices.Equal(sum, owned) {
		problems = append(problems, fmt.Sprintf("owns %d partitions, by its batches %d", len(owned), len(sum)))
	}
	if sum := slices.Sorted(maps.Keys(l.members)); !slices.Equal(sum, members) {
		problems = append(problems, fmt.Sprintf("has members %v, by its batches %v", members, sum))
	}
	return problems
}
