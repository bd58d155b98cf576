package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	settled   = 20 * time.Second // for a side to agree after the last fault
	levelled  = 10*ttl + 90*time.Second
	overlap   = settled         // how long two nodes may own the same partition after faults
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

// report fails if any faults were found.
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

// checkDouble records how long two nodes on the same side own the same partition.
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
	// Seeds that start together may find each other first, and the members at the next attempt. Nodes that moved while
	// no seed ran, or were cut off, meet the others at the next attempt of a seed.
	begun := w.Elapsed() - max(a.began, b.began, w.firstSeed(side))
	if w.isCalm(a.ID, b.ID) && w.Elapsed()-w.calm.cut > settled && begun > settled {
		limit = overlapIn
	}
	if w.Elapsed()-since > limit {
		w.fail("double", "%s and %s both own partitions (%b) for %v", a.ID, b.ID, a.owns&b.owns, w.Elapsed()-since)
	}
}

// sideOf returns the side of a node, or nil if the network is not split into sides.
func (w *world) sideOf(p *process) []*process {
	i := slices.IndexFunc(w.sides, func(side []*process) bool { return slices.Contains(side, p) })
	if i < 0 {
		return nil
	}
	return w.sides[i]
}

// firstSeed returns the time since when a side has had a seed that has no fault of its own.
func (w *world) firstSeed(side []*process) time.Duration {
	first := w.Elapsed()
	for _, p := range side {
		if slices.Contains(w.seeds, p.Addr) {
			first = min(first, max(p.began, w.calm.node[p.ID]))
		}
	}
	return first
}

// findSides returns the groups of nodes that reach each other but no other nodes. It returns no groups if the network
// is not split like this, or if nodes have other faults.
func (w *world) findSides() (sides [][]*process) {
	for i := range w.s.hosts {
		id := nameOf(i)
		h, p := w.hosts[id], w.now[id]
		if p == nil {
			continue
		}
		side := slices.IndexFunc(sides, func(side []*process) bool { return w.Reaches(id, side[0].ID) })
		switch {
		case p.Stopped() && slices.Contains(w.seeds, p.Addr):
			return nil // joining nodes wait for it
		case p.Stopped():
		case h.lossy || !h.clockRight() || w.Loss() > calmLoss:
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

// separate reports whether all nodes of a side reach each other and no other nodes, and no duplicate can disturb them.
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

// hasSeed reports whether one of the nodes is a seed. Without a seed, nodes that were cut off from each other for a
// long time may have no way to meet again.
func (w *world) hasSeed(side []*process) bool {
	return slices.ContainsFunc(side, func(p *process) bool { return slices.Contains(w.seeds, p.Addr) })
}

// checkSide compares the nodes of a side with each other, and with what must follow from the schedule.
func (w *world) checkSide(side []*process) {
	w.checkSameCordons(side)
	ids := make([]string, len(side))
	for i, p := range side {
		ids[i] = p.ID
		w.checkRuns(p)
	}
	truth := w.truth(side)
	if len(side) < w.s.minMembers {
		w.checkIsolated(side, ids)
	} else {
		w.report("sides", fmt.Sprint(ids), w.Disagreements(ids...))
		w.checkTable(side, truth)
	}
	w.checkFlapping(side, truth)
}

// checkIsolated fails unless these nodes see each other and are isolated, because they are too few.
func (w *world) checkIsolated(side []*process, ids []string) {
	for _, p := range side {
		sees := slices.EqualFunc(p.Members(), ids, func(m lease.NodeID, id string) bool { return string(m) == id })
		if !sees || p.View().Phase != node.Isolated || p.owns != 0 {
			w.fail("sides", "%s sees %v of %v, which are too few, is %v and owns %b", p.ID, p.Members(), ids, p.View().Phase, p.owns)
		}
	}
}

// checkTable compares the table of a side with the table that it should have.
func (w *world) checkTable(side []*process, truth *placement.Table) {
	for _, p := range side {
		if p.View().Phase != node.Active {
			w.fail("sides", "%s is %v", p.ID, p.View().Phase)
		}
	}
	t := side[0].View().Table
	if !slices.EqualFunc(t.Nodes(), truth.Nodes(), placement.Node.Equal) || !w.s.levels() && t.Digest() != truth.Digest() {
		w.fail("sides", "the table is %v of %v, want %v of %v", t.Digest(), t.Nodes(), truth.Digest(), truth.Nodes())
	}
}

// checkLevel fails if a strategy that evens out the partitions over time has left them uneven.
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

// checkFlapping fails if nodes are flapping although less than half of the nodes may own partitions.
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

// truth returns the table that a side must have after everything that the schedule did to its nodes.
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
