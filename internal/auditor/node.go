package auditor

import (
	"slices"
	"time"
)

// answered updates what is known of a process by its answer, and reports whether the answer is new.
func (a *Auditor) answered(t *track) (changed bool) {
	answer := t.now.Answer
	if t.stopped > 0 || answer == nil || answer == t.answer || !a.checkForm(t, answer) {
		return false
	}
	before := t.answer
	t.answer, t.mine = answer, setOf(answer.Owned, a.Partitions)
	fenced := before != nil && answer.Fences > before.Fences
	// A fence forgets the members, unless the clock is its reason. The node learns them again from the others.
	t.forgets = fenced && answer.State != "clock_ahead"
	if fenced {
		t.must = slices.Clone(t.always.owned) // before the news of this observation
		if t.woke > 0 {                       // nodes that were suspended together fence themselves when they meet others
			t.trouble = a.at
		}
	}
	if before != nil && answer.Overruns > before.Overruns {
		t.overran = a.at
	}
	return true
}

// checkForm reports whether an answer names no partitions that do not exist, and all others.
func (a *Auditor) checkForm(t *track, answer *Answer) bool {
	if p, ok := a.strange(answer.Owned); ok {
		a.object("sum", "%s owns partition %d of %d", t.now.ID, p, a.Partitions)
		return false
	}
	if table := answer.Table; table != nil && len(table.Owners) != a.Partitions {
		a.object("table", "%s has a table of %d partitions instead of %d", t.now.ID, len(table.Owners), a.Partitions)
		return false
	}
	return true
}

// checkTold checks the rules about one node's answer.
func (a *Auditor) checkTold(t *track, changed bool) {
	if changed {
		a.checkMembers(t)
	}
	a.checkSums(t)
	if t.answer == nil || t.stopped > 0 {
		return
	}
	a.checkReasons(t)
	a.checkOwned(t)
	if changed {
		a.checkCordons(t)
		a.checkTable(t)
	}
}

// checkTimes checks the rules that limit how long something takes.
func (a *Auditor) checkTimes(t *track) {
	if t.stopped > 0 || t.answer == nil {
		return
	}
	if t.entering() {
		t.active = a.at
	}
	if t.strange > 0 && a.at-max(t.strange, t.active) > a.TTL {
		a.object("table", "%s: a node in the table is no member for %v", t.now.ID, a.at-t.strange)
	}
	a.checkUnknown(t)
	a.checkGone(t)
	a.checkReleased(t)
	a.checkAwake(t)
	a.checkIdle(t)
	a.checkWaits(t)
	a.checkLateCordons(t)
}

// entering reports whether a node does not take part yet.
func (t *track) entering() bool {
	switch t.answer.State {
	case "joining", "settling", "isolated", "duplicate", "clock_ahead", "left":
		return true
	}
	return false
}

// checkIdle checks that a node that may not own anything owns nothing.
func (a *Auditor) checkIdle(t *track) {
	soon, late := t.mustOwnNothing()
	if !soon && !late {
		t.idle = 0
		return
	}
	if t.idle == 0 {
		t.idle = a.at
	}
	p, limit := t.now, publish+tolerance
	if soon {
		limit = time.Second + tolerance
	}
	if a.Handoff > 0 {
		limit += a.Handoff + a.Hang
	}
	if a.at-t.idle > limit && len(t.answer.Owned) > 0 {
		a.object("idle", "%s is %s (draining %v, unhealthy %v, weight %d), and still owns %v after %v",
			p.ID, t.answer.State, p.Draining, p.Unhealthy, p.Weight, t.answer.Owned, a.at-t.idle)
	}
}

// mustOwnNothing reports whether a node must release everything soon, or only when it has waited for leases that are
// about to expire.
func (t *track) mustOwnNothing() (soon, late bool) {
	_, cordoned := t.cordons[t.now.ID]
	cordoned = cordoned && t.answer.State == "cordoned"
	return t.now.Draining || t.now.Unhealthy || cordoned || t.flapping || t.entering(), t.now.Weight == 0
}

// checkAwake checks that a node whose host was suspended releases what others have taken over.
func (a *Auditor) checkAwake(t *track) {
	if t.takers == nil {
		return
	}
	limit := time.Second + tolerance
	if a.trouble.loss > 0 {
		limit = 2 * time.Second
	}
	t.kept.keep(t.mine)
	left := 0
	for _, other := range t.takers {
		other.took.keep(other.serves())
		both := t.kept.common(other.took)
		if left += len(both); len(both) > 0 && a.at-t.woke > limit {
			a.object("awake", "%s was suspended, and still owns %v of %s after %v", t.now.ID, both, other.now.ID, a.at-t.woke)
		}
	}
	if left == 0 || a.trouble.loss > mostLoss || a.trouble.cut >= t.woke || t.now.Lossy {
		t.takers = nil
	}
}

// serves returns what a node owns that is active and can tell others so.
func (t *track) serves() set {
	if t.ended > 0 || t.now.Lossy || t.answer == nil || t.entering() {
		return nil
	}
	return t.owned()
}

// checkWaits checks how long a node waits to run a partition.
func (a *Auditor) checkWaits(t *track) {
	if len(t.now.News) > 1 { // it may have stopped to wait in between
		clear(t.waits)
	}
	for p := range t.waits {
		if !slices.Contains(t.answer.Waiting, p) {
			delete(t.waits, p)
		}
	}
	for _, p := range t.answer.Waiting {
		if t.waits[p] == 0 || slices.Contains(t.now.Runs, p) { // or it waits for its own earlier run
			t.waits[p] = a.at
		}
		if waited := a.at - max(t.waits[p], t.active); waited > a.Handoff+time.Second+tolerance {
			a.object("wait", "%s has waited %v to run partition %d", t.now.ID, waited, p)
		}
	}
}
