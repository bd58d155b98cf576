package placement

import "math"

// Settled returns the table in which the passes of [LeastPartitions] over t come
// to rest if no node comes or goes, and how many passes that takes. Of other
// strategies it is t, and none. It costs what Level costs without a limit.
func (t *Table) Settled() (*Table, int) {
	if t == nil || !Remembers(t.strategy) {
		return t, 0
	}
	// One pass without a limit ends where many with one do: none moves back what
	// an earlier one moved.
	l := placing(t.strategy).(least)
	all := *t
	all.assigned = t.Record(Coordinator{}) // as the first pass finds it
	rest, err := Compute(Input{
		Nodes: t.nodes, Partitions: t.partitions, Strategy: t.strategy, Assigned: all.Level(Coordinator{}, math.MaxUint64, true),
	})
	if err != nil { // weights beyond bounds, of a table that was read
		return t, 0
	}
	moves := len(Diff(t, rest).Moves)
	if l.maxMoves == 0 {
		return rest, min(1, moves)
	}
	return rest, (moves + l.maxMoves - 1) / l.maxMoves
}
