package cluster

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// loop owns all mutable state of an agent. Nothing in it is shared; what others
// see of it is published (publish.go).
type loop struct {
	agent    *Agent
	cfg      Config
	log      *slog.Logger
	node     *gossip.Node
	set      *lease.Set
	refusals <-chan error
	refused  time.Time // when a refusal was logged last
	rejoin   chan<- struct{}
	settings uint32 // hash of what must be equal on all nodes

	lease    *ownLease
	phase    Phase
	draining bool      // owns nothing by the operator's wish
	weight   uint32    // that it is to have when no ramp is under way
	ramp     ramp      // see climb
	together bool      // nobody owned anything when it came in, see rampOrNot
	turn     time.Time // when the loop went round last
	deaf     time.Time // until then what arrives is too old to believe
	heard    time.Time // since when a node that was stopped hears again; zero = not joining anew
	asked    bool      // it has asked for those that it misses
	patient  time.Time // until then nobody's lease is held for expired, see checkStall
	settled  time.Time // when settling ends, see step
	settleBy time.Time // when it ends at the latest

	clockFenced bool      // settling because the clock was ahead
	warned      time.Time // of the own clock
	warnedSkew  time.Time // of others' clocks
	rejected    uint64    // heartbeats that had been rejected by then

	swept    time.Time // when leases were expired and forgotten last
	beatAt   time.Time // when to renew the own lease
	reviewAt time.Time // when to look at clock and balance; news puts off a heartbeat, and not this
	gossipAt time.Time // when to pass news on
	dirty    bool      // a beat was applied since the snapshot was taken
	changed  bool      // the live set changed since the last publication
	table    *placement.Table
	state    *events.State
	publish  time.Time // when to publish a change; zero = there is none

	entering bool // active, but no table was published since
	ended    bool

	fault   string    // of the strategy, as it was told last; "" = it works
	faultAt time.Time // when it was told

	memory *memory // nil unless the strategy remembers

	balance  review
	drifting time.Time // until then drift is counted; zero = there was none

	peers []string // scratch
	stats Stats
	err   error // why the loop ended by itself
}

func newLoop(a *Agent, incarnation uint64, settings uint32, refusals <-chan error) *loop {
	now := a.now()
	l := &loop{
		agent: a, cfg: a.cfg, log: a.cfg.Log, node: a.node, refusals: refusals, settings: settings,
		draining: a.cfg.StartDraining, weight: a.cfg.Weight, lease: new(ownLease), turn: now,
	}
	l.set = lease.NewSet(now, a.cfg.record(a.node.Addr(), incarnation), lease.Params{
		TTL: a.cfg.LeaseTTL, MaxSkew: a.cfg.MaxSkew, Settings: settings,
	})
	if placement.Remembers(a.cfg.Strategy) {
		l.memory = &memory{quorum: now}
	}
	l.beat(now)
	l.renewed(now)
	l.show()
	return l
}

func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var call func(*loop)
		var in frame
		select {
		case in = <-l.agent.inbox:
		case call = <-l.agent.calls:
		case err := <-l.refusals:
			l.refuse(err)
		case <-timer.C:
		case <-ctx.Done():
			l.end(nil)
			return
		}
		l.agent.env.Gate()
		now := l.agent.now()
		l.checkStall(now) // before anything that arrived meanwhile is believed
		if call != nil {
			call(l)
		}
		l.receive(now, in)
		if l.err != nil {
			l.end(l.err)
			return
		}
		timer.Reset(max(0, l.advance(now).Sub(now)))
	}
}

// advance does what is due and returns when to call it next.
func (l *loop) advance(now time.Time) time.Time {
	if !now.Before(l.beatAt) {
		l.beat(now)
	}
	if !now.Before(l.reviewAt) {
		l.reviewAt = now.Add(l.cfg.HeartbeatInterval)
		l.judgeClock(now)
		l.level(now)
		l.reviewBalance(now)
	}
	deadline := l.expire(now)
	l.hearAgain(now)
	l.step(now)
	if l.climb(now) {
		l.tell()
	}
	l.plan(now)
	if !l.publish.IsZero() && !now.Before(l.publish) {
		l.publishNow()
	}
	if !now.Before(l.gossipAt) {
		l.gossip(now)
	}
	next := earliest(earliest(l.beatAt, l.gossipAt), l.reviewAt)
	for _, at := range []time.Time{deadline, l.publish, l.settled, l.deaf, l.patient, l.ramp.next} {
		if at.After(now) {
			next = earliest(next, at)
		}
	}
	return next
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// expire ends leases that have run out, and returns when the next one will.
func (l *loop) expire(now time.Time) (deadline time.Time) {
	if now.Before(l.patient) {
		return l.patient
	}
	deadline, ok := l.set.NextDeadline()
	forget := now.Sub(l.swept) >= l.cfg.HeartbeatInterval
	if forget || (ok && !now.Before(deadline)) {
		l.swept = now
		l.note(l.set.Expire(now))
		deadline, _ = l.set.NextDeadline()
	}
	return deadline
}

// askFor asks a few members for news of others.
func (l *loop) askFor(now time.Time, others []lease.Handle) {
	b := l.encode(l.set.Request(now, others[:min(len(others), maxWants)]))
	peers := l.set.Peers(nil)
	rand.Shuffle(len(peers), func(i, k int) { peers[i], peers[k] = peers[k], peers[i] })
	for _, addr := range peers[:min(len(peers), l.cfg.GossipNodes)] {
		l.send(addr, b)
	}
}

// note remembers whether the live set changed.
func (l *loop) note(changed bool) {
	if changed {
		l.changed = true
		l.stats.ViewChanges++
	}
}

// refuse tells the operator, at most once a second, that a node was turned away.
func (l *loop) refuse(err error) {
	l.stats.NodesRefused++
	if now := l.agent.now(); now.Sub(l.refused) > time.Second {
		l.refused = now
		l.log.Warn("refused a node with other settings", "err", err)
	}
}

// beat begins a new lease of this node, and has it sent in this turn of the loop.
func (l *loop) beat(now time.Time) {
	l.set.Beat(now, l.agent.load.Load(), digestOf(l.table))
	jitter := 0.9 + 0.2*rand.Float64()
	l.beatAt = now.Add(time.Duration(jitter * float64(l.cfg.HeartbeatInterval)))
	l.gossipAt = now
	l.dirty = true
}

// renewed counts the own lease anew: somebody was told, or nobody is there.
func (l *loop) renewed(beat time.Time) {
	l.lease.until.Store(int64(beat.Add(l.cfg.LeaseTTL).Sub(l.agent.startedAt())))
}

// tell renews the own lease and lets everybody know at once what is new about
// this node.
func (l *loop) tell() {
	now := l.agent.now()
	l.beat(now)
	l.changed = true
}

// gossip sends a digest to a few random peers, if there is news.
func (l *loop) gossip(now time.Time) {
	l.gossipAt = now.Add(l.cfg.GossipInterval)
	l.warnSkew(now)
	if l.dirty {
		l.show() // ages and loads, for those who look
	}
	l.peers = l.set.Peers(l.peers[:0])
	if !l.heard.IsZero() { // joining anew: those that it knew are likely to be there still
		l.peers = l.set.ExpiredAddrs(l.peers)
	}
	n := min(l.cfg.GossipNodes, len(l.peers))
	if n == 0 {
		l.renewed(l.set.Renewed())
		return
	}
	m := l.set.Compose(now, l.budget(), n)
	if m == nil {
		return
	}
	b := l.encode(m)
	for i := range n { // the first n of a partial shuffle
		k := i + rand.IntN(len(l.peers)-i)
		l.peers[i], l.peers[k] = l.peers[k], l.peers[i]
		if l.send(l.peers[i], b) {
			l.renewed(l.set.Renewed())
		}
	}
}

// send sends a packet and reports whether it went out.
func (l *loop) send(addr string, b []byte) bool {
	if addr == "" {
		return false
	}
	if err := l.node.Send(addr, b); err != nil {
		l.stats.SendErrors++
		l.log.Debug("send failed", "addr", addr, "err", err)
		return false
	}
	l.stats.PacketsSent++
	l.stats.BytesSent += uint64(len(b))
	return true
}

// receive handles what gossip delivered.
func (l *loop) receive(now time.Time, in frame) {
	switch {
	case in.state != nil:
		in.state <- l.encodeState(now)
	case in.message != nil:
		l.merge(now, in.message)
	}
	if in.merged != nil {
		close(in.merged)
	}
}

func (l *loop) merge(now time.Time, b []byte) {
	if now.Before(l.deaf) {
		l.stats.StaleDropped++
		return
	}
	m, err := lease.Decode(b)
	if err != nil {
		if errors.Is(err, lease.ErrVersion) {
			l.stats.VersionErrors++
		} else {
			l.stats.DecodeErrors++
		}
		l.log.Debug("unreadable message", "err", err)
		return
	}
	e := l.set.Apply(now, m)
	l.dirty = true
	if e.Duplicate != nil {
		l.err = &DuplicateIDError{ID: l.agent.self, Other: e.Duplicate.Addr}
		return
	}
	l.note(e.Changed)
	if e.Urgent {
		l.gossipAt = earliest(l.gossipAt, now.Add(l.cfg.GossipInterval/10))
	}
	if len(e.Wants) > 0 {
		l.send(l.set.AddrOf(m.From), l.encode(l.set.Request(now, e.Wants[:min(len(e.Wants), maxWants)])))
	}
	l.remember(now, m)
	l.answer(now, m)
	if addr, news := l.set.AnswerExpired(now, m.From, l.budget()); news != nil {
		l.send(addr, l.encode(news))
	}
}

// How many records are asked for in one message, and in how many packets they
// are answered at most; what is missing then is asked for again.
const (
	maxWants       = 100
	maxAnswerParts = 16
)

// answer sends the sender of m the records that it wants. Only members are
// answered, at the address that their record states.
func (l *loop) answer(now time.Time, m *lease.Message) {
	to := l.set.AddrOf(m.From)
	wants := m.Wants[:min(len(m.Wants), maxWants)]
	for range maxAnswerParts {
		if to == "" || len(wants) == 0 {
			return
		}
		var part *lease.Message
		if part, wants = l.set.Answer(now, wants, l.budget()); part != nil {
			l.send(to, l.encode(part))
		}
	}
}

// end releases everything, for good.
func (l *loop) end(err error) {
	l.err = err
	if err != nil {
		l.log.Error("agent stopped", "err", err)
	}
	l.lease = new(ownLease)
	l.phase, l.ended = PhaseOver, true
	l.publishNow()
}
