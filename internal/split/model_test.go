package split

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/internal/explore"
)

// The invariants.
const (
	oneRecord = "of two sides that lost sight of each other, one owns by its records"
	oneSide   = "once all have noticed, one side owns"
)

// oneRecord reports whether at most one side owns partitions. It only considers nodes that decide by their own record
// and have noticed who is gone. It ignores newcomers, because they follow other nodes, which takes a message.
func (w *world) oneRecord() bool {
	if !w.met() {
		return true
	}
	for i := range w.size {
		for j := range i {
			if !w.sameSide(i, j) && w.owns(i) && w.owns(j) && w.at[i].why != Elders && w.at[j].why != Elders && w.blind(i) && w.blind(j) {
				return false
			}
		}
	}
	return true
}

// oneSide reports whether at most one side owns partitions after the world has come to rest.
func (w *world) oneSide() bool {
	if !w.met() {
		return true
	}
	rest := w.clone()
	for range 4 {
		for i := range w.size {
			for k := range w.size {
				if rest.loses(i, k) {
					rest.lose(i, k)
				}
			}
		}
		rest.exchange()
	}
	var owns [2]bool
	for i := range w.size {
		side := w.side >> i & 1
		owns[side] = owns[side] || rest.owns(i)
	}
	return !owns[0] || !owns[1]
}

// met reports whether two processes on different sides have heard of each other. If there are no such processes, the
// sides are two clusters.
func (w *world) met() bool {
	for i := range w.size {
		for j := range i {
			if !w.sameSide(i, j) && w.knows(i, j) && w.knows(j, i) {
				return true
			}
		}
	}
	return false
}

// knows reports whether i has heard of the process that takes part at place j.
func (w *world) knows(i, j int) bool {
	return w.takesPart(j) && w.at[i].known[j].life == w.at[j].known[j].life
}

func (w *world) owns(i int) bool { return w.at[i].runs && w.at[i].known[i].owns }

// loses reports whether i considers k live although it no longer hears k.
func (w *world) loses(i, k int) bool {
	return i != k && w.takesPart(i) && w.at[i].live[k] && (!w.knows(i, k) || !w.sameSide(i, k))
}

// seeds reports whether j may join through i. If the id of j already belongs to another process, i must take part in
// placement, because a side that consists only of newcomers has no protection.
func (w *world) seeds(i, j int) bool {
	return w.takesPart(i) && w.sameSide(i, j) && w.idOf(i) != w.idOf(j) && (!w.sameID || j < w.size-2 || w.at[i].placed)
}

// takesPart reports whether a process runs and has not sent a leave message.
func (w *world) takesPart(i int) bool { return w.at[i].runs && !w.at[i].known[i].left }

// blind reports whether i has noticed who is gone.
func (w *world) blind(i int) bool {
	for k := range w.size {
		if w.loses(i, k) {
			return false
		}
	}
	return true
}

// next visits all states that can follow w.
func next(w *world, visit func(string, *world)) {
	do := func(what string, f func(*world)) {
		after := w.clone()
		f(after)
		visit(what, after)
	}
	for i := range w.size {
		for j := range w.size {
			if w.reaches(i, j) {
				do(fmt.Sprintf("%s sends to %s", w.idOf(i), w.idOf(j)), func(w *world) { w.send(i, j) })
			}
			if w.loses(i, j) {
				do(fmt.Sprintf("%s loses %s", w.idOf(i), w.idOf(j)), func(w *world) { w.lose(i, j) })
			}
			if w.loses(i, j) && (w.resets || !w.at[j].runs) {
				do(fmt.Sprintf("%s is refused by %s", w.idOf(i), w.idOf(j)), func(w *world) { w.refuse(i, j) })
			}
			if !w.at[i].runs && w.starts > 0 && w.seeds(j, i) {
				do(fmt.Sprintf("%s starts and joins by %s", w.idOf(i), w.idOf(j)), func(w *world) { w.starts--; w.start(i, j) })
			}
		}
		if w.takesPart(i) && w.stops > 0 {
			do(fmt.Sprintf("%s leaves", w.idOf(i)), func(w *world) { w.stops--; w.leave(i) })
		}
		if w.at[i].runs && w.crashes > 0 {
			do(fmt.Sprintf("%s crashes", w.idOf(i)), func(w *world) { w.crashes--; w.at[i].runs = false })
		}
	}
	for side := uint8(0); side < 1<<(w.size-1) && w.cuts > 0; side++ { // the last place stays on side 0
		if side != w.side {
			do(fmt.Sprintf("the network is cut at %05b", side), func(w *world) { w.cuts--; w.side = side })
		}
	}
}

func modelOf(w *world, states int) explore.Model[*world, string] {
	return explore.Model[*world, string]{
		Start: []*world{w}, Key: (*world).key, Next: next, MaxStates: states,
		Invariants: []explore.Invariant[*world]{{Name: oneRecord, Holds: (*world).oneRecord}, {Name: oneSide, Holds: (*world).oneSide}},
	}
}

// The rule holds in all states of small worlds.
func TestModel(t *testing.T) {
	for _, small := range []budget{
		{running: 3, size: 3, cuts: 1, stops: 1},
		{running: 2, size: 2, cuts: 2, starts: 1, crashes: 1},
		{running: 1, size: 3, cuts: 1, starts: 1},
		{running: 3, size: 3, cuts: 1, resets: true},
		{running: 2, size: 2, cuts: 1, crashes: 1, resets: true},
	} {
		r := modelOf(small.world(none), 100_000).Run()
		t.Logf("%+v: %v", small, r)
		if r.Broken != "" || !r.Whole {
			t.Errorf("%+v: %v", small, r)
		}
	}
}

// budget specifies how large a world is, and what may happen in it.
type budget struct {
	running, size, cuts, starts, stops, crashes int

	resets, sameID bool
}

func (b budget) world(f fault) *world {
	w := newWorld(b.running, laws{size: b.size, resets: b.resets, sameID: b.sameID, fault: f})
	w.cuts, w.starts, w.stops, w.crashes = b.cuts, b.starts, b.stops, b.crashes
	return w
}

// walk takes random steps through a world. If it reaches a state that breaks an invariant, it returns this invariant
// and the steps.
func walk(seed uint64, w *world, steps int) (broken string, trace []string) {
	rng := rand.New(rand.NewPCG(seed, 0))
	for range steps {
		type step struct {
			what string
			to   *world
		}
		var all []step
		next(w, func(what string, to *world) { all = append(all, step{what, to}) })
		if len(all) == 0 {
			return "", nil
		}
		s := all[rng.IntN(len(all))]
		w, trace = s.to, append(trace, s.what)
		if !w.oneRecord() {
			return oneRecord, trace
		}
		if !w.oneSide() {
			return oneSide, trace
		}
	}
	return "", nil
}

// The rule holds on random walks through larger worlds, in which nodes join while the network is cut.
func TestWalks(t *testing.T) {
	for seed := range uint64(200) {
		b := budget{running: 1 + int(seed%4), size: 4 + int(seed%2), cuts: 3, starts: 3, stops: 1, crashes: 1}
		// A second, different cut could connect nodes that believed the refused connections of the first cut with nodes
		// that did not.
		if seed/4%2 == 0 {
			b.cuts, b.resets = 1, true
		}
		b.sameID = seed/8%2 == 0 && b.running < b.size
		if broken, trace := walk(seed, b.world(none), 60); broken != "" {
			t.Fatalf("seed %d breaks %q:\n%s", seed, broken, strings.Join(trace, "\n"))
		}
	}
}

// The model rejects each broken variant of the rule, and accepts the correct rule from the same start.
func TestFaults(t *testing.T) {
	joined := func(f fault) *world { // c is cut off, d and e have joined the others
		w := budget{running: 3, size: 5}.world(f)
		w.side = 0b00100
		w.lose(0, 2)
		w.lose(1, 2)
		w.start(3, 0)
		w.start(4, 0)
		for range 4 {
			w.exchange()
		}
		return w
	}
	// A new process of d starts, and then the others hear c again. Neither c nor the old process of d has heard of the
	// new process.
	returned := func(f fault) *world {
		w := budget{running: 4, size: 5, sameID: true}.world(f)
		w.side = 0b01100
		for _, i := range []int{0, 1} {
			w.lose(i, 2)
			w.lose(i, 3)
		}
		w.start(4, 0)
		for range 4 {
			w.exchange()
		}
		w.side = 0b01000
		w.send(2, 0)
		for range 4 {
			for _, way := range [][2]int{{0, 1}, {1, 0}, {0, 4}, {4, 0}} {
				w.send(way[0], way[1])
			}
		}
		return w
	}
	for _, broken := range []struct {
		fault fault
		cuts  int
		world func(fault) *world
	}{
		{eager, 1, budget{running: 3, size: 5, starts: 2}.world},
		{hasty, 1, budget{running: 3, size: 3}.world},
		{alone, 1, budget{running: 3, size: 4, starts: 1}.world},
		{unheard, 1, joined},
		{deaf, 1, returned},
		{gullible, 1, budget{running: 3, size: 3, resets: true}.world},
		{impatient, 1, budget{running: 5, size: 5, resets: true}.world},
	} {
		for _, f := range []fault{broken.fault, none} {
			w := broken.world(f)
			w.cuts = broken.cuts
			r := modelOf(w, 3000).Run()
			t.Logf("%q: %v", f, r)
			if (r.Broken == "") != (f == none) {
				t.Errorf("%q: %v", f, r)
			}
		}
	}
}
