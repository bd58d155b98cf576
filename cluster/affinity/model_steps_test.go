//go:build !race

package affinity

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// The invariants.
const (
	oneHome      = "an epoch of a room has one home"
	epochGrows   = "the epoch of a room never goes back"
	seenGrows    = "no node sees an epoch of a room that is smaller than one before"
	hostingGrows = "each hosting has a greater epoch than all that a living node has known"
	homeStays    = "a room stays while its home lives"
	oneHeir      = "a pin is replaced once"
	deadNoHeir   = "a host yields to no home that is dead"
	readIsLost   = "a host that has read twice of another home that lives serves no longer"
	fencedIsOut  = "a node that was fenced serves nothing of before"
	homeRuns     = "at rest a room's home runs"
	oneServes    = "at rest the home alone serves a room"
	allAgree     = "at rest all nodes resolve a room to its home"
)

// begin starts a call of p, up to the first one of the store.
func (p *modelProcess) begin(what string, f func(*modelOp)) {
	op := &modelOp{
		what:   what,
		view:   p.view,
		ended:  p.ended,
		fences: p.fences,
		ends:   p.r.hosts.endsOf(modelRoom).Load(),
		hosted: p.r.hosts.get(modelRoom),
	}
	p.op = op
	go func() {
		f(op)
		p.w.events <- nil
	}()
	p.await()
}

// await waits for the next call of the store, or for the end of the call of p.
func (p *modelProcess) await() {
	if p.op.call = <-p.w.events; p.op.call != nil {
		return
	}
	op := p.op
	p.op = nil
	if h := p.r.hosts.get(modelRoom); h != nil && op.foreign > h.Epoch() {
		if op.foreign == p.otherEpoch { // the first time, that may be a claim that is taken back
			p.w.breaks(readIsLost)
		}
		p.otherEpoch = op.foreign
	}
	if op.dead && yielded(op.hosted) {
		p.w.breaks(deadNoHeir)
	}
	if op.did != nil {
		op.did(op)
	}
}

// yielded reports whether a hosting has ended for another home.
func yielded(h *Hosting) bool {
	var to *NotOwnerError
	return h != nil && errors.As(h.Err(), &to)
}

// answers hands the answer of the store to p, or an error.
func (p *modelProcess) answers(err error) {
	c := p.op.call
	if err != nil {
		c.err, p.op.foreign = err, 0
	}
	p.op.log += c.what + c.said
	if c.err != nil {
		p.op.log += "!"
	}
	for _, res := range c.results {
		p.op.log += fmt.Sprint(res.Pin.Incarnation, p.w.rank(res.Pin.Epoch), res.Done, ";")
	}
	close(c.answer)
	p.await()
}

func (p *modelProcess) resolve() {
	p.begin("resolves", func(*modelOp) {
		a, err := p.r.Resolve(context.Background(), modelRoom, Demand{})
		if err == nil && a.Epoch != 0 && p.w.homes[a.Epoch] != a.Incarnation {
			p.w.breaks(oneHome)
		}
		if err == nil && a.Epoch != 0 {
			if a.Epoch < p.seen {
				p.w.breaks(seenGrows)
			}
			p.seen = a.Epoch
		}
	})
}

func (p *modelProcess) host() {
	had, hostings := p.r.hosts.get(modelRoom) != nil, p.w.hostings()
	p.begin("hosts", func(op *modelOp) {
		h, err := p.r.Host(context.Background(), modelRoom, Demand{})
		op.did = func(op *modelOp) {
			if err == nil && op.fences != p.fences && p.w.store.pin().Incarnation != p.self && h.Err() == nil {
				p.w.breaks(fencedIsOut)
			}
			if err != nil || had || h.Epoch() == 0 || h.Err() != nil {
				return
			}
			if h.Epoch() < hostings {
				p.w.breaks(hostingGrows)
			}
			p.hosting = max(p.hosting, h.Epoch())
		}
	})
}

// hostings returns the greatest epoch at which a living process has hosted the room.
func (w *modelWorld) hostings() (epoch uint64) {
	for _, p := range w.running() {
		epoch = max(epoch, p.hosting)
	}
	return epoch
}

func (p *modelProcess) sweep() {
	p.begin("sweeps", func(*modelOp) { p.r.sweep(context.Background(), []placement.Partition{0}, false) })
}

func (p *modelProcess) refresh() {
	p.begin("refreshes", func(*modelOp) { p.refreshNow() })
}

func (p *modelProcess) refreshNow() {
	if h := p.r.hosts.get(modelRoom); h != nil {
		p.k.confirm(context.Background(), []*Hosting{h}, true)
	}
}

func (p *modelProcess) release() {
	h := p.r.hosts.get(modelRoom)
	p.begin("releases", func(*modelOp) { _ = h.Release(context.Background()) })
}

// fence is what the agent does after a pause.
func (p *modelProcess) fence() {
	p.overdue = false
	if p.w.fault != noFence {
		p.fences++
	}
}

// noticeFence is what the keeper does then.
func (p *modelProcess) noticeFence() {
	p.k.checkFence()
	if p.r.hosts.count() > 0 {
		p.w.breaks(fencedIsOut)
	}
}

// crash ends the process. What it has sent to the store may still arrive.
func (p *modelProcess) crash() {
	p.gone = true
	if p.op != nil && !p.op.call.taken {
		p.w.late = append(p.w.late, p.op.call.writes()...)
	}
	p.abandon()
}

// abandon ends the call of a process that has ended.
func (p *modelProcess) abandon() {
	for p.gone = true; p.op != nil; {
		p.op.did, p.op.foreign = nil, 0
		p.answers(errModelFailed)
	}
}

// abandon ends the calls of all processes.
func (w *modelWorld) abandon() {
	for _, p := range w.at {
		if p != nil {
			p.abandon()
		}
	}
}

// writes returns the ops of a call that change something.
func (c *modelCall) writes() (acts []*modelAct) {
	return slices.DeleteFunc(slices.Clone(c.acts), func(a *modelAct) bool { return reads(a.Op) })
}

// swap has the store do an op, and compares what it does with the invariants.
func (w *modelWorld) swap(a *modelAct) pinstore.Result {
	op, before := a.Op, w.store.pin()
	switch {
	case w.fault == comparesNothing && !reads(op):
		op.If = before
	case w.fault == comparesLives:
		op.If.Epoch = 0
	}
	res := w.store.do(op)
	w.redis.swap(a.by.self, op, res)
	if res.Done && res.Pin.Incarnation != before.Incarnation && res.Pin.Number != 0 {
		switch {
		case w.fault == keepsEpoch && before.Epoch != 0:
			w.store.pretend(&res.Pin, before.Epoch)
		case w.fault == clockGoesBack:
			w.store.pretend(&res.Pin, uint64(1000-len(w.epochs)))
		}
	}
	w.check(a, op, before, res)
	if op := a.of; op != nil && op == a.by.op && op.what == "refreshes" && res.Pin.Number != 0 && res.Pin.Incarnation != a.by.self {
		switch {
		case !w.knownToLive(a.by, res.Pin.Incarnation):
			op.dead = w.processOf(res.Pin.Incarnation) == nil
		case w.fault == believes:
			op.foreign, res.Pin = res.Pin.Epoch, a.Set
		default:
			op.foreign = res.Pin.Epoch
		}
	}
	return res
}

// reads reports whether an op changes nothing.
func reads(op pinstore.Op) bool {
	none := lease.Incarnation{}
	return op.If.Incarnation == none && op.Set.Incarnation == none
}

func (w *modelWorld) check(a *modelAct, op pinstore.Op, before pinstore.Pin, res pinstore.Result) {
	if !res.Done || reads(op) || (res.Pin.Incarnation == before.Incarnation && res.Pin.Epoch == before.Epoch) {
		return
	}
	if res.Pin.Number != 0 {
		if at, ok := w.homes[res.Pin.Epoch]; ok && at != res.Pin.Incarnation {
			w.breaks(oneHome)
		}
		if n := len(w.epochs); n > 0 && res.Pin.Epoch <= w.epochs[n-1] {
			w.breaks(epochGrows)
		}
		w.homes[res.Pin.Epoch] = res.Pin.Incarnation
		w.epochs = append(w.epochs, res.Pin.Epoch)
		w.claims[res.Pin.Epoch] = a.of
	}
	if a.If.Number != 0 && a.If.Epoch != 0 {
		void := pinstore.Pin{Incarnation: a.If.Incarnation, Epoch: a.If.Epoch}
		if w.heirs[void]++; w.heirs[void] > 1 {
			w.breaks(oneHeir)
		}
	}
	home := w.processOf(before.Incarnation)
	switch {
	case home == nil || res.Pin.Incarnation == before.Incarnation:
	case w.takesBack(a, before):
	case res.Pin.Epoch != 0 && before.Epoch < w.reverted: // others know of later hostings
	case a.by.self == before.Incarnation && a.If.Incarnation == a.by.self &&
		(a.If.Epoch == before.Epoch || a.If.Epoch == 0): // by its own word
	case home.silent && a.view[home.place] != home.self.Number: // it has died twice
	default:
		w.breaks(homeStays)
	}
}

// takesBack reports whether an op deletes the pin that the same call has claimed.
func (w *modelWorld) takesBack(a *modelAct, pin pinstore.Pin) bool {
	return a.Set.Number == 0 && a.of != nil && w.claims[pin.Epoch] == a.of
}

// knownToLive reports whether a process can know that an incarnation lives.
func (w *modelWorld) knownToLive(p *modelProcess, at lease.Incarnation) bool {
	return liveness.Live(p.Snapshot(), at) != nil || w.store.alive(at)
}

// processOf returns the process with an incarnation, if it runs.
func (w *modelWorld) processOf(at lease.Incarnation) *modelProcess {
	for _, p := range w.running() {
		if p.self == at {
			return p
		}
	}
	return nil
}

func (w *modelWorld) breaks(invariant string) {
	if w.broken == "" {
		w.broken = invariant
	}
}

// rank is the place of an epoch among those of the room.
func (w *modelWorld) rank(epoch uint64) int { return 1 + slices.Index(w.epochs, epoch) }
