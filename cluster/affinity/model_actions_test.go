//go:build !race

package affinity

import (
	"fmt"
	"slices"
	"time"
)

// modelAction is something that can happen.
type modelAction struct {
	what string
	do   func(*modelWorld)
}

// actions returns what can happen next.
func (w *modelWorld) actions() (all []modelAction) {
	add := func(limit func(*modelLimits) *int, what string, do func(*modelWorld)) {
		if limit != nil && *limit(&w.left) == 0 {
			return
		}
		all = append(all, modelAction{what, func(w *modelWorld) {
			if limit != nil {
				*limit(&w.left)--
			}
			do(w)
		}})
	}
	for i, p := range w.at {
		if p == nil {
			continue
		}
		if p.gone {
			add(starts, fmt.Sprintf("%s starts again", p.self.Node), func(w *modelWorld) { w.start(i) })
			continue
		}
		w.addLife(p, add)
		w.addCalls(p, add)
		w.addGossip(p, add)
	}
	for i, a := range w.late {
		add(nil, fmt.Sprintf("the store takes a late op of %s", a.by.self), func(w *modelWorld) {
			a := w.late[i]
			w.late = slices.Delete(slices.Clone(w.late), i, i+1)
			w.swap(a)
		})
	}
	if w.idle() {
		add(ticks, "a TTL passes", (*modelWorld).pass)
	}
	add(wipes, "the store loses its data", (*modelWorld).wipe)
	add(copies, "the store copies its data", func(w *modelWorld) {
		w.copy = w.store.earlier()
		w.redis.save()
	})
	if w.copy != nil {
		add(reverts, "the store goes back to its copy", (*modelWorld).revert)
	}
	add(outages, "the store fails", func(w *modelWorld) {
		w.away = true
		for _, p := range w.running() {
			p.deaf = true
			p.reconnect()
		}
	})
	if w.away {
		add(nil, "the store is back", func(w *modelWorld) { w.away = false })
	}
	return all
}

// wipe restarts the store without data. That takes time.
func (w *modelWorld) wipe() {
	w.store = newModelStore()
	w.redis.lose()
	time.Sleep(time.Millisecond)
	for _, p := range w.running() {
		p.r.changed("")
		p.forgets()
	}
}

// revert restarts the store with its last copy. That takes time.
func (w *modelWorld) revert() {
	w.store, w.copy = w.copy, nil
	w.redis.load()
	clear(w.heirs)
	if n := len(w.epochs); n > 0 {
		w.reverted = w.epochs[n-1]
	}
	time.Sleep(time.Millisecond)
	for _, p := range w.running() {
		p.r.changed("")
		p.forgets()
		if w.fault == trustsCopies {
			p.r.cache.Gave(0, p.r.cache.Generation())
		}
	}
}

// forgets is for a refresh that goes on: the store may say of another home that it lives, or
// not any more, other than when the refresh has read the pin.
func (p *modelProcess) forgets() {
	if p.op != nil {
		p.op.foreign, p.op.dead = 0, false
	}
}

type adder func(limit func(*modelLimits) *int, what string, do func(*modelWorld))

func resolves(l *modelLimits) *int    { return &l.resolves }
func hosts(l *modelLimits) *int       { return &l.hosts }
func sweeps(l *modelLimits) *int      { return &l.sweeps }
func refreshes(l *modelLimits) *int   { return &l.refreshes }
func releases(l *modelLimits) *int    { return &l.releases }
func crashes(l *modelLimits) *int     { return &l.crashes }
func starts(l *modelLimits) *int      { return &l.starts }
func pauses(l *modelLimits) *int      { return &l.pauses }
func cuts(l *modelLimits) *int        { return &l.cuts }
func deaf(l *modelLimits) *int        { return &l.deaf }
func outages(l *modelLimits) *int     { return &l.outages }
func ticks(l *modelLimits) *int       { return &l.ticks }
func lostAnswers(l *modelLimits) *int { return &l.lost }
func lateOps(l *modelLimits) *int     { return &l.late }
func failures(l *modelLimits) *int    { return &l.failed }
func wipes(l *modelLimits) *int       { return &l.wipes }
func copies(l *modelLimits) *int      { return &l.copies }
func reverts(l *modelLimits) *int     { return &l.reverts }
func slow(l *modelLimits) *int        { return &l.slow }

// addLife adds what can happen to a process.
func (w *modelWorld) addLife(p *modelProcess, add adder) {
	i, name := p.place, p.self
	add(crashes, fmt.Sprintf("%s ends", name), func(w *modelWorld) { w.at[i].crash() })
	switch {
	case p.paused:
		add(nil, fmt.Sprintf("%s goes on", name), func(w *modelWorld) { w.at[i].paused = false })
		return
	case p.overdue:
		add(nil, fmt.Sprintf("the agent of %s notices its pause", name), func(w *modelWorld) { w.at[i].fence() })
	case p.fences != p.r.hosts.fences.Load() || (w.fault == noFence && p.silent):
		add(nil, fmt.Sprintf("the keeper of %s notices the fence", name), func(w *modelWorld) { w.at[i].noticeFence() })
	}
	add(pauses, fmt.Sprintf("%s stands still", name), func(w *modelWorld) { w.at[i].paused = true })
	if p.deaf && !w.away {
		add(nil, fmt.Sprintf("%s reaches the store again", name), func(w *modelWorld) { w.at[i].deaf = false; w.at[i].reconnect() })
	} else if !p.deaf {
		add(deaf, fmt.Sprintf("%s does not reach the store", name), func(w *modelWorld) { w.at[i].deaf = true; w.at[i].reconnect() })
	}
}

// addCalls adds what a process can ask of the store, and what becomes of it.
func (w *modelWorld) addCalls(p *modelProcess, add adder) {
	i, name := p.place, p.self
	if p.op != nil {
		w.addAnswers(p, add)
		return
	}
	if p.paused {
		return
	}
	add(resolves, fmt.Sprintf("%s resolves", name), func(w *modelWorld) { w.at[i].resolve() })
	add(hosts, fmt.Sprintf("%s hosts", name), func(w *modelWorld) { w.at[i].host() })
	add(sweeps, fmt.Sprintf("%s sweeps", name), func(w *modelWorld) { w.at[i].sweep() })
	if p.r.hosts.count() > 0 {
		add(refreshes, fmt.Sprintf("%s refreshes", name), func(w *modelWorld) { w.at[i].refresh() })
		add(releases, fmt.Sprintf("%s releases", name), func(w *modelWorld) { w.at[i].release() })
	}
}

func (w *modelWorld) addAnswers(p *modelProcess, add adder) {
	i, name, c := p.place, p.self, p.op.call
	reaches := !p.deaf && !w.away
	switch {
	case c.taken && !p.paused:
		add(nil, fmt.Sprintf("the answer reaches %s", name), func(w *modelWorld) { w.at[i].answers(nil) })
	case p.paused && !c.taken && reaches:
		add(nil, fmt.Sprintf("the store takes the %s of %s", c.what, name), func(w *modelWorld) { w.at[i].op.call.take() })
	case p.paused:
	case !reaches:
		add(nil, fmt.Sprintf("the %s of %s fails", c.what, name), func(w *modelWorld) { w.at[i].answers(errModelFailed) })
	default:
		add(nil, fmt.Sprintf("the store answers the %s of %s", c.what, name), func(w *modelWorld) {
			w.at[i].op.call.take()
			w.at[i].answers(nil)
		})
		add(slow, fmt.Sprintf("the store takes the %s of %s", c.what, name), func(w *modelWorld) { w.at[i].op.call.take() })
		add(failures, fmt.Sprintf("the %s of %s fails", c.what, name), func(w *modelWorld) { w.at[i].answers(errModelFailed) })
		if len(c.writes()) == 0 {
			return
		}
		add(lostAnswers, fmt.Sprintf("the answer to the %s of %s is lost", c.what, name), func(w *modelWorld) {
			w.at[i].op.call.take()
			w.at[i].answers(errModelLost)
		})
		add(lateOps, fmt.Sprintf("%s gives up its %s, which is under way", name, c.what), func(w *modelWorld) {
			w.late = slices.Concat(w.late, w.at[i].op.call.writes())
			w.at[i].answers(errModelLost)
		})
	}
}

// addGossip adds what a process can learn by gossip.
func (w *modelWorld) addGossip(p *modelProcess, add adder) {
	if p.paused {
		return
	}
	i := p.place
	for j, o := range w.at {
		if o == nil || i == j {
			continue
		}
		life := o.self.Number
		if seen := p.view[j]; seen != 0 {
			ended := o.gone || seen < life
			var limit func(*modelLimits) *int
			if !ended && !o.overdue && !p.overdue { // a cut
				limit = cuts
			}
			add(limit, fmt.Sprintf("gossip of %s loses %s", p.self, o.self.Node), func(w *modelWorld) { w.at[i].view[j] = 0 })
			if ended && w.left.confirmations {
				add(nil, fmt.Sprintf("%s has confirmation of the end of %s#%d", p.self, o.self.Node, seen), func(w *modelWorld) {
					w.at[i].view[j], w.at[i].ended[j] = 0, seen
				})
			}
		}
		if !o.gone && !o.overdue && !o.paused && p.view[j] != life {
			add(nil, fmt.Sprintf("gossip of %s finds %s", p.self, o.self), func(w *modelWorld) { w.at[i].view[j] = life })
		}
	}
}

// idle reports whether a TTL can pass: calls last less, except those of paused processes.
func (w *modelWorld) idle() bool {
	for _, p := range w.running() {
		if p.op != nil && !p.paused {
			return false
		}
	}
	return true
}
