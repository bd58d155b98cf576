//go:build !race

package affinity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
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
	endsForCause = "a hosting whose room is not released does not end as released"
	endsWithRoom = "a hosting whose room is released ends"
	fencedIsOut  = "a node that was fenced serves nothing of before"
	homeRuns     = "at rest a room's home runs"
	oneServes    = "at rest the home alone serves a room"
	allAgree     = "at rest all nodes resolve a room to its home"
)

// begin starts a call of p, which runs until it first calls the store.
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

// await waits until the call of p calls the store again, or ends.
func (p *modelProcess) await() {
	if p.op.call = <-p.w.events; p.op.call != nil {
		return
	}
	op := p.op
	p.op = nil
	if h := p.r.hosts.get(modelRoom); h != nil && op.foreign > h.Epoch() {
		if op.foreign == p.otherEpoch { // the first time, it may be a claim that is then withdrawn
			p.w.breaks(readIsLost)
		}
		p.otherEpoch = op.foreign
	}
	p.w.endsWithout(op.hosted, strings.HasPrefix(op.what, "releases"))
	if op.dead && yielded(op.hosted) {
		p.w.breaks(deadNoHeir)
	}
	if op.did != nil {
		op.did(op)
	}
}

// endsWithout breaks an invariant if a hosting has ended with ErrReleased, but was not released.
func (w *modelWorld) endsWithout(h *Hosting, released bool) {
	_, named := w.named[h]
	if h != nil && !released && !named && errors.Is(h.Err(), ErrReleased) {
		w.breaks(endsForCause)
	}
}

// yielded reports whether a hosting has ended because the room has another home.
func yielded(h *Hosting) bool {
	var to *NotOwnerError
	return h != nil && errors.As(h.Err(), &to)
}

// answers hands p the answer of the store, or err if it is not nil.
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

// releaseByName makes p release the room, no matter where the room lives.
func (p *modelProcess) releaseByName() {
	p.begin("releases by name", func(*modelOp) { _ = p.r.Release(context.Background(), modelRoom) })
}

// fence does what the agent of p does when it notices a pause.
func (p *modelProcess) fence() {
	p.overdue = false
	if p.w.fault != noFence {
		p.fences++
	}
}

// noticeFence does what the keeper of p does when it notices the fence.
func (p *modelProcess) noticeFence() {
	p.k.checkFence()
	if p.r.hosts.count() > 0 {
		p.w.breaks(fencedIsOut)
	}
}

// crash ends the process. Ops that it has sent to the store may still arrive.
func (p *modelProcess) crash() {
	p.gone = true
	if p.op != nil && !p.op.call.taken {
		p.w.late = append(p.w.late, p.op.call.writes()...)
	}
	p.abandon()
}

// abandon marks the process as ended, and makes its call fail.
func (p *modelProcess) abandon() {
	for p.gone = true; p.op != nil; {
		p.op.did, p.op.foreign = nil, 0
		p.answers(errModelFailed)
	}
}

// abandon ends all processes and their calls.
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

// swap makes the store perform an op, and checks the invariants.
func (w *modelWorld) swap(a *modelAct) pinstore.Result {
	op, before := a.Op, w.store.pin()
	switch {
	case w.fault == comparesNothing && !reads(op):
		op.If = before
	case w.fault == comparesLives:
		op.If.Epoch = 0
	case w.fault == hidesHeirs:
		op.Set.Needs = ""
	case w.fault == allAreHeirs && op.Set.Number != 0:
		op.Set = capacity.Replacing(op.Set, movedByOther)
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
	if op.Set.Released() {
		if home := w.processOf(before.Incarnation); home != nil {
			if h := home.r.hosts.get(modelRoom); h != nil {
				w.named[h] = true
			}
		}
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
	case res.Pin.Epoch != 0 && before.Epoch < w.reverted: // other nodes know of later hostings
	case a.by.self == before.Incarnation && a.If.Incarnation == a.by.self &&
		(a.If.Epoch == before.Epoch || a.If.Epoch == 0): // the home changes its own pin
	case home.silent && a.view[home.place] != home.self.Number: // gossip and the store both consider it dead
	default:
		w.breaks(homeStays)
	}
}

// takesBack reports whether an op deletes the pin that the same call has claimed.
func (w *modelWorld) takesBack(a *modelAct, pin pinstore.Pin) bool {
	return a.Set.Number == 0 && a.of != nil && w.claims[pin.Epoch] == a.of
}

// knownToLive reports whether a process can know that an incarnation is alive.
func (w *modelWorld) knownToLive(p *modelProcess, at lease.Incarnation) bool {
	return liveness.Live(p.Snapshot(), at) != nil || w.store.alive(at)
}

// processOf returns the running process of an incarnation, or nil.
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

// rank returns the position of an epoch among the room's epochs, starting at 1.
func (w *modelWorld) rank(epoch uint64) int { return 1 + slices.Index(w.epochs, epoch) }

// modelAction is something that can happen in a world.
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
	add(jumps, "the clock of the store jumps ahead", (*modelWorld).jump)
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

// wipe makes the store lose its data. That takes a millisecond.
func (w *modelWorld) wipe() {
	w.store = newModelStore()
	w.redis.lose()
	time.Sleep(time.Millisecond)
	for _, p := range w.running() {
		p.r.changed("")
		p.forgets()
	}
}

// jump makes everything in the store expire, without a notification. That takes a millisecond.
func (w *modelWorld) jump() {
	for h := range w.named {
		w.named[h] = false // the store has lost the release
	}
	w.store = newModelStore()
	w.redis.expire()
	time.Sleep(time.Millisecond)
	for _, p := range w.running() {
		p.forgets()
	}
}

// revert makes the store return to its last copy. That takes a millisecond.
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

// forgets clears what a refresh in progress has read about another home. If the refresh asks the store again, the store
// may give another answer about whether that home is alive.
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
func byName(l *modelLimits) *int      { return &l.byName }
func jumps(l *modelLimits) *int       { return &l.jumps }
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

// addLife adds what can happen to a process itself: it can end, pause, notice a pause, or lose the store.
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

// addCalls adds the calls that a process can begin. If a call is already in progress, addCalls adds what can happen to
// it.
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
	add(byName, fmt.Sprintf("%s releases by name", name), func(w *modelWorld) { w.at[i].releaseByName() })
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

// addGossip adds what a process can learn via gossip.
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
			if !ended && !o.overdue && !p.overdue { // gossip is cut
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

// idle reports whether a TTL can pass. A call lasts less than a TTL, unless its process is paused.
func (w *modelWorld) idle() bool {
	for _, p := range w.running() {
		if p.op != nil && !p.paused {
			return false
		}
	}
	return true
}

// reconnect does what a client of the store does when it loses its connection or connects again.
func (p *modelProcess) reconnect() {
	p.r.changed("")
	if !p.paused {
		p.heartbeat()
	}
}

// rest delivers everything that is under way, and returns the invariant that does not hold afterwards.
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
		w.endsWithout(h, false)
		if h != nil && h.Err() == nil && w.named[h] {
			return endsWithRoom
		}
		var to *NotOwnerError
		if h != nil && errors.As(h.Err(), &to) && w.processOf(to.Owner.Incarnation) == nil {
			return deadNoHeir
		}
	}
	if w.broken != "" {
		return w.broken
	}
	return w.wrongAtRest(all)
}

func (w *modelWorld) wrongAtRest(all []*modelProcess) string {
	pin := w.store.pin()
	if pin.Number != 0 && w.processOf(pin.Incarnation) == nil {
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

// key returns a text that contains everything on which the future of the world depends.
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
		ends, named := w.named[h]
		fmt.Fprint(b, "hosts", ends, named, w.rank(h.pin.Epoch), w.rank(h.otherEpoch), h.written.IsZero(), generation-h.generation)
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
