package handoff

import (
	"flag"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/explore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

var long = flag.Bool("long", false, "explore the large worlds of the model of handoff, too; takes seconds")

// The invariants.
const (
	oneRun  = "one run of a partition on one side"
	noBreak = "a run ends only if the table names another node"
	settles = "once messages flow and nothing changes, the owner runs the partition"
)

// oneRun: two nodes run a partition only if one of them had to begin without an answer of
// the other, or has lost its lease.
func (w *world) oneRun() bool {
	for i, n := range w.nodes {
		for j, o := range w.nodes[:i] {
			for p := range min(len(n.runs), len(o.runs)) {
				a, b := n.runs[p], o.runs[p]
				if a.state != idle && b.state != idle && a.excused>>j&1 == 0 && b.excused>>i&1 == 0 {
					return false
				}
			}
		}
	}
	return true
}

// settles lets the world come to rest with each node as the owner.
func (w *world) settles() bool {
	key := "" // all messages under way may be lost
	for _, n := range w.nodes {
		key += n.key + "|"
	}
	for owner, n := range w.nodes {
		if n.life != 0 && !w.rested[key] && !w.settled(owner).runsOn(owner) {
			return false
		}
	}
	w.rested[key] = true
	return true
}

// settled returns what becomes of w if nothing changes any more: all know each other, all
// tables name one owner, messages arrive, and cancelled runs return.
func (w *world) settled(owner int) *world {
	rest := *w
	rest.sent = nil
	for i, n := range w.nodes {
		if n.life == 0 {
			continue
		}
		n = n.clone()
		rest.nodes[i] = n
		if n.lapsed {
			n.Fence()
			n.lapsed = false
		}
		for p := range n.table {
			n.table[p] = int8(owner)
		}
		var others []lease.Handle
		for _, o := range w.nodes {
			if o.life != 0 && o != w.nodes[i] {
				others = append(others, o.life)
			}
		}
		n.setMembers(others)
		rest.carryOut(n)
	}
	for range 8 {
		rest.turn(func(placement.Partition) bool { return true }, noNode)
	}
	rest.cancelled = false // by Fence
	return &rest
}

const noNode = -1

// turn lets the nodes of a world that is not shared do all that they can: repeat
// asks, end the runs that end by now, and receive all messages. A deaf node does nothing.
func (w *world) turn(ends func(placement.Partition) bool, deaf int) {
	for i, n := range w.nodes {
		if n.life == 0 || i == deaf {
			continue
		}
		if w.fault != askOnce {
			n.Tick()
		}
		for p, r := range n.runs {
			if p := placement.Partition(p); r.state == stopping && ends(p) {
				n.runs[p] = handler{}
				n.Returned(p)
			}
		}
		w.carryOut(n)
	}
	for len(w.sent) > 0 {
		p := w.sent[0]
		w.sent = w.sent[1:]
		if at := placeOf(p.to); at != deaf && w.nodes[at].life != 0 {
			w.receive(w.nodes[at], p)
			w.carryOut(w.nodes[at])
		}
	}
}

// runsOn reports whether all partitions run on one node alone, or have returned there.
func (w *world) runsOn(place int) bool {
	for i, n := range w.nodes {
		for p, r := range n.runs {
			t := n.parts[placement.Partition(p)]
			switch {
			case i != place && r.state != idle:
				return false
			case i == place && (t == nil || (t.run != running && t.run != finished)):
				return false
			}
		}
	}
	return true
}

// atRest returns a world in which node a runs everything.
func atRest(s *setup) *world { return newWorld(s).settled(0) }

func (s setup) explore(starts ...func(*setup) *world) explore.Result[step] {
	s.rested = make(map[string]bool)
	m := explore.Model[*world, step]{
		Key:  (*world).key,
		Next: (*world).next,
		Invariants: []explore.Invariant[*world]{
			{Name: oneRun, Holds: (*world).oneRun},
			{Name: noBreak, Holds: func(w *world) bool { return !w.cancelled }},
			{Name: settles, Holds: (*world).settles},
		},
		MaxStates: 1_000_000,
	}
	for _, start := range starts {
		m.Start = append(m.Start, start(&s))
	}
	return m.Run()
}

func TestHandoff(t *testing.T) {
	for _, c := range []struct {
		name  string
		long  bool
		setup setup
	}{
		{"tables 4", false, setup{partitions: 1, known: 3, limits: limits{tables: 4}}},
		{"all messages", false, setup{partitions: 1, known: 2, all: true, limits: limits{tables: 5}}},
		{"all messages of a restart", true, setup{partitions: 1, known: 2, all: true, limits: limits{tables: 3, crashes: 1, starts: 1}}},
		{"tables 5", true, setup{partitions: 1, known: 3, limits: limits{tables: 5}}},
		{"a join", false, setup{partitions: 1, known: 2, limits: limits{tables: 3, starts: 1}}},
		{"two joins", false, setup{partitions: 1, known: 1, limits: limits{tables: 3, starts: 2}}},
		{"a join, 4", true, setup{partitions: 1, known: 2, limits: limits{tables: 4, starts: 1}}},
		{"a crash", false, setup{partitions: 1, known: 3, limits: limits{tables: 2, crashes: 1}}},
		{"a restart", false, setup{partitions: 1, known: 3, limits: limits{tables: 2, crashes: 1, starts: 1}}},
		{"two crashes", false, setup{partitions: 1, known: 2, limits: limits{tables: 2, crashes: 2, starts: 1}}},
		{"a pause", false, setup{partitions: 1, known: 3, limits: limits{tables: 2, lapses: 1}}},
		{"two pauses of 2", false, setup{partitions: 1, known: 2, limits: limits{tables: 3, lapses: 2}}},
		{"the bound", false, setup{partitions: 1, known: 3, limits: limits{tables: 3, overdue: 2}}},
		{"early returns", false, setup{partitions: 1, known: 3, limits: limits{tables: 3, returns: 2}}},
		{"two partitions", false, setup{partitions: 2, known: 3, limits: limits{tables: 2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.long && !*long {
				t.Skip("takes seconds, in make models")
			}
			begin := time.Now()
			r := c.setup.explore(newWorld, atRest)
			if !r.Whole {
				t.Fatal(r)
			}
			t.Log(r, time.Since(begin))
		})
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		fault  fault
		broken string
		start  func(*setup) *world
		known  int
		limits limits
	}{
		{early, oneRun, atRest, 2, limits{tables: 2}},
		{yields, oneRun, newWorld, 2, limits{tables: 2}},
		{anyNumber, oneRun, newWorld, 2, limits{tables: 4}},
		{formerOwner, oneRun, atRest, 3, limits{tables: 4}},
		{anyView, oneRun, newWorld, 1, limits{tables: 2, starts: 2}},
		{anyLife, oneRun, newWorld, 2, limits{tables: 3, starts: 1, crashes: 1}},
		{noLease, oneRun, atRest, 2, limits{tables: 1}},
		{keepRights, oneRun, atRest, 2, limits{tables: 3, lapses: 1}},
		{lateNews, oneRun, newWorld, 2, limits{tables: 2, crashes: 2, starts: 2}},
		{askOnce, settles, atRest, 2, limits{tables: 1}},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			r := setup{partitions: 1, known: c.known, all: c.fault == anyNumber || c.fault == anyLife, limits: c.limits, fault: c.fault}.explore(c.start)
			if r.Broken != c.broken {
				t.Errorf("want a state that breaks %q", c.broken)
			}
			t.Log(r)
		})
	}
}
