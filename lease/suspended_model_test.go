package lease

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/explore"
)

// The model of a suspension: a few nodes run real sets. Some were suspended for an hour, or belong to a cluster
// that is an hour behind another one. What was ever sent, and recordings of before, may be received at any time, by any
// node, in any order, any number of times, or never. Only questions to members reach no others: whoever leads one to
// another cluster, within the seconds in which its number counts, may have a node fenced in vain.

const (
	sleeperOwns  = "no node that was suspended owns what it owned, by the present time"
	awakeFenced  = "no node is fenced that was not suspended"
	answerFences = "the answer of a member fences a node that was suspended"
	suspendedFor = time.Hour
)

// napFault makes the world break one part of the rule.
type napFault string

const (
	obedient   napFault = "a live member is followed without an answer"
	mute       napFault = "an answer does not say whether its sender holds the challenger for live"
	trusting   napFault = "an unknown sender is believed at once"
	anyProcess napFault = "a question to a member counts as any challenge"
)

// napper is a node of the model.
type napper struct {
	id     NodeID
	set    *Set
	now    time.Time
	slept  bool
	owns   bool // what it owned at the start
	fenced bool
}

type napMessage struct {
	*Message
	from int // -1 = recorded
	to   int // a question reaches the address that it is sent to; -1 = any node receives the message
	text string
}

// napWorld is a state. The sets of a state are part of other states, too.
type napWorld struct {
	fault     napFault
	nodes     []napper
	addrs     map[string]int // where the process of a node is reached
	sent      []napMessage
	questions int // that are left
	talks     int
	waits     int
}

// napSet returns the set of a member at a time, which knows others.
func napSet(now time.Time, cluster time.Duration, id NodeID, others ...NodeID) *Set {
	s := NewSet(now, *rec(id, 1), Params{TTL: 6 * time.Second, MaxSkew: maxClock, Settings: testParams.Settings})
	s.Establish()
	s.state, s.self.state = Active, Active
	s.time.base += stamps(cluster)
	s.self.at, s.self.rowAt = s.time.at(now), s.time.at(now)
	for _, other := range others {
		r := rec(other, 1)
		s.runs[r.Handle()] = now
		m := hello(now, r)
		m.Stamp, m.Heartbeats[0].At = s.time.at(now), s.time.at(now)
		s.Apply(now, m)
	}
	clear(s.runs)
	return s
}

// own returns node i with a set that is part of no other state.
func (w *napWorld) own(i int) *napper {
	w.nodes = slices.Clone(w.nodes)
	n := &w.nodes[i]
	n.set = n.set.copy()
	n.set.runs, n.set.bothWays = maps.Clone(n.set.runs), maps.Clone(n.set.bothWays)
	return n
}

// copy returns a set that shares nothing with s that the model changes.
func (s *Set) copy() *Set {
	c, of := *s, make(map[*entry]*entry)
	clone := func(e *entry) *entry {
		if e == nil || of[e] != nil {
			return of[e]
		}
		next, v := *e, *e.vitals
		next.vitals = &v
		if e.rare != nil {
			r := *e.rare
			next.rare, r.failureReports = &r, slices.Clone(r.failureReports)
		}
		of[e] = &next
		return &next
	}
	c.known = make(map[Handle]*entry)
	for h, e := range s.known {
		c.known[h] = clone(e)
	}
	c.self, c.duplicate.entry = clone(s.self), clone(s.duplicate.entry)
	lists := []*[]*entry{&c.nodes, &c.live, &c.reported}
	for _, list := range lists {
		*list = slices.Clone(*list)
		for i, e := range *list {
			(*list)[i] = clone(e)
		}
	}
	c.order, c.vitals = slices.Clone(s.order), make([]*vitals, len(s.live))
	for i, e := range c.live {
		c.vitals[i] = e.vitals
	}
	c.spread.candidates, c.rows.picked, c.begun, c.peers.reachable = nil, nil, nil, nil
	c.requested, c.ages.differs, c.ahead = make(map[Handle]time.Time), make(map[BucketID]difference), make(map[Handle]aheadClock)
	c.buckets.pieces = [maxBits + 1][]piece{}
	c.connect()
	return &c
}

func (w *napWorld) send(i int, m *Message) { w.sendTo(-1, i, m) }

func (w *napWorld) sendTo(to, i int, m *Message) {
	text := fmt.Sprintf("%s at %d to %d: challenge %x, echo %x, rows %v", w.nodes[i].id, m.Stamp-stampAt(epoch), to,
		m.Challenge, m.Echo, len(m.Heartbeats))
	if !slices.ContainsFunc(w.sent, func(o napMessage) bool { return o.text == text }) {
		w.sent = append(slices.Clone(w.sent), napMessage{m, i, to, text})
	}
}

// ask has a node ask a member.
func (w *napWorld) ask(i int) *Message {
	n := w.own(i)
	if w.fault == anyProcess {
		return n.set.Challenge(n.now, uint64(2*i+1))
	}
	return n.set.Question(n.now, uint64(2*i+1))
}

// hear has a node receive a message, and do what follows.
func (w *napWorld) hear(i int, m *Message) {
	n := w.own(i)
	if e := n.set.known[m.From]; w.fault == obedient && m.Challenge+m.Echo == 0 && e != nil && e.status == live &&
		m.Stamp > n.set.time.at(n.now) {
		n.set.advance(n.now, m.Stamp-n.set.time.at(n.now))
	}
	if w.fault == trusting {
		n.set.doubted = n.now.Add(-n.set.params.TTL)
	}
	e := n.set.Apply(n.now, m)
	if e.Suspended {
		n.owns, n.fenced = false, true
		n.set.ExpireOthers(n.now)
	}
	if n.set.EchoTo(m) != "" {
		w.send(i, w.echo(i, m))
	}
	if e.Challenge != "" {
		w.send(i, n.set.Challenge(n.now, uint64(2*i+1)))
	}
}

// echo returns the answer of a node to a challenge.
func (w *napWorld) echo(i int, m *Message) *Message {
	echo := w.nodes[i].set.Echo(w.nodes[i].now, m)
	if w.fault == mute {
		echo.Heartbeats = nil
	}
	return echo
}

// wait lets the time pass that members have to answer, and they do.
func (w *napWorld) wait() {
	for i := range w.nodes {
		for _, addr := range w.nodes[i].set.Peers(nil) {
			w.answered(i, addr)
		}
	}
	for i := range w.nodes {
		n := w.own(i)
		n.now = n.now.Add(n.set.params.TTL / 8)
		n.set.Heartbeat(n.now, NoLoad, 0)
	}
}

// answered has a node ask a member, and hear the answer.
func (w *napWorld) answered(i int, addr string) {
	to, ok := w.addrs[addr]
	if !ok {
		return
	}
	question := w.ask(i)
	w.hear(to, question)
	w.own(to)
	w.hear(i, w.echo(to, question))
}

func (w *napWorld) next(visit func(string, *napWorld)) {
	try := func(what string, do func(*napWorld)) {
		next := *w
		do(&next)
		visit(what, &next)
	}
	for i, n := range w.nodes {
		for _, addr := range n.set.Peers(nil) {
			if to, ok := w.addrs[addr]; ok && w.questions > 0 {
				try(fmt.Sprintf("%s asks %s", n.id, addr), func(w *napWorld) { w.questions--; w.sendTo(to, i, w.ask(i)) })
			}
		}
		if w.talks > 0 {
			try(string(n.id)+" sends what it knows", func(w *napWorld) { w.talks--; w.send(i, w.own(i).set.Sync(n.now)) })
		}
		for _, m := range w.sent {
			if m.from != i && (m.to < 0 || m.to == i) {
				try(fmt.Sprintf("%s receives %s", n.id, m.text), func(w *napWorld) { w.hear(i, m.Message) })
			}
		}
	}
	if w.waits > 0 {
		try("members answer", func(w *napWorld) { w.waits--; w.wait() })
	}
}

func (w *napWorld) key() string {
	var b strings.Builder
	for _, n := range w.nodes {
		s := n.set
		_, _ = fmt.Fprint(&b, n.owns, n.fenced, s.time.base, n.now.Sub(epoch), s.doubted.Sub(epoch), s.nonce, s.self.at, "|")
		for _, h := range slices.Sorted(maps.Keys(s.known)) {
			_, _ = fmt.Fprint(&b, h, s.known[h].status, s.known[h].at, s.known[h].grace)
		}
		_, _ = fmt.Fprint(&b, slices.Sorted(maps.Keys(s.runs)))
	}
	var texts []string
	for _, m := range w.sent {
		texts = append(texts, m.text)
	}
	slices.SortFunc(texts, cmp.Compare[string])
	return b.String() + strings.Join(texts, ";") + fmt.Sprint(w.questions, w.talks, w.waits)
}

// broken returns the invariant that does not hold.
func (w *napWorld) broken() string {
	present := stampAt(epoch.Add(suspendedFor))
	for i, n := range w.nodes {
		switch {
		case !n.slept && n.fenced:
			return awakeFenced
		case n.slept && n.owns && n.set.time.at(n.now) > present-stamps(n.set.params.TTL/8):
			return sleeperOwns
		case n.slept && n.owns && !w.fencedBy(i):
			return answerFences
		}
	}
	return ""
}

// fencedBy reports whether the answers of all members would fence a node.
func (w *napWorld) fencedBy(i int) bool {
	next := *w
	for _, addr := range w.nodes[i].set.Peers(nil) {
		next.answered(i, addr)
	}
	return !next.nodes[i].owns
}

// napWorlds returns what the nodes may be. By the clocks of the nodes that were suspended it is epoch.
func napWorlds() map[string]*napWorld {
	later := epoch.Add(suspendedFor)
	at := func(id NodeID, now time.Time, cluster time.Duration, slept bool, others ...NodeID) napper {
		return napper{id: id, set: napSet(now, cluster, id, others...), now: now, slept: slept, owns: slept}
	}
	world := func(nodes ...napper) *napWorld {
		w := &napWorld{nodes: nodes, addrs: make(map[string]int)}
		for i, n := range nodes {
			w.addrs[n.set.self.rec.Addr] = i
		}
		for _, r := range []NodeID{"m"} { // of before
			m := hello(epoch, rec(r, 1))
			w.sent = append(w.sent, napMessage{m, -1, -1, fmt.Sprintf("a recording of %s", r)})
		}
		return w
	}
	replaced := world(at("r", epoch, 0, true, "m"), at("n", later, 0, false))
	replaced.addrs[rec("m", 1).Addr] = 1 // a later process at the same address
	both := world(at("r", epoch, 0, true, "m", "q"), at("q", epoch, 0, true, "m", "r"), at("m", later, 0, false))
	both.sent = nil // too many states otherwise
	return map[string]*napWorld{
		"one of two":            world(at("r", epoch, 0, true, "m"), at("m", later, 0, false)),
		"two of three":          both,
		"a newcomer since then": world(at("r", epoch, 0, true, "m"), at("m", later, 0, false, "n"), at("n", later, 0, false, "m")),
		"all others replaced":   replaced,
		"two clusters meet":     world(at("a", epoch, 0, false, "q"), at("q", epoch, 0, false, "a"), at("m", epoch, suspendedFor, false)),
	}
}

func (w *napWorld) explore() explore.Result[string] {
	m := explore.Model[*napWorld, string]{
		Start: []*napWorld{w}, Key: (*napWorld).key, MaxStates: 20_000,
		Next: func(w *napWorld, visit func(string, *napWorld)) { w.next(visit) },
	}
	for _, name := range []string{sleeperOwns, awakeFenced, answerFences} {
		m.Invariants = append(m.Invariants, explore.Invariant[*napWorld]{
			Name: name, Holds: func(w *napWorld) bool { return w.broken() != name },
		})
	}
	return m.Run()
}

func TestSuspensionModel(t *testing.T) {
	for name, w := range napWorlds() {
		t.Run(name, func(t *testing.T) {
			switch {
			case len(w.nodes) == 2:
				w.questions, w.talks, w.waits = 1, 1, 1
			case len(w.sent) > 0:
				w.waits = 1
			default:
				w.questions = 2
			}
			begin := time.Now()
			if r := w.explore(); r.Broken != "" || (!r.Whole && len(w.nodes) == 2) { // three have too many states
				t.Error(r)
			} else {
				t.Log(r, time.Since(begin))
			}
		})
	}
}

func TestSuspensionModelFaults(t *testing.T) {
	for _, c := range []struct {
		fault         napFault
		world, broken string
		waits         int
	}{
		{obedient, "one of two", sleeperOwns, 0},
		{mute, "two clusters meet", awakeFenced, 2},
		{trusting, "a newcomer since then", sleeperOwns, 0},
		{anyProcess, "all others replaced", answerFences, 0},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			w := napWorlds()[c.world]
			w.fault, w.questions, w.talks, w.waits = c.fault, 1, 2, c.waits
			r := w.explore()
			if r.Broken != c.broken {
				t.Errorf("want a state that breaks %q", c.broken)
			}
			t.Log(r)
		})
	}
}
