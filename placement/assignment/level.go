package assignment

import (
	"cmp"
	"math"
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Level returns the assignment after one pass of t's strategy, or after all passes
// if all is set. Partitions that changed after version applied stay: some nodes have
// not applied that change yet. The result is t's own assignment if the strategy moves
// nothing. An error names a strategy that breaks its contract.
// O(partitions · log partitions), and what the strategy costs.
func Level(t *placement.Table, c Coordinator, applied uint64, all bool) (*Assignment, error) {
	a := From(t)
	if a == nil {
		return nil, nil
	}
	next, ok := a.draft(c, t.Partitions())
	if !ok {
		return a, nil
	}
	moves, err := t.Level(a.movable(t, applied), all)
	if err != nil || len(moves) == 0 {
		return a, err
	}
	for _, m := range moves {
		next.entries[m.Partition].move(m.From, m.To, c.ID, next.version)
	}
	return next.finish(), nil
}

// move gives the partition of e to another node: from its owner to a new owner, from
// a deputy to a new deputy.
func (e *entry) move(from, to, by lease.NodeID, version uint64) {
	if e.owner == from {
		*e = entry{owner: to, version: version, from: from, by: by, cause: causeLevel}
		return
	}
	e.deputy, e.stand = to, version
}

// movable returns the partitions that have not changed since version applied, the
// longest unchanged first.
func (a *Assignment) movable(t *placement.Table, applied uint64) []placement.Partition {
	all := make([]placement.Partition, 0, len(a.entries))
	for p := range a.entries {
		// The holder must be on record, or the move would not be from it.
		e := &a.entries[p]
		holder, _ := t.Owner(placement.Partition(p))
		if e.changed() <= applied && (e.owner == holder || e.deputy == holder) {
			all = append(all, placement.Partition(p))
		}
	}
	slices.SortStableFunc(all, func(p, q placement.Partition) int {
		return cmp.Compare(a.entries[p].changed(), a.entries[q].changed())
	})
	return all
}

// Levelled returns the table after all passes over t, and their number, provided that
// no node joins or leaves and that every pass moves as many partitions as the first.
// For a strategy that does not remember it returns t and 0.
func Levelled(t *placement.Table) (*placement.Table, int) {
	// One pass without a limit ends where many limited ones do: no pass moves back
	// a partition that an earlier one moved.
	noted, err := t.With(Record(t, Coordinator{})) // as the coordinator does before the first pass
	if err != nil || From(noted) == nil {
		return t, 0 // of an imported table, with weights beyond bounds
	}
	movable := From(noted).movable(noted, math.MaxUint64)
	first, err := noted.Level(movable, false)
	if err != nil || len(first) == 0 {
		return t, 0
	}
	next, err := Level(noted, Coordinator{}, math.MaxUint64, true)
	if err != nil {
		return t, 0
	}
	rest, err := t.With(next)
	if err != nil {
		return t, 0
	}
	moves := len(placement.Diff(t, rest).Moves)
	return rest, (moves + len(first) - 1) / len(first)
}
