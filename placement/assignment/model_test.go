package assignment

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/roost-cluster/roost/internal/explore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	modelPlaces     = 3
	modelPartitions = 3
)

// modelFault is a deliberate mistake in the protocol. The tests check that the model finds each mistake.
type modelFault string

const (
	highestWins modelFault = "the highest version wins as a whole"
	lastWins    modelFault = "the last to arrive wins"
	lowVersion  modelFault = "a merged assignment has the version of the arrival"
	youngWins   modelFault = "of two beginnings the later one counts"
	noQuorum    modelFault = "writes without a quorum"
	seenVoters  modelFault = "the voters are the members in view"
	successors  modelFault = "a successor takes the place of the deputy"
	hastyPasses modelFault = "a pass does not wait for the last one"
)

// modelWorld is a state of three nodes with real assignments. Any node may receive any assignment that a node ever had,
// at any time, any number of times, or never.
type modelWorld struct {
	*modelLaws
	at      [modelPlaces]modelNode
	sent    []*Assignment // assignments that some node had
	written []*Assignment
	lives   uint64
	left    modelLimits
	moved   bool // a pass has moved a partition, or an owner was declared gone
	broken  string
}

// modelLaws are the same in all states of a world.
type modelLaws struct {
	fault modelFault
	first *placement.Table // the table that all nodes have at first
}

// modelLimits are the maximum numbers of events of each kind.
type modelLimits struct {
	views, writes, passes, gone, crashes, starts int

	alone bool // one node started alone, and the others have just joined
}

type modelNode struct {
	since    uint64 // incarnation; 0 = no process
	view     uint8  // a bit for each node that it considers live
	current  *Assignment
	followed uint64 // version that all nodes had at some time
}

func modelID(i int) lease.NodeID { return lease.NodeID(rune('a' + i)) }

func newModelWorld(l modelLimits, f modelFault) *modelWorld {
	w := &modelWorld{modelLaws: &modelLaws{fault: f}, left: l}
	for i := range w.at {
		w.lives++
		w.at[i] = modelNode{since: w.lives, view: 1<<modelPlaces - 1}
	}
	if l.alone {
		w.at[0].view = 1
	}
	w.write(0, false)
	w.at[0].view = 1<<modelPlaces - 1
	for i := range w.at {
		if !l.alone {
			w.receive(i, w.at[0].current)
		}
	}
	w.first = w.table(0)
	return w
}

// table returns the table that a node computes.
func (w *modelWorld) table(i int) *placement.Table {
	n := w.at[i]
	in := placement.Input{Partitions: modelPartitions, Strategy: placement.LeastPartitions(1, 1), Memory: n.current}
	for k := range modelPlaces {
		if n.view>>k&1 == 1 {
			in.Nodes = append(in.Nodes, placement.Node{ID: modelID(k), Weight: 1})
		}
	}
	t, err := placement.Compute(in)
	if err != nil {
		panic(err)
	}
	return t
}

// coordinator returns node i as a writer, and reports whether it may write. It decides like the core of a node.
func (w *modelWorld) coordinator(i int) (Coordinator, bool) {
	n := w.at[i]
	c := Coordinator{ID: modelID(i), Since: n.since}
	first := i
	for k := range modelPlaces {
		if n.view>>k&1 == 1 {
			c.Voters = append(c.Voters, modelID(k))
			if w.at[k].since != 0 && w.at[k].since < w.at[first].since {
				first = k
			}
		}
	}
	may := n.current.Quorum(c.Voters) || w.fault == noQuorum
	c.Active = len(c.Voters)
	for _, id := range n.current.Voters() {
		if !slices.Contains(c.Voters, id) && w.fault != seenVoters {
			c.Voters = append(c.Voters, id)
		}
	}
	slices.Sort(c.Voters)
	if w.fault == successors {
		c.Gone = func(lease.NodeID) bool { return true }
	}
	return c, may && first == i
}

// write makes node i record its table if the node may write. With gone, the node also declares the absent owners gone.
func (w *modelWorld) write(i int, gone bool) {
	c, ok := w.coordinator(i)
	if !ok {
		return
	}
	if gone {
		c.Gone = func(id lease.NodeID) bool { return w.at[i].view>>(id[0]-'a')&1 == 0 }
		c.Voters = slices.DeleteFunc(c.Voters, c.Gone)
		w.moved = true
	}
	w.wrote(i, Record(w.table(i), c))
}

func (w *modelWorld) pass(i int) {
	n, t := &w.at[i], w.table(i)
	c, ok := w.coordinator(i)
	if !ok || n.current == nil || Record(t, c) != n.current {
		return
	}
	applied := uint64(math.MaxUint64)
	for k, o := range w.at {
		if n.view>>k&1 == 1 && o.since != 0 {
			if o.current.Digest() != n.current.Digest() {
				applied = 0
			}
		}
	}
	if applied != 0 {
		n.followed = n.current.Version()
	}
	before, allowed := n.current, n.followed
	if w.fault == hastyPasses {
		allowed = math.MaxUint64
	}
	next, err := Level(t, c, allowed, false)
	if err != nil {
		panic(err)
	}
	for p := range next.entries {
		if e := before.entries[p]; next.entries[p] != e && e.changed() > n.followed {
			w.breaks(appliedOnce)
		}
	}
	w.moved = w.moved || next != before
	w.wrote(i, next)
}

func (w *modelWorld) wrote(i int, a *Assignment) {
	if a != w.at[i].current {
		w.written = append(slices.Clip(w.written), a)
		w.has(i, a)
	}
}

// has gives an assignment to a node. From then on, any node may receive it.
func (w *modelWorld) has(i int, a *Assignment) {
	if before := w.at[i].current; before != nil && before.genesis == a.genesis && a.Version() < before.Version() {
		w.breaks(neverBack)
	}
	w.at[i].current = a
	if !slices.ContainsFunc(w.sent, func(s *Assignment) bool { return s.Digest() == a.Digest() }) {
		w.sent = append(slices.Clip(w.sent), a)
	}
}

// receive makes a node receive an assignment and merge it.
func (w *modelWorld) receive(i int, b *Assignment) {
	a := w.at[i].current
	var merged *Assignment
	switch {
	case a == nil || b == nil:
		merged = cmp.Or(a, b)
	case w.fault == lastWins:
		merged = b
	case w.fault == highestWins && a.genesis == b.genesis:
		if merged = a; b.version > a.version || (b.version == a.version && b.digest > a.digest) {
			merged = b
		}
	case w.fault == youngWins && a.genesis != b.genesis:
		if merged = a; a.genesis.compare(b.genesis) < 0 {
			merged = b
		}
	default:
		var err error
		if merged, err = a.Merge(b); err != nil {
			panic(err)
		}
		if w.fault == lowVersion && merged != a && a.genesis == b.genesis {
			low := *merged
			low.version = b.version
			merged = low.finish()
		}
	}
	if merged != nil && merged.Digest() != a.Digest() {
		w.has(i, merged)
	}
}

func (w *modelWorld) breaks(invariant string) {
	if w.broken == "" {
		w.broken = invariant
	}
}

func (w *modelWorld) key() string {
	var b []byte
	num := func(values ...uint64) {
		for _, v := range values {
			b = binary.AppendUvarint(b, v)
		}
	}
	for _, n := range w.at {
		num(n.since, uint64(n.view), uint64(n.current.Digest()), n.followed)
	}
	for _, all := range [][]*Assignment{w.sent, w.written} {
		var digests []uint64
		for _, a := range all {
			digests = append(digests, uint64(a.Digest()))
		}
		slices.Sort(digests)
		num(uint64(len(digests)))
		num(digests...)
	}
	return fmt.Sprint(string(b), w.left, w.moved, w.broken)
}

// These are the invariants.
const (
	oneSide     = "of two sides of one beginning, one may write"
	neverBack   = "the version of a node never goes back"
	appliedOnce = "a partition moves only once all nodes have applied its last move"
	nothingLost = "at rest no write of a writer is lost, but for later ones of the same partition"
	allAgree    = "at rest all nodes have one assignment and one table"
	returns     = "at rest an owner that is back has what it had"
)

// next visits all states that can follow this state.
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

// calm reports whether all nodes see what they would see after a long split. A node declares an owner gone only after
// the owner was away for ten TTLs.
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

// oneSide checks that at most one of two nodes may write, if they see no common nodes, and if their assignments have a
// common first version.
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

// atRest delivers all messages, in a different order at each node. It returns the invariant that is broken afterwards,
// or an empty string.
func (w *modelWorld) atRest() string {
	rest := *w
	var runs uint8
	var kept bool // a process has been running since the start
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
		m.Invariants = append(m.Invariants, explore.Invariant[*modelWorld]{
			Name:  name,
			Holds: func(w *modelWorld) bool { return w.atRest() != name },
		})
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
