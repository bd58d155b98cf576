//go:build !race

package affinity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/placement"
)

// reconnect is what a client of the store does when its connection breaks, or is back.
func (p *modelProcess) reconnect() {
	p.r.changed("")
	if !p.paused {
		p.heartbeat()
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
	var hosted []*Hosting
	for _, p := range all {
		hosted = append(hosted, p.r.hosts.get(modelRoom))
	}
	for range 2 {
		for _, p := range all {
			if owner, _ := p.Snapshot().Table.Owner(0); owner == p.self.Node {
				p.r.sweep(context.Background(), []placement.Partition{0}, false)
			}
			p.k.takeUp(context.Background())
			p.k.takeUp(context.Background())
			p.refreshNow()
		}
	}
	if w.broken != "" || len(all) == 0 {
		return w.broken
	}
	for _, h := range hosted {
		var to *NotOwnerError
		if h != nil && errors.As(h.Err(), &to) && w.processOf(to.Owner.Incarnation) == nil {
			return deadNoHeir
		}
	}
	return w.wrongAtRest(all)
}

func (w *modelWorld) wrongAtRest(all []*modelProcess) string {
	pin := w.store.pin()
	if pin != (pinstore.Pin{}) && w.processOf(pin.Incarnation) == nil {
		return homeRuns
	}
	for _, p := range all {
		if h := p.r.hosts.get(modelRoom); h != nil && (pin.Incarnation != p.self || h.Epoch() != pin.Epoch) {
			return oneServes
		}
	}
	for _, p := range all {
		a, err := p.r.Resolve(context.Background(), modelRoom, Demand{})
		pin := w.store.pin()
		if err != nil || a.Incarnation != pin.Incarnation || a.Epoch != pin.Epoch || w.processOf(a.Incarnation) == nil {
			return allAgree
		}
	}
	return w.broken
}

// key has all that the future depends on.
func (w *modelWorld) key() string {
	var b strings.Builder
	pin := w.store.pin()
	fmt.Fprint(&b, pin.Incarnation, w.rank(pin.Epoch), len(w.epochs), w.away, w.rank(w.reverted))
	if w.copy != nil {
		pin := w.copy.pin()
		fmt.Fprint(&b, "copy", pin.Incarnation, w.rank(pin.Epoch))
	}
	for _, a := range w.late {
		fmt.Fprint(&b, "late", a.by.self, a.If.Incarnation, w.rank(a.If.Epoch), a.Set.Incarnation, w.rank(a.Set.Epoch), w.takesBack(a, a.If))
	}
	for _, p := range w.at {
		if p == nil {
			continue
		}
		fmt.Fprint(&b, "\n", p.self, p.gone, p.silent, w.store.alive(p.self))
		if p.gone {
			continue
		}
		p.key(&b)
	}
	return b.String()
}

func (p *modelProcess) key(b *strings.Builder) {
	w := p.w
	fmt.Fprint(b, p.paused, p.deaf, p.overdue, p.fences-p.r.hosts.fences.Load(), p.view, p.ended, p.r.store.FailedHeartbeats, p.r.store.Away())
	fmt.Fprint(b, p.r.liveness.Sketch(time.Now()))
	if e := p.r.cache.Get(modelRoom); e != nil {
		fmt.Fprint(b, e.Pin.Incarnation, w.rank(e.Pin.Epoch), e.Least() > e.Pin.Epoch, e.Confirmed, p.r.cache.Generation()-e.Generation)
	}
	if h := p.r.hosts.get(modelRoom); h != nil {
		generation := p.r.cache.Generation()
		fmt.Fprint(b, "hosts", w.rank(h.pin.Epoch), w.rank(h.otherEpoch), h.written.IsZero(), generation-h.generation)
		if h.unheard.phase == p.r.hosts.phase(generation) {
			fmt.Fprint(b, "unheard", min(h.unheard.times, silentAfter))
		}
	}
	fmt.Fprint(b, len(p.k.doubt), w.rank(p.seen), w.rank(p.otherEpoch), w.rank(p.hosting))
	if generation, epoch, any := p.r.cache.First(); any {
		fmt.Fprint(b, "younger", p.r.cache.Generation()-generation, w.rank(epoch))
	}
	fmt.Fprint(b, p.r.cache.Generation() > 0)
	if p.k.others.generation == p.r.cache.Generation() {
		fmt.Fprint(b, p.k.others.restored, min(time.Since(p.k.others.since), restoredTime+1))
	}
	if op := p.op; op != nil {
		fmt.Fprint(b, op.what, op.view, op.ended, op.log, op.call.what, op.call.taken, op.call.said,
			p.fences-op.fences, p.r.hosts.endsOf(modelRoom).Load()-op.ends)
		for i, a := range op.call.acts {
			fmt.Fprint(b, a.If.Incarnation, w.rank(a.If.Epoch), a.Set.Incarnation, w.rank(a.Set.Epoch))
			if op.call.taken {
				fmt.Fprint(b, op.call.results[i].Pin.Incarnation, w.rank(op.call.results[i].Pin.Epoch), op.call.results[i].Done)
			}
		}
	}
}
