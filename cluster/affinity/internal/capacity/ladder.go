package capacity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// Ladder says which members may get a room, and in which order, by the demand's Prefer and
// Require and by Config.Selector. A nil ladder is for a room that goes anywhere.
type Ladder struct {
	prefer  []string
	require []string                // label=value
	rungs   []int                   // of each member of the snapshot, from 1 on; 0: it may not have the room
	lacks   map[lease.NodeID]string // why not
	unmet   error                   // no member may have the room
}

// NewLadder returns the ladder for a room, or nil if it needs none. selects, which may be nil,
// is Config.Selector, so no lock may be held.
func NewLadder(s *cluster.Snapshot, room string, n Need, selects func(*cluster.Member) bool) *Ladder {
	if n.Rules == "" && selects == nil {
		return nil
	}
	l := &Ladder{rungs: make([]int, len(s.Members)), lacks: make(map[lease.NodeID]string)}
	l.prefer, l.require = ParseRules(n.Rules)
	admitted := false
	for i, m := range s.Members {
		switch lack := l.lackOf(m); {
		case lack != "":
			l.lacks[m.ID] = "lacks " + lack
		case selects != nil && !selects(m):
			l.lacks[m.ID] = "the Selector rejects it"
		default:
			l.rungs[i], admitted = l.rungOf(m), true
		}
	}
	if !admitted {
		l.unmet = fmt.Errorf("%w: %q: %s", ErrRequire, room, l.fault(s))
	}
	return l
}

// lackOf returns the requirements that a member does not meet.
func (l *Ladder) lackOf(m *cluster.Member) string {
	var lacks []string
	for _, rule := range l.require {
		if label, value, _ := strings.Cut(rule, "="); !m.Has(label, value) {
			lacks = append(lacks, rule)
		}
	}
	return strings.Join(lacks, " and ")
}

func (l *Ladder) rungOf(m *cluster.Member) int {
	at := slices.IndexFunc(l.prefer, func(rung string) bool {
		label, value, _ := strings.Cut(rung, ":")
		return m.Has(label, value)
	})
	if at < 0 {
		at = len(l.prefer)
	}
	return at + 1
}

// fault says why no member may have the room.
func (l *Ladder) fault(s *cluster.Snapshot) string {
	for _, rule := range l.require {
		label, value, _ := strings.Cut(rule, "=")
		if !slices.ContainsFunc(s.Members, func(m *cluster.Member) bool { return m.Has(label, value) }) {
			return "no live node has " + rule
		}
	}
	if len(l.require) > 1 && !slices.ContainsFunc(s.Members, func(m *cluster.Member) bool { return l.lackOf(m) == "" }) {
		return "no live node has " + strings.Join(l.require, " and ")
	}
	return "the Selector admits no live node"
}

// rung returns the rung of the i-th member: 1 for all without a ladder.
func (l *Ladder) rung(i int) int {
	if l == nil {
		return 1
	}
	return l.rungs[i]
}

// name returns a rung for people; it is empty if there is one only.
func (l *Ladder) name(rung int) string {
	switch {
	case l == nil || len(l.prefer) == 0 || rung == 0:
		return ""
	case rung <= len(l.prefer):
		return fmt.Sprintf("rung %d (%s)", rung, l.prefer[rung-1])
	}
	return fmt.Sprintf("rung %d (anywhere)", rung)
}

// climb is choose by a ladder: at each rung the best node for the room's partition, if it has
// headroom below the soft ceiling, otherwise the least loaded node with headroom. If no rung has a
// node with headroom, it picks the least loaded node of all rungs below the hard ceiling.
func climb(s *cluster.Snapshot, q Request, limits Ceilings, reserved func(lease.NodeID) int64) (Choice, error) {
	best, err := q.Ladder.best(s, q)
	if err != nil {
		return Choice{}, err
	}
	rank := ranking(s, q.Partition)
	rungs, full := q.Ladder.sorted(s, q, limits, reserved)
	for _, members := range rungs {
		if len(members) == 0 {
			continue
		}
		first := slices.MinFunc(members, func(a, b Candidate) int {
			return cmp.Compare(rankOr(rank, a.Member.ID), rankOr(rank, b.Member.ID))
		})
		if first.open(q) {
			return q.Ladder.choice(s, q, first.Member, first.Rung, "the best node for its partition"), nil
		}
		free := slices.DeleteFunc(members, func(c Candidate) bool {
			return c.Member.Capacity == 0 || ReportsNoLoad(c.Member) || !c.open(q)
		})
		if len(free) > 0 {
			return q.Ladder.choice(s, q, leastLoaded(free, rank), free[0].Rung, "the least loaded node with headroom"), nil
		}
	}
	switch {
	case len(full) > 0:
		return q.Ladder.choice(s, q, leastLoaded(full, rank), 0, "every node that may have it is above its ceiling; this is the least loaded"), nil
	case limits.Hard > 0:
		return Choice{}, fmt.Errorf("%w for %v of %q, which cost %d units, among the nodes that meet %s", ErrNoCapacity, q.Need, q.Room, q.Cost, q.Ladder.text())
	}
	return q.Ladder.choice(s, q, best, 0, "the best node for its partition; none reports capacity and load"), nil
}

// sorted returns the members that may have the room by rungs, and those without headroom and below
// the hard ceiling.
func (l *Ladder) sorted(s *cluster.Snapshot, q Request, limits Ceilings, reserved func(lease.NodeID) int64) (rungs [][]Candidate, full []Candidate) {
	rungs = make([][]Candidate, len(l.prefer)+1)
	for i, m := range s.Members {
		rung := l.rung(i)
		if rung == 0 || !q.takes(m) {
			continue
		}
		c := Candidate{Member: m, Reserved: reserved(m.ID), Ceiling: limits.SoftOf(m), Rung: rung}
		rungs[rung-1] = append(rungs[rung-1], c)
		if !c.open(q) && !ReportsNoLoad(m) && c.belowHard(q, limits) {
			full = append(full, c)
		}
	}
	return rungs, full
}

// choice is a choice with the reason and the rung.
func (l *Ladder) choice(s *cluster.Snapshot, q Request, m *cluster.Member, rung int, why string) Choice {
	if name := l.name(rung); name != "" {
		why += " at " + name
	}
	return Choice{m, q.owns(s, m), why}
}

// text returns the requirements for people.
func (l *Ladder) text() string {
	if len(l.require) == 0 {
		return "the Selector"
	}
	return strings.Join(l.require, " and ")
}

// best returns the best node for the room's partition on the highest rung that has one, no
// matter its load.
func (l *Ladder) best(s *cluster.Snapshot, q Request) (best *cluster.Member, err error) {
	if l.unmet != nil {
		return nil, l.unmet
	}
	rank := ranking(s, q.Partition)
	at := 0
	for i, m := range s.Members {
		rung := l.rung(i)
		if rung == 0 || !q.takes(m) {
			continue
		}
		if best == nil || rung < at || (rung == at && rankOr(rank, m.ID) < rankOr(rank, best.ID)) {
			best, at = m, rung
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: %q: no node that takes rooms meets %s", ErrRequire, q.Room, l.text())
	}
	return best, nil
}
