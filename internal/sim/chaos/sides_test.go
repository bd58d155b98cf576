package chaos

import (
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	settled   = 20 * time.Second // after the last fault, for a side to agree
	levelled  = 10*ttl + 90*time.Second
	overlap   = settled         // for which two nodes may own the same, after trouble
	overlapIn = 3 * time.Second // the same in a calm network
)

// check checks the invariants that hold at all times.
func (w *world) check() {
	w.noteTrouble()
	for _, p := range w.running {
		w.identify(p)
	}
	for _, p := range slices.Clone(w.running) {
		w.checkProcess(p)
	}
	for _, p := range w.running {
		w.checkAwake(p)
	}
	w.checkOverlaps()
	w.checkDuplicates()
	for i, a := range w.running {
		for _, b := range w.running[i+1:] {
			w.checkDouble(a, b)
		}
	}
	if !w.checked && w.Elapsed()-w.changed >= w.s.settles() {
		w.checked = true
		for _, side := range w.sides {
			w.checkSide(side)
		}
	}
}

// report fails if there are faults.
func (w *world) report(invariant, who string, faults []string) {
	if len(faults) > 0 {
		w.fail(invariant, "%s: %s", who, strings.Join(faults, "; "))
	}
}

// settles returns how long a side takes to agree after the last fault.
func (s schedule) settles() time.Duration {
	d := settled
	if placement.Remembers(s.strategy) {
		d = levelled
	}
	if s.handoff && slices.Contains(s.kinds, "handlers hang") {
		d += hang
	}
	return d
}

type pair struct{ a, b *process }

// checkDouble notes for how long two nodes of one side own the same.
func (w *world) checkDouble(a, b *process) {
	key := pair{a, b}
	side := w.sideOf(a)
	if a.owns&b.owns == 0 || !slices.Contains(side, b) || !a.Live() || !b.Live() {
		delete(w.double, key)
		return
	}
	since, ok := w.double[key]
	if !ok {
		w.double[key] = w.Elapsed()
		return
	}
	limit := overlap
	// Seeds that start together may find each other first, and the members at the next try.
	// Nodes that moved while no seed ran, or were cut off, meet the others at the next try of a seed.
	begun := w.Elapsed() - max(a.began, b.began, w.firstSeed(side))
	if w.isCalm(a.ID, b.ID) && w.Elapsed()-w.calm.cut > settled && begun > settled {
		limit = overlapIn
	}
	if w.Elapsed()-since > limit {
		w.fail("double", "%s and %s both own partitions (%b) for %v", a.ID, b.ID, a.owns&b.owns, w.Elapsed()-since)
	}
}

// sideOf returns the side of a node; nil = the network is not cut into sides.
func (w *world) sideOf(p *process) []*process {
	i := slices.IndexFunc(w.sides, func(side []*process) bool { return slices.Contains(side, p) })
	if i < 0 {
		return nil
	}
	return w.sides[i]
}

// firstSeed returns since when a side has had a seed without a fault of its own.
func (w *world) firstSeed(side []*process) time.Duration {
	first := w.Elapsed()
	for _, p := range side {
		if slices.Contains(w.seeds, p.Addr) {
			first = min(first, max(p.began, w.calm.node[p.ID]))
		}
	}
	return first
}

// findSides returns the groups of nodes that reach each other and no others; none if the
// network is not cut like that, or if nodes are in trouble besides.
func (w *world) findSides() (sides [][]*process) {
	for i := range w.s.hosts {
		id := nameOf(i)
		h, p := w.hosts[id], w.now[id]
		if p == nil {
			continue
		}
		side := slices.IndexFunc(sides, func(side []*process) bool { return w.Reaches(id, side[0].ID) })
		switch {
		case h.paused && slices.Contains(w.seeds, p.Addr):
			return nil // nodes that join wait for it
		case h.paused:
		case h.lossy || !h.clockRight() || w.loss > calmLoss:
			return nil
		case side < 0:
			sides = append(sides, []*process{p})
		default:
			sides[side] = append(sides[side], p)
		}
	}
	if !w.separate(sides) {
		return nil
	}
	return slices.DeleteFunc(sides, func(side []*process) bool { return !w.hasSeed(side) })
}

// separate reports whether all nodes of a side reach each other, and no others. No duplicate matters.
func (w *world) separate(sides [][]*process) bool {
	if w.duplicatesMatter() {
		return false
	}
	for _, a := range slices.Concat(sides...) {
		for _, side := range sides {
			for _, b := range side {
				if a != b && slices.Contains(side, a) != w.Reaches(a.ID, b.ID) {
					return false
				}
			}
		}
	}
	return true
}

// hasSeed reports whether one of the nodes is a seed. Without any, nodes that were cut off
// from each other for long may have no way to meet again.
func (w *world) hasSeed(side []*process) bool {
	return slices.ContainsFunc(side, func(p *process) bool { return slices.Contains(w.seeds, p.Addr) })
}

// checkSide compares the nodes of one side with each other, and with what the schedule says
// of them.
func (w *world) checkSide(side []*process) {
	var ids []lease.NodeID
	for _, p := range side {
		ids = append(ids, lease.NodeID(p.ID))
	}
	w.checkSameCordons(side)
	truth, few := w.truth(side), len(side) < w.s.minMembers
	all := uint64(0)
	for _, p := range side {
		switch {
		case !slices.Equal(p.Members(), ids):
			w.fail("sides", "%s sees %v, want %v", p.ID, p.Members(), ids)
		case few && (p.View().Phase != node.Isolated || p.owns != 0):
			w.fail("sides", "%s sees too few members, is %v and owns %b", p.ID, p.View().Phase, p.owns)
		case all&p.owns != 0:
			w.fail("sides", "%s owns %b, and others own some of that", p.ID, p.owns)
		case !few:
			w.checkTable(p, truth, side[0].View().Table)
		}
		all |= p.owns
		w.checkRuns(p)
	}
	w.checkFlapping(side, truth)
	if want := len(truth.Nodes()) > 0 && !few; want != (all == 1<<partitions-1) {
		w.fail("sides", "%v own %b", ids, all)
	}
}

// checkTable compares the table of a node with the table that it should have, and with that of
// another node.
func (w *world) checkTable(p *process, truth, other *placement.Table) {
	t := p.View().Table
	switch {
	case p.View().Phase != node.Active:
		w.fail("sides", "%s is %v", p.ID, p.View().Phase)
	case !slices.EqualFunc(t.Nodes(), truth.Nodes(), placement.Node.Equal), !w.s.levels() && t.Digest() != truth.Digest():
		w.fail("sides", "%s has a table of %v, want one of %v", p.ID, t.Nodes(), truth.Nodes())
	case t.Digest() != other.Digest():
		w.fail("sides", "%s has another table than the first node", p.ID)
	case !slices.Equal(p.Owned(), t.Owned(lease.NodeID(p.ID))):
		w.fail("sides", "%s owns %v, by its table %v", p.ID, p.Owned(), t.Owned(lease.NodeID(p.ID)))
	}
}

// checkLevel fails if a strategy that moves partitions to spread them has left some of them.
func (w *world) checkLevel(t *placement.Table) {
	if !w.s.levels() || len(t.Nodes()) == 0 {
		return
	}
	var surplus []float64 // of each node over its fair share
	total := 0.0
	for _, n := range t.Nodes() {
		total += float64(n.Weight)
	}
	for _, n := range t.Nodes() {
		surplus = append(surplus, float64(len(t.Owned(n.ID)))-partitions*float64(n.Weight)/total)
	}
	if slices.Max(surplus)-slices.Min(surplus) > 1+1e-6 {
		w.fail("rest", "the partitions are spread unevenly: %v", t.Balance().Counts)
	}
}

// checkFlapping fails if nodes are flapping although too few others may own partitions.
func (w *world) checkFlapping(side []*process, truth *placement.Table) {
	if flapping, weighted := w.flapping(side); flapping > 0 && 2*len(truth.Nodes()) < weighted {
		w.fail("sides", "%d of %d nodes are flapping, and %d may own partitions", flapping, weighted, len(truth.Nodes()))
	}
}

// flapping counts the nodes of a side that are flapping, and the nodes with a weight.
func (w *world) flapping(side []*process) (flapping, weighted int) {
	for _, p := range side {
		if p.flapping() {
			flapping++
		}
		if w.hosts[p.ID].weight > 0 {
			weighted++
		}
	}
	return flapping, weighted
}

// flapping reports whether a node says that it is flapping.
func (p *process) flapping() bool {
	for _, m := range p.View().Live.Members {
		if string(m.ID) == p.ID {
			return m.FlappingUntil > 0
		}
	}
	return false
}

// truth returns the table of a side by what the schedule did to its nodes.
func (w *world) truth(side []*process) *placement.Table {
	in := placement.Input{Partitions: partitions, Strategy: w.s.strategy}
	for _, p := range side {
		if h := w.hosts[p.ID]; !h.draining && !h.unhealthy && !p.flapping() && h.weight > 0 {
			in.Nodes = append(in.Nodes, placement.Node{ID: lease.NodeID(p.ID), Weight: h.weight})
		}
	}
	in.Nodes = withoutCordoned(in.Nodes, side[0].View().Live.Cordoned)
	t, err := placement.Compute(in)
	if err != nil {
		panic(err)
	}
	return t
}
