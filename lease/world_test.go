package lease_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

// simParams allow any skew, because the nodes' wall clocks are wrong by years.
var simParams = lease.Params{TTL: testParams.TTL, MaxSkew: 200 * 365 * 24 * time.Hour, Settings: testParams.Settings}

const (
	simTick      = 100 * ms
	simHeartbeat = 2 * time.Second
	simGossip    = 2   // ticks between rounds of gossip
	simBudget    = 300 // bytes, so that not everything fits
)

// world runs Sets on a network that loses, duplicates, delays, reorders and replays messages, with nodes that crash,
// restart, leave and freeze. Time is a counter, and every node has its own clock.
type world struct {
	t           *rapid.T
	rng         *rand.Rand
	now         time.Time
	tick        time.Duration
	nodes       []*simNode
	flying      []packet
	recorded    [][]byte // all messages ever sent
	emitted     map[lease.Handle][]emission
	loss        float64
	double      float64
	maxDelay    time.Duration
	freezes     bool // for longer than the TTL, with packets waiting
	setsBack    bool // between two runs of a node
	wrongClocks bool // of newcomers
	hasty       bool // newcomers with clocks ahead of cluster time establish their own time
	replays     bool
}

// emission is a heartbeat at the time when it was sent.
type emission struct {
	at    time.Time
	state lease.State
	ahead lease.Stamp // how far the sender's cluster time is ahead of the true time
}

type packet struct {
	at   time.Time
	to   int
	wire []byte
}

type simNode struct {
	index       int
	id          lease.NodeID
	offset      time.Duration // of its clock
	set         *lease.Set    // nil = down
	reference   *reference
	lives       int
	heartbeatAt time.Time
	frozen      time.Time               // until
	leaving     time.Time               // when the node stops, after its leave message
	waiting     map[lease.Handle][]byte // the first message of each sender that was challenged
}

func drawWorld(t *rapid.T) *world {
	percent := func(most int, what string) float64 { return float64(rapid.IntRange(0, most).Draw(t, what)) / 100 }
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), now: epoch, tick: simTick,
		emitted: make(map[lease.Handle][]emission),
	}
	for i := range rapid.IntRange(2, 6).Draw(t, "nodes") {
		w.nodes = append(w.nodes, &simNode{index: i, id: lease.NodeID(fmt.Sprintf("n%d", i))})
	}
	for _, n := range w.nodes {
		w.start(n)
	}
	w.loss, w.double = percent(50, "loss %"), percent(30, "doubled %")
	w.maxDelay = time.Duration(rapid.IntRange(1, 100).Draw(t, "delay ms")) * ms
	mode := rapid.IntRange(0, 2).Draw(t, "mode")
	w.freezes, w.setsBack = mode == 1, mode == 2
	w.wrongClocks, w.hasty = rapid.Bool().Draw(t, "wrong clocks"), rapid.Bool().Draw(t, "hasty")
	w.replays = rapid.Bool().Draw(t, "replays")
	return w
}

func (w *world) clock(n *simNode) time.Time { return w.now.Add(n.offset) }

// drawOffset returns how wrong the clock of a newcomer is.
func (w *world) drawOffset() time.Duration {
	small := time.Duration(w.rng.IntN(2000)-1000) * ms
	if !w.wrongClocks {
		return small
	}
	return small + []time.Duration{
		0, 0, -3 * time.Second, -time.Minute, 10 * time.Minute, time.UnixMilli(0).Sub(w.now), 4 * 365 * 24 * time.Hour,
	}[w.rng.IntN(7)]
}

// start starts a new process of n, which exchanges full syncs with one running node.
func (w *world) start(n *simNode) {
	n.lives++
	inc := uint64(n.lives) << 20
	if w.setsBack && w.rng.IntN(2) == 0 {
		inc = uint64(1000 - n.lives)
	}
	r := rec(n.id, inc)
	r.Capacity = int64(n.lives)
	peer := w.pick(func(p *simNode) bool { return w.isMember(p) && p != n })
	if n.offset = 0; peer != nil {
		n.offset = w.drawOffset() // cluster time starts from a correct clock
	}
	n.set, n.leaving, n.frozen = lease.NewSet(w.clock(n), *r, simParams), time.Time{}, time.Time{}
	n.waiting = make(map[lease.Handle][]byte)
	n.reference = newReference(n.set)
	n.set.SetState(lease.Active)
	w.heartbeat(n)
	if peer == nil || (w.hasty && n.offset > 0) {
		n.set.Establish()
	}
	if peer != nil {
		w.sync(n, peer)
	}
}

// sync exchanges full syncs over a stream, like a push/pull of memberlist.
func (w *world) sync(a, b *simNode) {
	fromA, fromB := lease.Encode(a.set.Sync(w.clock(a))), lease.Encode(b.set.Sync(w.clock(b)))
	w.recorded = append(w.recorded, fromA, fromB)
	w.deliver(b, fromA)
	w.deliver(a, fromB)
}

// calm ends the faults of the network.
func (w *world) calm() {
	w.loss, w.double, w.maxDelay, w.replays = 0, 0, ms, false
}

func (w *world) runs(n *simNode) bool { return n.set != nil && !w.now.Before(n.frozen) }

// isMember reports whether other nodes accept the cluster time of n. At least one member keeps running, because cluster
// time could go back if it started again from a wrong clock.
func (w *world) isMember(n *simNode) bool {
	return w.runs(n) && n.leaving.IsZero() && n.set.Established()
}

func (w *world) pick(fits func(*simNode) bool) *simNode {
	for _, i := range w.rng.Perm(len(w.nodes)) {
		if fits(w.nodes[i]) {
			return w.nodes[i]
		}
	}
	return nil
}

func (w *world) heartbeat(n *simNode) {
	now := w.clock(n)
	at := n.set.Stamp(now)
	n.set.Heartbeat(now, int64(n.index), uint32(n.index%2))
	if by := n.set.Stamp(now) - at; by != 0 && n.reference.isLarge(now, by) { // two heartbeats within a millisecond
		n.reference.step(by)
	}
	w.emit(n)
	n.heartbeatAt = w.now.Add(simHeartbeat + time.Duration(w.rng.IntN(200)-100)*ms)
}

// emit records that n sends a heartbeat.
func (w *world) emit(n *simNode) {
	w.emitted[n.set.Handle()] = append(w.emitted[n.set.Handle()], emission{w.now, n.set.State(), w.ahead(n)})
}

// reborn records the first heartbeat of a new incarnation, if a running node took one.
func (w *world) reborn(n *simNode, was lease.Handle) {
	if n.set.Handle() == was {
		return
	}
	if w.emit(n); !w.setsBack {
		w.t.Fatalf("%v: %s took another incarnation", w.now.Sub(epoch), n.id)
	}
}

func (w *world) send(addr string, m *lease.Message) {
	if m == nil {
		return
	}
	wire, to := lease.Encode(m), slices.IndexFunc(w.nodes, func(n *simNode) bool { return string(n.id)+":7946" == addr })
	w.recorded = append(w.recorded, wire)
	for w.rng.Float64() >= w.loss {
		w.fly(to, wire, w.maxDelay)
		if w.rng.Float64() >= w.double {
			break
		}
	}
}

func (w *world) fly(to int, wire []byte, maxDelay time.Duration) {
	delay := time.Duration(w.rng.Int64N(int64(maxDelay) + 1))
	w.flying = append(w.flying, packet{w.now.Add(delay), to, wire})
}

// replay sends some or all recorded messages again, to one node or to all nodes.
func (w *world) replay() {
	from := w.rng.IntN(len(w.recorded))
	wires := w.recorded[from:min(len(w.recorded), from+1+w.rng.IntN(200))]
	to := w.rng.IntN(2 * len(w.nodes))
	for _, wire := range wires {
		if to < len(w.nodes) {
			w.fly(to, wire, time.Second)
		} else {
			w.fly(w.rng.IntN(len(w.nodes)), wire, time.Second)
		}
	}
}

// deliver makes a node apply a message and reply to it.
func (w *world) deliver(n *simNode, wire []byte) {
	if n.set == nil {
		return
	}
	m, err := lease.Decode(wire)
	if err != nil {
		w.t.Fatalf("%v: %s cannot read a message: %v", w.now.Sub(epoch), n.id, err)
	}
	now := w.clock(n)
	w.expire(n)
	before, was, at := n.set.View().Digest(), n.set.Handle(), n.set.Stamp(now)
	e := n.set.Apply(now, m)
	if after := n.set.View().Digest(); before != after && !e.Changed {
		w.t.Fatalf("%v: %s: an unreported change", w.now.Sub(epoch), n.id)
	}
	if e.Duplicate != nil {
		w.t.Fatalf("%v: %s/%d stops for %d", w.now.Sub(epoch), n.id, n.set.Self().Incarnation, e.Duplicate.Incarnation)
	}
	w.reborn(n, was)
	if by := n.set.Stamp(now) - at; by != 0 && n.reference.isLarge(now, by) {
		n.reference.step(by)
	}
	if e.Counts {
		n.reference.hear(now, m, wire)
	}
	w.reply(n, m, &e)
	waiting := n.waiting[m.From]
	if e.Challenge != "" && waiting == nil {
		n.waiting[m.From] = wire
	}
	if e.Answered && waiting != nil {
		delete(n.waiting, m.From)
		w.deliver(n, waiting)
	}
}

// reply sends the replies to a message.
func (w *world) reply(n *simNode, m *lease.Message, e *lease.Effect) {
	now := w.clock(n)
	for _, r := range n.set.Replies(now, m, *e, simBudget) {
		w.send(r.To, r.Message)
	}
	if e.Challenge != "" {
		w.send(e.Challenge, n.set.Challenge(now, w.rng.Uint64()|1))
	}
}

func (w *world) expire(n *simNode) {
	was := n.set.Handle()
	n.set.Expire(w.clock(n))
	n.reference.expire(w.clock(n))
	w.reborn(n, was)
}

// step advances by one tick.
func (w *world) step(tick int) {
	w.now = w.now.Add(w.tick)
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
			w.forget(n)
			n.frozen = time.Time{}
		}
		w.act(n, tick)
		w.check(n)
	}
}

// act makes a node do its work of one tick.
func (w *world) act(n *simNode, tick int) {
	w.expire(n)
	if !w.now.Before(n.heartbeatAt) {
		w.heartbeat(n)
	}
	if (tick+n.index)%simGossip == 0 {
		const recipients = 2
		for _, m := range n.set.Compose(w.clock(n), simBudget, recipients) {
			for _, to := range w.rng.Perm(len(w.nodes))[:recipients] {
				if to != n.index {
					w.send(string(w.nodes[to].id)+":7946", m)
				}
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

func (w *world) leave(n *simNode) {
	n.set.SetState(lease.Left)
	w.heartbeat(n)
	n.leaving = w.now.Add(time.Second)
}

// forget makes n forget which nodes are live, like a node that was paused or whose messages reach no other node.
func (w *world) forget(n *simNode) {
	n.set.ExpireOthers(w.clock(n))
	n.reference.forget()
}

// trouble causes a fault of one node, or a replay.
func (w *world) trouble() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	switch {
	case w.replays && w.rng.IntN(2) == 0:
		w.replay()
	case n.set == nil:
		w.start(n)
	case !w.runs(n) || !n.leaving.IsZero():
	case w.pick(func(p *simNode) bool { return w.isMember(p) && p != n }) == nil:
	case w.rng.IntN(4) == 0:
		w.leave(n)
	case w.rng.IntN(3) == 0:
		n.set.Update(func(r *lease.Record) { r.Weight++ })
		w.heartbeat(n)
	case w.rng.IntN(3) == 0:
		n.set.SetState(lease.Settling + lease.State(w.rng.IntN(3)))
		w.heartbeat(n)
	case w.freezes && w.rng.IntN(4) == 0:
		w.forget(n)
	case w.freezes && w.rng.IntN(2) == 0:
		n.frozen = w.now.Add(testParams.TTL + time.Duration(w.rng.IntN(3000))*ms)
	case w.rng.IntN(3) == 0:
		w.start(n) // killed and restarted immediately
	default:
		n.set = nil // killed
	}
}

// slack is the maximum difference between the cluster times of two members.
func (w *world) slack() time.Duration { return 300*ms + 2*w.tick }

// ahead returns how far the cluster time of n is ahead of the true time.
func (w *world) ahead(n *simNode) lease.Stamp { return n.set.Stamp(w.clock(n)) - stampAt(w.now) }

// knowsTime reports whether the cluster time of n is close to that of all running members, and to the sender's cluster
// time when it sent the heartbeat. A newcomer whose clock is behind may mistake recorded messages for current ones
// until a member answers it. Members ignore the newcomer until then. If the answer takes long, or is sent again later,
// the newcomer's cluster time stays behind by that delay. It stays so permanently if all nodes with the right time stop
// before the newcomer receives their messages.
func (w *world) knowsTime(n *simNode, heartbeat emission) bool {
	ahead := heartbeat.ahead
	for _, n := range w.nodes {
		if w.runs(n) && n.set.Established() {
			ahead = max(ahead, w.ahead(n))
		}
	}
	return n.set.Established() && millis(ahead-w.ahead(n)) <= w.slack()
}

// check compares the view of n with the view of its reference model and with the truth.
func (w *world) check(n *simNode) {
	if n.set == nil {
		return
	}
	wantLiveInOrder(w.t, n.set)
	at := w.now.Sub(epoch)
	if ahead := w.ahead(n); !w.hasty && n.set.Established() && millis(ahead) > simTick {
		w.t.Fatalf("%v: the clock of a newcomer has moved the cluster time of %s by %v", at, n.id, millis(ahead))
	}
	var got []string
	clock, sync := w.clock(n), make(map[lease.Handle]lease.Stamp)
	for _, b := range n.set.Sync(clock).Heartbeats {
		sync[b.Handle] = b.Renewed
	}
	for _, m := range n.set.View().Members {
		if m.ID == n.id {
			continue
		}
		latest := sync[m.Handle]
		got = append(got, line(m.Record, m.State, latest, n.set.Stamp(m.Renewed)))
		sent := w.emitted[m.Handle]
		if !slices.ContainsFunc(sent, func(e emission) bool { return e.state == m.State }) {
			w.t.Fatalf("%v: %s has %s as %v, which it never was", at, n.id, m.ID, m.State)
		}
		last := sent[len(sent)-1]
		truth, age := w.now.Sub(last.at), -n.set.Until(clock, latest)
		if truth > 2*simParams.TTL { // a step of cluster time prolongs a lease
			w.t.Fatalf("%v: %s has %s/%d, which sent its latest heartbeat %v ago", at, n.id, m.ID, m.Incarnation, truth)
		}
		if age < truth-w.slack() && w.knowsTime(n, last) {
			w.t.Fatalf("%v: %s has the latest heartbeat of %s/%d as %v old; it is %v old", at, n.id, m.ID, m.Incarnation, age, truth)
		}
	}
	if want := n.reference.lines(); at < forgetAfter(simParams) && !slices.Equal(got, want) {
		w.t.Fatalf("%v: %s has %v, its reference model %v", at, n.id, got, want)
	}
}

// wantTruth checks that the views of all running nodes contain exactly the running nodes, with their true states.
func (w *world) wantTruth() {
	var truth []string
	for _, n := range w.nodes {
		if w.runs(n) {
			truth = append(truth, fmt.Sprintf("%s/%d %v", n.id, n.set.Self().Incarnation, n.set.State()))
		}
	}
	digests := make(map[uint64]bool)
	for _, n := range w.nodes {
		if !w.runs(n) {
			continue
		}
		view := n.set.View()
		digests[view.Digest()] = true
		members := view.Members
		for r, state := range n.set.States {
			if len(members) == 0 || members[0].Record != r || members[0].State != state {
				w.t.Fatalf("state %v of %s, the view goes on with %v", state, r.ID, members)
			}
			members = members[1:]
		}
		if len(members) > 0 {
			w.t.Fatalf("no states of %v", members)
		}
		var got []string
		for _, m := range n.set.View().Members {
			got = append(got, fmt.Sprintf("%s/%d %v", m.ID, m.Incarnation, m.State))
		}
		if !slices.Equal(got, truth) {
			w.t.Fatalf("%s sees %v, true is %v", n.id, got, truth)
		}
	}
	if len(digests) > 1 {
		w.t.Fatalf("%d digests of one live set %v", len(digests), truth)
	}
}
