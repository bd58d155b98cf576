package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// change is two tables, and how the second one came about.
type change struct {
	before, after *placement.Table
	was, is       string // their strategies

	planned bool             // it has not happened
	drift   int              // members that run another table than before
	first   *placement.Table // what takes effect at once
	passes  int              // after that; of least-partitions
}

// resharded is what --output json prints if no partition corresponds to another.
type resharded struct {
	Moves       []placement.Move  `json:"moves"`        // null: it is not known by partition
	ExpectedMin *int              `json:"expected_min"` // null likewise
	Before      placement.Balance `json:"before"`
	After       placement.Balance `json:"after"`
	KeysMoved   float64           `json:"keys_moved"` // share of all keys
}

// printChanges prints the difference of two tables.
func (s *session) printChanges(c change) error {
	d := placement.Diff(c.before, c.after)
	keys := placement.KeysMoved(c.before, c.after)
	switch {
	case s.json && d.Moves == nil:
		return s.printJSON(resharded{Before: d.Before, After: d.After, KeysMoved: keys})
	case s.json:
		return s.printJSON(d)
	}
	if err := s.say("%s", c.summary(d, keys)); err != nil {
		return err
	}
	if err := s.printNodes(c, d); err != nil {
		return err
	}
	if len(d.Moves) > 0 {
		if err := s.printFlows(d.Moves); err != nil {
			return err
		}
	}
	return s.say("%s", balances(d))
}

// summary says in a few lines what moves.
func (c change) summary(d placement.Changes, keys float64) string {
	var b strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	move := "moved"
	if c.planned {
		move = "would move"
	}
	if d.Moves == nil {
		line("from %d to %d partitions: %s of all keys %s", c.before.Partitions(), c.after.Partitions(), percent(keys), move)
		line("(exact for keys that hash evenly; no partition corresponds to one from before, so there are")
		line("no moves to list, and each node takes all that it owns anew)")
	} else {
		line("%d of %d partitions %s (%s); expected minimum %d", len(d.Moves), c.after.Partitions(), move, percent(keys), d.ExpectedMin)
	}
	if len(c.after.Nodes()) == 0 {
		line("no node is left that may own anything")
	}
	if c.passes > 0 {
		line("by %s: %d at once, then %d in %d passes", c.is,
			len(placement.Diff(c.before, c.first).Moves), len(placement.Diff(c.first, c.after).Moves), c.passes)
	}
	if c.was != c.is {
		line("strategy %s -> %s", printable(c.was), printable(c.is))
	}
	if c.planned && (c.was != c.is || d.Moves == nil) {
		line("partitions and strategy must be equal on all nodes: stop them all, and start them with the new ones")
	}
	if c.drift > 0 {
		line("the cluster is changing right now: ask again when roost members shows the same table everywhere")
	}
	return b.String() + "\n"
}

// printNodes prints what each node has before and after.
func (s *session) printNodes(c change, d placement.Changes) error {
	weight := make(map[lease.NodeID][2]uint32)
	for at, t := range []*placement.Table{c.before, c.after} {
		for _, n := range t.Nodes() {
			w := weight[n.ID]
			w[at] = n.Weight
			weight[n.ID] = w
		}
	}
	return s.table("NODE\tWEIGHT\tBEFORE\tAFTER\tCHANGE", func(row func(...any)) {
		for _, id := range slices.Sorted(maps.Keys(weight)) {
			had, has := d.Before.Counts[id], d.After.Counts[id]
			moved := fmt.Sprintf("%+d", has-had)
			if d.Moves == nil { // counts of different things
				moved = fmt.Sprintf("%+.1f%%", 100*(float64(has)/float64(c.after.Partitions())-float64(had)/float64(c.before.Partitions())))
			}
			row(id, fromTo(weight[id]), had, has, moved)
		}
	})
}

func fromTo(weight [2]uint32) string {
	if weight[0] == weight[1] {
		return fmt.Sprint(weight[0])
	}
	return fmt.Sprintf("%d -> %d", weight[0], weight[1])
}

// flow is how many partitions one node gives another.
type flow struct {
	from, to lease.NodeID
	n        int
}

// maxFlows is how many lines of who gives to whom are printed: a new strategy
// makes one for each pair of nodes.
const maxFlows = 20

func (s *session) printFlows(moves []placement.Move) error {
	count := make(map[flow]int)
	for _, m := range moves {
		count[flow{from: m.From, to: m.To}]++
	}
	flows := make([]flow, 0, len(count))
	for f, n := range count {
		f.n = n
		flows = append(flows, f)
	}
	slices.SortFunc(flows, func(a, b flow) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	shown := min(len(flows), maxFlows)
	var rest []string
	if others := len(flows) - shown; others > 0 {
		rest = []string{fmt.Sprintf("and %d smaller ones: --output json lists every move\n", others)}
	}
	_ = s.say("\n")
	return s.table("FROM\tTO\tPARTITIONS", func(row func(...any)) {
		for _, f := range flows[:shown] {
			row(orDash(string(f.from)), orDash(string(f.to)), f.n)
		}
	}, rest...)
}

func balances(d placement.Changes) string {
	text := fmt.Sprintf("\nmax/mean %.2f -> %.2f, variation %s -> %s\n",
		d.Before.MaxMean, d.After.MaxMean, percent(d.Before.CV), percent(d.After.CV))
	if advice := d.After.Advice(); advice != "" {
		text += advice + "\n"
	}
	return text
}
