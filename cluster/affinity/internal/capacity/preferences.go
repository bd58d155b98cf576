package capacity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// Preferences specifies which members can get a room, and in which order. Preferences combines the demand's
// Prefer and Require with Config.Selector. Preferences is nil for a room that can go to any member.
type Preferences struct {
	prefer      []string
	require     []string                // label=value
	preferences []int                   // for each member of the snapshot, from 1; 0: the member cannot have the room
	lacks       map[lease.NodeID]string // why a member cannot have the room
	unmet       error                   // why no member can have the room; nil if one can
}

// NewPreferences returns the preferences for a room, or nil if the room has no rules and there is no
// Selector. selects is Config.Selector and may be nil. The caller must not hold a lock, because
// NewPreferences calls selects.
func NewPreferences(s *cluster.Snapshot, room string, n Need, selects func(*cluster.Member) bool) *Preferences {
	if n.Rules == "" && selects == nil {
		return nil
	}
	l := &Preferences{preferences: make([]int, len(s.Members)), lacks: make(map[lease.NodeID]string)}
	l.prefer, l.require = ParseRules(n.Rules)
	admitted := false
	for i, m := range s.Members {
		switch lack := l.lackOf(m); {
		case lack != "":
			l.lacks[m.ID] = "lacks " + lack
		case selects != nil && !selects(m):
			l.lacks[m.ID] = "the Selector rejects it"
		default:
			l.preferences[i], admitted = l.preferenceOf(m), true
		}
	}
	if !admitted {
		l.unmet = fmt.Errorf("%w: %q: %s", ErrRequire, room, l.problem(s))
	}
	return l
}

// lackOf returns the requirements that a member does not meet.
func (l *Preferences) lackOf(m *cluster.Member) string {
	var lacks []string
	for _, rule := range l.require {
		if label, value, _ := strings.Cut(rule, "="); !m.Has(label, value) {
			lacks = append(lacks, rule)
		}
	}
	return strings.Join(lacks, " and ")
}

func (l *Preferences) preferenceOf(m *cluster.Member) int {
	at := slices.IndexFunc(l.prefer, func(preference string) bool {
		label, value, _ := strings.Cut(preference, ":")
		return m.Has(label, value)
	})
	if at < 0 {
		at = len(l.prefer)
	}
	return at + 1
}

// problem returns why no member can have the room.
func (l *Preferences) problem(s *cluster.Snapshot) string {
	for _, rule := range l.require {
		label, value, _ := strings.Cut(rule, "=")
		if !slices.ContainsFunc(s.Members, func(m *cluster.Member) bool { return m.Has(label, value) }) {
			return "no live node has " + rule
		}
	}
	if len(l.require) > 1 && !slices.ContainsFunc(s.Members, func(m *cluster.Member) bool { return l.lackOf(m) == "" }) {
		return "no live node has " + strings.Join(l.require, " and ")
	}
	return "the Selector accepts no live node"
}

// preference returns the preference of the i-th member. preference returns 1 for all members if l is nil.
func (l *Preferences) preference(i int) int {
	if l == nil {
		return 1
	}
	return l.preferences[i]
}

// name returns a readable name of a preference. The name is empty if the demand has no preferences.
func (l *Preferences) name(preference int) string {
	switch {
	case l == nil || len(l.prefer) == 0 || preference == 0:
		return ""
	case preference <= len(l.prefer):
		return fmt.Sprintf("preference %d (%s)", preference, l.prefer[preference-1])
	}
	return fmt.Sprintf("preference %d (anywhere)", preference)
}

// byPreference is the variant of pick for rooms with preferences. byPreference tries the preferences in order. For each
// preference, it picks the best node for the room's partition if that node has headroom below the soft ceiling, or else
// the least loaded node with headroom. If no preference has a node with headroom, byPreference picks the least loaded
// node of all preferences that is below the hard ceiling.
func byPreference(s *cluster.Snapshot, q Request, limits Ceilings, reserved func(lease.NodeID) int64) (Choice, error) {
	best, err := q.Preferences.best(s, q)
	if err != nil {
		return Choice{}, err
	}
	rank := ranking(s, q.Partition)
	preferences, full := q.Preferences.sorted(s, q, limits, reserved)
	for _, members := range preferences {
		if len(members) == 0 {
			continue
		}
		first := slices.MinFunc(members, func(a, b Candidate) int {
			return cmp.Compare(rankOr(rank, a.Member.ID), rankOr(rank, b.Member.ID))
		})
		if first.open(q) {
			return q.Preferences.choice(s, q, first.Member, first.Preference, "the best node for its partition"), nil
		}
		free := slices.DeleteFunc(members, func(c Candidate) bool {
			return c.Member.Capacity == 0 || ReportsNoLoad(c.Member) || !c.open(q)
		})
		if len(free) > 0 {
			return q.Preferences.choice(s, q, leastLoaded(free, rank), free[0].Preference, "the least loaded node with headroom"), nil
		}
	}
	switch {
	case len(full) > 0:
		best, why := leastLoaded(full, rank), "every allowed node is above its ceiling; this is the least loaded one"
		return Choice{best, q.owns(s, best), true, why}, nil
	case limits.Hard > 0:
		return Choice{}, fmt.Errorf("%w for %v in %q, which cost %d units, among the nodes that meet %s",
			ErrNoCapacity, q.Need, q.Room, q.Cost, q.Preferences.text())
	}
	return Choice{best, q.owns(s, best), true, "the best node for its partition; none reports capacity and load"}, nil
}

// sorted returns the members that can have the room, grouped by preference. full contains the members that
// have no headroom but are below the hard ceiling.
func (l *Preferences) sorted(
	s *cluster.Snapshot,
	q Request,
	limits Ceilings,
	reserved func(lease.NodeID) int64,
) (preferences [][]Candidate, full []Candidate) {
	preferences = make([][]Candidate, len(l.prefer)+1)
	for i, m := range s.Members {
		preference := l.preference(i)
		if preference == 0 || !q.takes(m) {
			continue
		}
		c := Candidate{Member: m, Reserved: reserved(m.ID), Ceiling: limits.SoftOf(m), Preference: preference}
		preferences[preference-1] = append(preferences[preference-1], c)
		if !c.open(q) && !ReportsNoLoad(m) && c.belowHard(q, limits) {
			full = append(full, c)
		}
	}
	return preferences, full
}

// choice returns a Choice whose reason includes the name of the preference.
func (l *Preferences) choice(s *cluster.Snapshot, q Request, m *cluster.Member, preference int, why string) Choice {
	if name := l.name(preference); name != "" {
		why += " at " + name
	}
	return Choice{Member: m, Owns: q.owns(s, m), Reason: why}
}

// text returns the requirements as readable text.
func (l *Preferences) text() string {
	if len(l.require) == 0 {
		return "the Selector"
	}
	return strings.Join(l.require, " and ")
}

// best returns the best node for the room's partition at the first preference that has a node. best ignores
// loads.
func (l *Preferences) best(s *cluster.Snapshot, q Request) (best *cluster.Member, err error) {
	if l.unmet != nil {
		return nil, l.unmet
	}
	rank := ranking(s, q.Partition)
	at := 0
	for i, m := range s.Members {
		preference := l.preference(i)
		if preference == 0 || !q.takes(m) {
			continue
		}
		if best == nil || preference < at || (preference == at && rankOr(rank, m.ID) < rankOr(rank, best.ID)) {
			best, at = m, preference
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: %q: no node that accepts rooms meets %s", ErrRequire, q.Room, l.text())
	}
	return best, nil
}
