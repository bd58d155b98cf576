package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// simParams exclude skew: a packet that waited for a frozen node looks like a clock
// that is far behind.
var simParams = Params{TTL: testParams.TTL, MaxSkew: time.Minute, Settings: testParams.Settings}

const (
	simTick   = 100 * ms
	simBeat   = 2 * time.Second
	simGossip = 2   // ticks between digests
	simBudget = 300 // bytes: not everything fits
)

// world runs Sets on a network that loses, duplicates, delays and reorders messages,
// with nodes that crash, restart, leave and freeze. Time is a counter; every node has a
// clock of its own.
type world struct {
	t        *rapid.T
	rng      *rand.Rand
	now      time.Time
	nodes    []*simNode
	flying   []packet
	emitted  map[string]emitted // by handle and seq
	loss     float64
	double   float64
	maxDelay time.Duration
	freezes  bool // for longer than the TTL, with packets waiting
	setsBack bool // between two runs of a node
}

// emitted is the content of a beat when it was sent.
type emitted struct {
	at    time.Time
	state State
}

type packet struct {
	at   time.Time
	to   int
	wire []byte
}

type simNode struct {
	index   int
	id      NodeID
	offset  time.Duration // of its clock
	set     *Set          // nil = down
	twin    *twin
	lives   int
	beatAt  time.Time
	frozen  time.Time // until
	leaving time.Time // when it will have left
}

func newWorld(t *rapid.T, seed uint64, size int) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), now: epoch,
		emitted: make(map[string]emitted),
	}
	for i := range size {
		w.nodes = append(w.nodes, &simNode{
			index: i, id: NodeID(fmt.Sprintf("n%d", i)),
			offset: time.Duration(w.rng.IntN(2000)-1000) * ms,
		})
	}
	for _, n := range w.nodes {
		w.start(n)
	}
	return w
}

func (w *world) clock(n *simNode) time.Time { return w.now.Add(n.offset) }

// start begins a run of n, which exchanges full syncs with one running node.
func (w *world) start(n *simNode) {
	n.lives++
	inc := uint64(n.lives) << 20
	if w.setsBack && w.rng.IntN(2) == 0 {
		inc = uint64(1000 - n.lives)
	}
	r := rec(n.id, inc)
	r.Capacity = int64(n.lives)
	n.set, n.leaving, n.frozen, n.beatAt = NewSet(w.clock(n), *r, simParams), time.Time{}, time.Time{}, w.now
	n.twin = newTwin()
	n.set.SetState(Active)
	w.beat(n)
	if peer := w.pick(func(p *simNode) bool { return p != n && w.runs(p) }); peer != nil {
		w.sync(n, peer)
	}
}

// sync is an exchange over a stream, as memberlist's push/pull is.
func (w *world) sync(a, b *simNode) {
	fromA, fromB := Encode(a.set.Sync(w.clock(a))), Encode(b.set.Sync(w.clock(b)))
	w.deliver(b, fromA)
	w.deliver(a, fromB)
}

// calm ends the faults of the network.
func (w *world) calm() {
	w.loss, w.double, w.maxDelay = 0, 0, ms
}

func (w *world) runs(n *simNode) bool { return n.set != nil && !w.now.Before(n.frozen) }

func (w *world) pick(fits func(*simNode) bool) *simNode {
	for _, i := range w.rng.Perm(len(w.nodes)) {
		if fits(w.nodes[i]) {
			return w.nodes[i]
		}
	}
	return nil
}

func emission(h Handle, seq uint32) string { return fmt.Sprintf("%x/%d", h, seq) }

func (w *world) beat(n *simNode) {
	n.set.Beat(w.clock(n), int64(n.index), uint32(n.index%2))
	w.emitted[emission(n.set.Handle(), n.set.self.seq)] = emitted{w.now, n.set.State()}
	n.beatAt = w.now.Add(simBeat + time.Duration(w.rng.IntN(200)-100)*ms)
}

func (w *world) send(to int, m *Message) {
	if m == nil {
		return
	}
	wire := Encode(m)
	for w.rng.Float64() >= w.loss {
		delay := time.Duration(w.rng.Int64N(int64(w.maxDelay) + 1))
		w.flying = append(w.flying, packet{w.now.Add(delay), to, wire})
		if w.rng.Float64() >= w.double {
			break
		}
	}
}

func (w *world) deliver(n *simNode, wire []byte) {
	if n.set == nil {
		return
	}
	m, err := Decode(wire)
	if err != nil {
		w.t.Fatalf("%v: %s cannot read a message: %v", w.now.Sub(epoch), n.id, err)
	}
	now := w.clock(n)
	before, was := n.set.View().Digest(), n.set.Handle()
	e := n.set.Apply(now, m)
	if after := n.set.View().Digest(); before != after && !e.Changed {
		w.t.Fatalf("%v: %s: an unreported change", w.now.Sub(epoch), n.id)
	}
	if e.Duplicate != nil {
		w.t.Fatalf("%v: %s/%d stops for %d", w.now.Sub(epoch), n.id, n.set.Self().Incarnation, e.Duplicate.Incarnation)
	}
	w.reborn(n, was)
	n.twin.hear(now, n.id, m)
	if addr, news := n.set.AnswerExpired(now, m.From, simBudget); news != nil {
		w.send(w.byAddr(addr).index, news)
	}
	sender := w.byAddr(n.set.AddrOf(m.From))
	if sender == nil {
		return
	}
	if e.Wants != nil {
		w.send(sender.index, n.set.Request(now, e.Wants))
	}
	for rest := m.Wants; len(rest) > 0; {
		var answer *Message
		answer, rest = n.set.Answer(now, rest, simBudget)
		w.send(sender.index, answer)
	}
}

// reborn records the first beat of an incarnation that a running node took.
func (w *world) reborn(n *simNode, was Handle) {
	if n.set.Handle() != was {
		w.emitted[emission(n.set.Handle(), 1)] = emitted{w.now, n.set.State()}
	}
}

func (w *world) byAddr(addr string) *simNode {
	for _, n := range w.nodes {
		if string(n.id)+":7946" == addr {
			return n
		}
	}
	return nil
}

// step advances by one tick.
func (w *world) step(tick int) {
	w.now = w.now.Add(simTick)
	due := w.flying
	w.flying = nil
	w.rng.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	for _, p := range due {
		if n := w.nodes[p.to]; p.at.After(w.now) || (n.set != nil && !w.runs(n)) {
			w.flying = append(w.flying, p)
		} else {
			w.deliver(n, p.wire)
		}
	}
	for _, n := range w.nodes {
		if !w.runs(n) {
			continue
		}
		if !n.frozen.IsZero() {
			n.set.ExpireOthers(w.clock(n))
			n.twin.suspend()
			n.frozen = time.Time{}
		}
		w.act(n, tick)
		w.check(n)
	}
}

// act is one tick of a node.
func (w *world) act(n *simNode, tick int) {
	now := w.clock(n)
	was := n.set.Handle()
	n.set.Expire(now)
	w.reborn(n, was)
	if !w.now.Before(n.beatAt) {
		w.beat(n)
	}
	if (tick+n.index)%simGossip == 0 {
		const recipients = 2
		m := n.set.Compose(now, simBudget, recipients)
		for _, to := range w.rng.Perm(len(w.nodes))[:recipients] {
			if to != n.index {
				w.send(to, m)
			}
		}
	}
	if (tick+7*n.index)%60 == 0 { // anti-entropy
		if p := w.pick(func(p *simNode) bool { return p != n && w.runs(p) }); p != nil {
			w.sync(n, p)
		}
	}
	if !n.leaving.IsZero() && w.now.After(n.leaving) {
		n.set = nil
	}
}

// trouble is a fault of one node.
func (w *world) trouble() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	switch {
	case n.set == nil:
		w.start(n)
	case !w.runs(n) || !n.leaving.IsZero():
	case w.rng.IntN(4) == 0:
		n.set.SetState(Left)
		w.beat(n)
		n.leaving = w.now.Add(time.Second)
	case w.rng.IntN(3) == 0:
		n.set.Update(func(r *Record) { r.Weight++ })
		w.beat(n)
	case w.rng.IntN(3) == 0:
		n.set.SetState(Settling + State(w.rng.IntN(3)))
		w.beat(n)
	case w.freezes && w.rng.IntN(2) == 0:
		n.frozen = w.now.Add(testParams.TTL + time.Duration(w.rng.IntN(3000))*ms)
	case w.rng.IntN(3) == 0:
		w.start(n) // killed and restarted at once
	default:
		n.set = nil // killed
	}
}

// check compares the view of n with its twin's and with the truth.
func (w *world) check(n *simNode) {
	if n.set == nil {
		return
	}
	at := w.now.Sub(epoch)
	var got []string
	for _, m := range n.set.View().Members {
		if m.ID == n.id {
			continue
		}
		got = append(got, fmt.Sprintf("%s/%d v%d %v seq %d", m.ID, m.Incarnation, m.Version, m.State, m.Seq))
		sent, ok := w.emitted[emission(m.Handle, m.Seq)]
		if !ok {
			w.t.Fatalf("%v: %s has beat %d of %s, which was never sent", at, n.id, m.Seq, m.ID)
		}
		if m.State != sent.state {
			w.t.Fatalf("%v: %s has %s as %v, which sent %v in beat %d", at, n.id, m.ID, m.State, sent.state, m.Seq)
		}
		truth, age := w.now.Sub(sent.at), w.clock(n).Sub(m.Renewed)
		if age > truth+ms {
			w.t.Fatalf("%v: %s has a beat of %s as %v old that is %v old", at, n.id, m.ID, age, truth)
		}
		// A message does not state its transit time: at most a tick per hop.
		if under := 15 * simTick; !w.freezes && age < truth-under {
			w.t.Fatalf("%v: %s has a beat of %s as %v old that is %v old", at, n.id, m.ID, age, truth)
		}
	}
	if want := n.twin.live(w.clock(n)); !slices.Equal(got, want) {
		w.t.Fatalf("%v: %s has %v, its twin %v", at, n.id, got, want)
	}
}
