package assignment

import (
	"cmp"
	"math"
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Level returns the assignment after one pass of t's strategy, or after all passes if all is set. Level does
// not move partitions that changed after the version applied, because some nodes have not applied these
// changes yet. If the strategy moves nothing, Level returns t's own assignment. Level fails if the strategy
// breaks its contract. It costs O(partitions · log partitions), plus the cost of the strategy.
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

// move assigns the partition of e to another node. If from is the owner, move replaces the owner. Otherwise
// move replaces the deputy.
func (e *entry) move(from, to, by lease.NodeID, version uint64) {
	if e.owner == from {
		*e = entry{owner: to, version: version, from: from, by: by, cause: causeLevel}
		return
	}
	e.deputy, e.stand = to, version
}

// movable returns the partitions that have not changed since the version applied, sorted by their last
// change, oldest first.
func (a *Assignment) movable(t *placement.Table, applied uint64) []placement.Partition {
	all := make([]placement.Partition, 0, len(a.entries))
	for p := range a.entries {
		// Only a recorded holder can be the source of a move.
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

// Levelled returns the table after all passes over t, and the number of passes. Levelled assumes that no node
// joins or leaves and that every pass moves as many partitions as the first pass. If the strategy is not
// Stateful, Levelled returns t and 0.
func Levelled(t *placement.Table) (*placement.Table, int) {
	// A pass without a limit has the same result as many limited passes, because a pass never moves a
	// partition back that an earlier pass moved.
	noted, err := t.With(Record(t, Coordinator{})) // like the coordinator before the first pass
	if err != nil || From(noted) == nil {
		return t, 0 // an imported table can have weights beyond the limits
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
