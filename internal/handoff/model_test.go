package handoff

import (
	"flag"
	"slices"
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

// oneRun reports whether two nodes run a partition only if one of them had to start without an answer from the other,
// or has lost its lease.
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

// settles reports whether the world comes to rest with each node as the owner.
func (w *world) settles() bool {
	key := "" // all messages in transit may be lost
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

// settled returns the state that w reaches if nothing else changes. In this state, all nodes know each other, all
// tables name the same owner, all messages have arrived, and cancelled runs have returned.
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
	rest.cancelled = false // a fenced node may cancel its runs
	return &rest
}

const noNode = -1

// turn makes all nodes repeat their asks, end those runs for which ends returns true, and receive all messages. The
// deaf node does nothing. turn modifies w, so w must not be shared.
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

// runsOn reports whether all partitions run on the node at a place and nowhere else, or have returned there.
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
			r := setup{
				partitions: 1,
				known:      c.known,
				all:        c.fault == anyNumber || c.fault == anyLife,
				limits:     c.limits,
				fault:      c.fault,
			}.explore(c.start)
			if r.Broken != c.broken {
				t.Errorf("want a state that breaks %q", c.broken)
			}
			t.Log(r)
		})
	}
}

// next visits all states that can follow w.
func (w *world) next(visit func(step, *world)) {
	for _, p := range w.sent {
		at := placeOf(p.to) // a later process at this place receives the packet, too
		if n := w.nodes[at]; n.life != 0 && !n.lapsed {
			visit(step{packet: p}, w.change(at, func(w *world, n *node) { w.receive(n, p) }))
		}
	}
	for i, n := range w.nodes {
		if n.life == 0 {
			w.nextStart(i, visit)
			continue
		}
		if w.used.crashes < w.crashes && w.connectedWithout(i) {
			next := *w
			next.nodes[i] = &node{}
			next.used.crashes++
			visit(step{what: "crashes", place: i}, &next)
		}
		w.nextRuns(i, n, visit)
		if n.lapsed {
			w.nextResume(i, visit)
			continue
		}
		visit(step{what: "repeats its asks", place: i}, w.change(i, func(_ *world, n *node) { n.Tick() }))
		w.nextTable(i, n, visit)
		w.nextMembers(i, n, visit)
		if w.used.lapses < w.lapses && w.connectedWithout(i) {
			visit(step{what: "is paused for longer than its lease", place: i}, w.change(i, func(w *world, n *node) {
				w.used.lapses++
				n.lapsed = true
				for p := range n.runs {
					n.runs[p].excused = 0xff
				}
			}))
		}
	}
}

// nextRuns lets runs return and waits end.
func (w *world) nextRuns(i int, n *node, visit func(step, *world)) {
	for p, r := range n.runs {
		p := placement.Partition(p)
		ends := func(state run) func(*world, *node) {
			return func(w *world, n *node) {
				n.runs[p] = handler{state: state}
				if w.fault != early {
					n.Returned(p)
				}
			}
		}
		if n.lapsed {
			continue // paused
		}
		if r.state == stopping {
			visit(step{what: "has ended its run of ", place: i, p: p}, w.change(i, ends(idle)))
		}
		if r.state == running && w.used.returns < w.returns {
			visit(step{what: "returns by itself from ", place: i, p: p}, w.change(i, func(w *world, n *node) {
				w.used.returns++
				ends(idle)(w, n)
			}))
		}
		if w.used.overdue < w.overdue && slices.Contains(n.Waiting(), p) {
			visit(step{what: "no longer waits for ", place: i, p: p}, w.change(i, func(w *world, n *node) {
				w.used.overdue++
				n.overdue(p)
			}))
		}
	}
}

// overdue ends a wait, and records which answers were missing.
func (n *node) overdue(p placement.Partition) {
	for _, o := range n.others {
		if t := n.parts[p]; t.wanted && !t.answers[o] {
			n.missing[p] |= 1 << placeOf(o)
		}
	}
	n.Overdue(p)
}

// nextTable changes the owner of a partition in the table of a node.
func (w *world) nextTable(i int, n *node, visit func(step, *world)) {
	if w.used.tables >= w.tables {
		return
	}
	for p := range n.table {
		for owner := range int8(nodes) {
			if owner == n.table[p] {
				continue
			}
			visit(step{what: "table", place: i, p: placement.Partition(p), owner: owner}, w.change(i, func(w *world, n *node) {
				w.used.tables++
				former := n.table[p]
				n.table[p] = owner
				n.setTable()
				if w.fault == formerOwner {
					n.trust(placement.Partition(p), former)
				}
			}))
		}
	}
}

// trust makes n act as if all members except the former owner had answered that p is free.
func (n *node) trust(p placement.Partition, former int8) {
	for _, o := range n.others {
		if placeOf(o) != int(former) {
			n.ReceiveAnswer(o, Answer{To: n.life, Number: n.number, Free: []placement.Partition{p}})
		}
	}
}

// nextMembers lets a node learn of a live member, or notice that the lease of a member has ended. A lease lasts longer
// than the news of a member takes. So before a node notices the end of a lease, it has heard of all members that know
// the node.
func (w *world) nextMembers(i int, n *node, visit func(step, *world)) {
	for j, o := range w.nodes {
		if j != i && o.life != 0 && !o.lapsed && !n.knows(o.life) {
			visit(step{what: "learns of", place: i, other: o.life}, w.change(i, func(_ *world, n *node) { n.learn(o.life) }))
		}
	}
	for _, o := range w.nodes {
		if o.life != 0 && !o.lapsed && o.knows(n.life) && !n.knows(o.life) && w.fault != lateNews {
			return
		}
	}
	for _, life := range n.others {
		o := w.nodes[placeOf(life)]
		if o.life == life && !o.lapsed && w.fault != noLease {
			continue
		}
		visit(step{what: "takes for gone", place: i, other: life}, w.change(i, func(_ *world, n *node) {
			n.setMembers(without(n.others, life))
		}))
	}
}

// nextStart starts a process that joins through a seed.
func (w *world) nextStart(i int, visit func(step, *world)) {
	if w.used.starts >= w.starts {
		return
	}
	life := lifeOf(i, w.lives[i])
	started := *w
	started.used.starts++
	started.lives[i]++
	started.join(i, visit, func(_ *world, members []lease.Handle) *node {
		return w.process(life, append(slices.Clone(members), life))
	}, step{what: "starts, and joins by", place: i})
}

// nextResume lets a process run again after a pause. The process notices the pause and joins again.
func (w *world) nextResume(i int, visit func(step, *world)) {
	w.join(i, visit, func(next *world, members []lease.Handle) *node {
		n := next.nodes[i].clone()
		n.lapsed = false
		if w.fault != keepRights {
			n.Fence()
		}
		for p := range n.table {
			n.table[p] = -1
		}
		n.setMembers(members)
		for _, t := range n.parts {
			t.granted = w.fault == keepRights
		}
		return n
	}, step{what: "runs again, and joins by", place: i})
}

// join puts a process at its place. The process knows what a seed knows, and the seed learns of the process.
func (w *world) join(i int, visit func(step, *world), process func(*world, []lease.Handle) *node, s step) {
	for j, seed := range w.nodes {
		if j == i || seed.life == 0 || seed.lapsed {
			continue
		}
		next := *w
		others := slices.DeleteFunc(seed.members(), func(l lease.Handle) bool { return placeOf(l) == i })
		n := process(&next, others)
		next.nodes[i] = n
		next.carryOut(n)
		s.other = seed.life
		visit(s, next.change(j, func(_ *world, seed *node) { seed.learn(n.life) }))
	}
}

// learn adds a live member, which replaces its earlier incarnation.
func (n *node) learn(life lease.Handle) {
	others := slices.DeleteFunc(slices.Clone(n.others), func(l lease.Handle) bool { return placeOf(l) == placeOf(life) })
	n.setMembers(append(others, life))
}

// connectedWithout reports whether, of any two nodes other than node i, at least one knows the other.
func (w *world) connectedWithout(i int) bool {
	for j, n := range w.nodes {
		for k, o := range w.nodes[:j] {
			if j != i && k != i && n.life != 0 && o.life != 0 && !n.knows(o.life) && !o.knows(n.life) {
				return false
			}
		}
	}
	return true
}
