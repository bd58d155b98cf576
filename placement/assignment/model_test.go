package assignment

import (
	"fmt"
	"slices"
	"testing"

	"github.com/roost-cluster/roost/internal/explore"
	"github.com/roost-cluster/roost/placement"
)

// The invariants.
const (
	oneSide     = "of two sides of one beginning, one may write"
	neverBack   = "the version of a node never goes back"
	appliedOnce = "a partition moves only once all nodes have applied its last move"
	nothingLost = "at rest no write of a writer is lost, but for later ones of the same partition"
	allAgree    = "at rest all nodes have one assignment and one table"
	returns     = "at rest an owner that is back has what it had"
)

// next visits what can happen.
func (w *modelWorld) next(visit func(string, *modelWorld)) {
	do := func(what string, f func(*modelWorld)) {
		n := *w
		f(&n)
		visit(what, &n)
	}
	for i, n := range w.at {
		id := modelID(i)
		if n.since == 0 {
			if w.left.starts > 0 {
				do(fmt.Sprintf("%s starts again", id), func(w *modelWorld) {
					w.left.starts--
					w.lives++
					w.at[i] = modelNode{since: w.lives, view: 1 << i}
				})
			}
			continue
		}
		if w.left.crashes > 0 {
			do(fmt.Sprintf("%s ends", id), func(w *modelWorld) { w.left.crashes--; w.at[i] = modelNode{} })
		}
		for k := range modelPlaces {
			if k != i && w.left.views > 0 && (w.at[k].since != 0 || n.view>>k&1 == 1) {
				do(fmt.Sprintf("%s loses or finds %s", id, modelID(k)), func(w *modelWorld) { w.left.views--; w.at[i].view ^= 1 << k })
			}
		}
		if _, may := w.coordinator(i); may {
			if w.left.writes > 0 {
				do(fmt.Sprintf("%s records its table", id), func(w *modelWorld) { w.left.writes--; w.write(i, false) })
			}
			if w.left.gone > 0 && w.calm(i) {
				do(fmt.Sprintf("%s takes the absent for gone", id), func(w *modelWorld) { w.left.gone--; w.write(i, true) })
			}
			if w.left.passes > 0 {
				do(fmt.Sprintf("%s makes a pass", id), func(w *modelWorld) { w.left.passes--; w.pass(i) })
			}
		}
		for _, a := range w.sent {
			if a.Digest() != n.current.Digest() {
				do(fmt.Sprintf("%s receives version %d, %s", id, a.Version(), a.Digest()), func(w *modelWorld) { w.receive(i, a) })
			}
		}
	}
}

// calm reports whether the views of all nodes are those of a split that has lasted: an owner
// is gone only when it has been away for ten TTLs.
func (w *modelWorld) calm(i int) bool {
	view := w.at[i].view
	for k, n := range w.at {
		switch sees := view>>k&1 == 1; {
		case n.since == 0 && sees, n.since != 0 && sees && n.view != view, n.since != 0 && !sees && n.view&view != 0:
			return false
		}
	}
	return true
}

// oneSide: the sides see nothing of each other, and their assignments began as one.
func (w *modelWorld) oneSide() bool {
	for i, a := range w.at {
		for _, b := range w.at[:i] {
			if a.current == nil || b.current == nil || a.view&b.view != 0 || a.current.genesis != b.current.genesis {
				continue
			}
			_, one := w.coordinator(i)
			_, other := w.coordinator(slices.Index(w.at[:], b))
			if one && other {
				return false
			}
		}
	}
	return true
}

// atRest returns the invariant that does not hold once all messages have arrived, in an
// order of its own at each node.
func (w *modelWorld) atRest() string {
	rest := *w
	var runs uint8
	var kept bool // a process has run since the start
	for i, n := range rest.at {
		if n.since != 0 {
			runs |= 1 << i
			kept = kept || n.since <= modelPlaces
		}
	}
	for range 3 {
		for i := range rest.at {
			if rest.at[i].since == 0 {
				continue
			}
			rest.at[i].view = runs
			all := slices.Clone(rest.sent)
			if i%2 == 1 {
				slices.Reverse(all)
			}
			for _, a := range all {
				rest.receive(i, a)
			}
		}
	}
	return rest.wrong(runs, kept)
}

func (w *modelWorld) wrong(runs uint8, kept bool) string {
	var table *placement.Table
	var final *Assignment
	for i, n := range w.at {
		if n.since == 0 {
			continue
		}
		t := w.table(i)
		if table != nil && (t.Digest() != table.Digest() || n.current.Digest() != final.Digest()) {
			return allAgree
		}
		table, final = t, n.current
	}
	for _, a := range w.written {
		if final == nil || a.genesis != final.genesis {
			continue
		}
		for p := range a.entries {
			if final.entries[p].compare(&a.entries[p]) < 0 {
				return nothingLost
			}
		}
	}
	if kept && runs == 1<<modelPlaces-1 && !w.moved && table.Digest() != w.first.Digest() {
		return returns
	}
	return ""
}

func (l modelLimits) explore(f modelFault, states int) explore.Result[string] {
	m := explore.Model[*modelWorld, string]{
		Start: []*modelWorld{newModelWorld(l, f)}, Key: (*modelWorld).key, MaxStates: states,
		Next: func(w *modelWorld, visit func(string, *modelWorld)) { w.next(visit) },
		Invariants: []explore.Invariant[*modelWorld]{
			{Name: neverBack, Holds: func(w *modelWorld) bool { return w.broken != neverBack }},
			{Name: appliedOnce, Holds: func(w *modelWorld) bool { return w.broken != appliedOnce }},
			{Name: oneSide, Holds: (*modelWorld).oneSide},
		},
	}
	for _, name := range []string{allAgree, nothingLost, returns} {
		m.Invariants = append(m.Invariants, explore.Invariant[*modelWorld]{Name: name, Holds: func(w *modelWorld) bool { return w.atRest() != name }})
	}
	return m.Run()
}

func TestModel(t *testing.T) {
	for _, c := range []struct {
		name   string
		long   bool
		limits modelLimits
	}{
		{"views that differ", false, modelLimits{views: 3, writes: 2}},
		{"passes", false, modelLimits{views: 2, writes: 1, passes: 2}},
		{"nodes that join", false, modelLimits{writes: 2, passes: 2, alone: true}},
		{"a restart", true, modelLimits{views: 2, writes: 2, crashes: 1, starts: 1}},
		{"owners that are gone", true, modelLimits{views: 2, writes: 1, gone: 1, crashes: 1, starts: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.long && testing.Short() {
				t.Skip("takes a second")
			}
			r := c.limits.explore("", 100_000)
			if t.Log(r); r.Broken != "" || !r.Whole {
				t.Error("want all states, and none that breaks an invariant")
			}
		})
	}
}

func TestModelFaults(t *testing.T) {
	for _, c := range []struct {
		fault  modelFault
		broken string
		limits modelLimits
	}{
		{highestWins, nothingLost, modelLimits{views: 3, writes: 2}},
		{lastWins, allAgree, modelLimits{views: 1, writes: 1}},
		{lowVersion, neverBack, modelLimits{views: 3, writes: 3}},
		{youngWins, returns, modelLimits{views: 1, writes: 1, crashes: 1, starts: 1}},
		{noQuorum, oneSide, modelLimits{views: 3}},
		{seenVoters, oneSide, modelLimits{views: 4, writes: 2}},
		{successors, returns, modelLimits{views: 1, writes: 1}},
		{hastyPasses, appliedOnce, modelLimits{writes: 1, passes: 2, alone: true}},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			r := c.limits.explore(c.fault, 100_000)
			if t.Log(r); r.Broken != c.broken {
				t.Errorf("want a state that breaks %q", c.broken)
			}
		})
	}
}
