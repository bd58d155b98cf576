package handoff

import (
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// next visits all that can happen in w.
func (w *world) next(visit func(step, *world)) {
	for _, p := range w.sent {
		at := placeOf(p.to) // also a later process there
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

// nextRuns: runs return, and waits end.
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

// overdue ends a wait, and notes which answers were missing.
func (n *node) overdue(p placement.Partition) {
	for _, o := range n.others {
		if t := n.parts[p]; t.wanted && !t.answers[o] {
			n.missing[p] |= 1 << placeOf(o)
		}
	}
	n.Overdue(p)
}

// nextTable: the table of a node changes to any other.
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

// trust counts all members but one as if they had answered for p.
func (n *node) trust(p placement.Partition, former int8) {
	for _, o := range n.others {
		if placeOf(o) != int(former) {
			n.ReceiveAnswer(o, Answer{To: n.life, Number: n.number, Free: []placement.Partition{p}})
		}
	}
}

// nextMembers: a node learns of a live member, or that the lease of a member has ended.
// A lease lasts longer than the news of a member takes: a node has heard of all that know
// it before.
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

// nextStart: a process starts, and joins by a seed.
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

// nextResume: a process runs again after a pause, notices it, and joins again.
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

// join puts a process into its place that knows what a seed knows; the seed knows the process.
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

// connectedWithout reports whether the other nodes hear of each other without node i.
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
