//go:build !race

package affinity

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/roost-cluster/roost/placement"
)

// reconnect is what a client of the store does when its connection breaks, or is back.
func (p *modelProcess) reconnect() {
	p.r.changed("")
	if !p.paused {
		p.beat()
	}
}

// rest lets everything arrive, and returns the invariant that does not hold then.
func (w *modelWorld) rest() string {
	w.direct, w.away = true, false
	all := w.running()
	for _, p := range all {
		p.paused, p.deaf = false, false
		if p.op != nil {
			if !p.op.call.taken {
				p.op.call.take()
			}
			p.answers(nil)
		}
	}
	for _, a := range w.late {
		w.swap(a)
	}
	for _, p := range all {
		if p.overdue {
			p.fence()
			p.noticeFence()
		}
		p.k.checkFence()
		p.hearAll()
	}
	w.pass()
	w.pass()
	for range 2 {
		for _, p := range all {
			if owner, _ := p.Snapshot().Table.Owner(0); owner == p.self.Node {
				p.r.sweep(context.Background(), []placement.Partition{0})
			}
			p.k.takeUp(context.Background())
			p.refreshNow()
		}
	}
	if w.broken != "" || len(all) == 0 {
		return w.broken
	}
	return w.wrongAtRest(all)
}

func (w *modelWorld) wrongAtRest(all []*modelProcess) string {
	pin := w.store.pins[modelRoom].Pin
	if pin != (Pin{}) && w.processOf(pin.Incarnation) == nil {
		return homeRuns
	}
	for _, p := range all {
		if h := p.r.hosts.get(modelRoom); h != nil && (pin.Incarnation != p.self || h.Epoch() != pin.Epoch) {
			return oneServes
		}
	}
	for _, p := range all {
		a, err := p.r.Resolve(context.Background(), modelRoom, Demand{})
		pin := w.store.pins[modelRoom].Pin
		if err != nil || a.Incarnation != pin.Incarnation || a.Epoch != pin.Epoch || w.processOf(a.Incarnation) == nil {
			return allAgree
		}
	}
	return w.broken
}

// key has all that the future depends on.
func (w *modelWorld) key() string {
	var b strings.Builder
	now := time.Now()
	pin := w.store.pins[modelRoom].Pin
	fmt.Fprint(&b, pin.Incarnation, w.rank(pin.Epoch), len(w.epochs), w.away)
	for _, a := range w.late {
		fmt.Fprint(&b, "late", a.by.self, a.If.Incarnation, w.rank(a.If.Epoch), a.Set.Incarnation, w.rank(a.Set.Epoch))
	}
	for _, p := range w.at {
		if p == nil {
			continue
		}
		fmt.Fprint(&b, "\n", p.self, p.gone, p.silent, now.Before(w.store.beats[p.self]))
		if p.gone {
			continue
		}
		p.key(&b)
	}
	return b.String()
}

func (p *modelProcess) key(b *strings.Builder) {
	w, l, now := p.w, p.r.liveness, time.Now()
	fmt.Fprint(b, p.paused, p.deaf, p.overdue, p.fences-p.r.hosts.fences, p.view, p.ended, p.r.store.failedBeats, p.r.store.away.Load())
	for i, o := range w.at {
		for life := uint64(1); o != nil && life <= o.self.Number; life++ {
			at := o.self
			at.Node, at.Number = modelID(i), life
			_, cut := l.cutOff[at]
			died, dead := l.dead[at]
			fmt.Fprint(b, cut, dead && now.Sub(died) < modelTTL)
		}
	}
	fmt.Fprint(b, now.Sub(l.since) >= l.ttl, now.Sub(l.last) <= l.ttl/2, l.wasAway, l.stillOut, l.reclaiming(now))
	if e := p.r.cache.get(modelRoom); e != nil {
		fmt.Fprint(b, e.pin.Incarnation, w.rank(e.pin.Epoch), e.confirmed, p.r.cache.generation.Load()-e.generation)
	}
	if h := p.r.hosts.get(modelRoom); h != nil {
		fmt.Fprint(b, "hosts", w.rank(h.pin.Epoch), h.written.IsZero(), p.r.cache.generation.Load()-h.generation)
	}
	if op := p.op; op != nil {
		fmt.Fprint(b, op.what, op.view, op.ended, op.log, op.call.what, op.call.taken, op.call.said, p.fences-op.fences)
		for i, a := range op.call.acts {
			fmt.Fprint(b, a.If.Incarnation, w.rank(a.If.Epoch), a.Set.Incarnation, w.rank(a.Set.Epoch))
			if op.call.taken {
				fmt.Fprint(b, op.call.results[i].Pin.Incarnation, w.rank(op.call.results[i].Pin.Epoch), op.call.results[i].Done)
			}
		}
	}
}
