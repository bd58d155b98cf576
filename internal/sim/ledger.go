package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// ledger adds up what a node publishes, as a watcher does that reads every state,
// and notes each change that contradicts the ones before it.
type ledger struct {
	last    *events.State
	batches []events.Batch
	owned   map[placement.Partition]uint64
	members map[lease.NodeID]bool
	faults  []string
}

func newLedger() ledger {
	return ledger{owned: make(map[placement.Partition]uint64), members: make(map[lease.NodeID]bool)}
}

func (l *ledger) publish(s *events.State) {
	b := events.Diff(l.last, s)
	l.last = s
	l.batches = append(l.batches, b)
	for _, o := range b.Released {
		if l.owned[o.Partition] != o.Since {
			l.fault("version %d released %v, which was not owned so", b.Version, o)
		}
		delete(l.owned, o.Partition)
	}
	for _, o := range b.Acquired {
		if _, twice := l.owned[o.Partition]; twice {
			l.fault("version %d acquired %v, which was owned", b.Version, o)
		}
		l.owned[o.Partition] = o.Since
	}
	for _, id := range b.Left {
		if !l.members[id] {
			l.fault("version %d: %s left, which was no member", b.Version, id)
		}
		delete(l.members, id)
	}
	for _, id := range b.Joined {
		if l.members[id] {
			l.fault("version %d: %s joined, which was a member", b.Version, id)
		}
		l.members[id] = true
	}
}

func (l *ledger) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// check returns the faults, and how the sum of all batches differs from what the
// node knows.
func (l *ledger) check(owned []placement.Partition, members []lease.NodeID) []string {
	faults := slices.Clone(l.faults)
	if sum := slices.Sorted(maps.Keys(l.owned)); !slices.Equal(sum, owned) {
		faults = append(faults, fmt.Sprintf("owns %d partitions, its batches add up to %d", len(owned), len(sum)))
	}
	if sum := slices.Sorted(maps.Keys(l.members)); !slices.Equal(sum, members) {
		faults = append(faults, fmt.Sprintf("has members %v, its batches add up to %v", members, sum))
	}
	return faults
}
