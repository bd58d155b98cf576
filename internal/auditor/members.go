package auditor

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	leaves  = 2 * time.Second // until all nodes know that a node has left
	publish = 3 * time.Second // for which a node may combine changes
)

// checkMembers compares the members in an answer with those in the answer before.
func (a *Auditor) checkMembers(t *track) {
	before := t.known
	t.known = make(map[name]*track, len(t.answer.Members))
	for _, m := range t.answer.Members {
		n := name{m.ID, m.Incarnation}
		if t.known[n] = before[n]; before[n] == nil {
			a.meet(t, n)
		}
	}
	now := slices.Collect(maps.Values(t.known))
	for n, other := range before {
		if _, still := t.known[n]; still {
			continue
		}
		delete(t.unknown, n)
		if other != nil {
			a.checkLost(t, other, n)
		}
		if !slices.Contains(now, other) { // not even by a later incarnation
			delete(t.met, other)
		}
	}
	flapping := false
	for _, m := range t.answer.Members {
		flapping = flapping || m.ID == t.now.ID && m.Flapping
	}
	if flapping != t.flapping {
		t.flapping, a.shifted = flapping, a.at
	}
}

// meet records the process that is a new member of t, or whose incarnation was not known yet.
func (a *Auditor) meet(t *track, n name) {
	other := a.named[n]
	if other == nil {
		if t.unknown[n] == 0 {
			t.unknown[n] = a.at
			a.checkInvented(t, n)
		}
		return
	}
	delete(t.unknown, n)
	t.known[n], t.met[other] = other, a.at
	a.checkNew(t, other)
}

// checkUnknown looks for members with an incarnation that no process has taken.
func (a *Auditor) checkUnknown(t *track) {
	for n, since := range t.unknown {
		if a.meet(t, n); t.known[n] == nil && a.at-max(since, t.active) > publish {
			a.object("invented", "%s has a member %v, and no process has this incarnation after %v", t.now.ID, n, a.at-since)
		}
	}
}

// checkInvented checks a member that is no known incarnation of a process.
func (a *Auditor) checkInvented(t *track, n name) {
	for _, other := range a.running {
		if other.now.ID == n.id {
			return // it may just have taken a later incarnation
		}
	}
	a.object("invented", "%s has a member %v, which never ran", t.now.ID, n)
}

func (a *Auditor) checkNew(t, other *track) {
	switch ago := a.at - other.ended; {
	case other.ended == 0:
	case ago > a.goneAfter(t, other)+publish:
		a.object("gone", "%s has a new member %s, which ended %v ago", t.now.ID, other.now.ID, ago)
	case t.dropped[other] && a.atPeace(t, other):
		a.object("gone", "%s takes %s back, which ended %v ago", t.now.ID, other.now.ID, ago)
	}
}

func (a *Auditor) checkLost(t, other *track, n name) {
	t.lost[other.now.ID] = append(t.lost[other.now.ID], other)
	if other.ended > 0 {
		t.dropped[other] = !t.forgets
		return
	}
	a.lostAlive(t, other, n)
}

// lostAlive records that t has lost a process that runs.
func (a *Auditor) lostAlive(t, other *track, n name) {
	t.lostAt[other.now.ID] = a.at
	current := n.number == other.now.Incarnation
	if current && a.at-max(t.began, other.began) > a.TTL && a.atPeace(t, other) {
		a.object("alive", "%s lost %s, which runs", t.now.ID, other.now.ID)
	}
}

// checkBrief looks for a member that t has lost, and that is in all of its answers.
func (a *Auditor) checkBrief(t *track, id, reason string) {
	for n, other := range t.known {
		if n.id == id && other != nil && other.ended == 0 && reason != "replaced" {
			a.lostAlive(t, other, n)
			if reason == "left" && !a.toldToLeave(id, nil) {
				a.object("reason", "%s: %s left, although it was not told to leave", t.now.ID, id)
			}
		}
	}
}

// toldToLeave reports whether one of the processes that a node has lost was told to leave, or another process with this
// id a short time ago. The node may have had that process only between two answers.
func (a *Auditor) toldToLeave(id string, lost []*track) bool {
	for _, t := range a.all {
		if t.now.ID == id && t.left && (a.at-t.ended < 2*a.TTL || slices.Contains(lost, t)) {
			return true
		}
	}
	return false
}

// checkReasons checks why members have left.
func (a *Auditor) checkReasons(t *track) {
	for i := range t.now.News {
		for id, reason := range t.now.News[i].Reasons {
			lost := t.lost[id]
			delete(t.lost, id)
			if len(lost) == 0 {
				a.checkBrief(t, id, reason)
				continue
			}
			switch last := lost[len(lost)-1]; {
			case reason == "left" && !a.toldToLeave(id, lost):
				a.object("reason", "%s: %s left, although it was not told to leave", t.now.ID, id)
			case reason != "left" && reason != "replaced" && last.left && a.trouble.loss == 0 && a.atPeace(t, last) &&
				a.trouble.cut < last.ended: // otherwise the message may not have arrived
				a.object("reason", "%s: %s was told to leave, and is %s", t.now.ID, id, reason)
			}
		}
	}
}

// goneAfter returns how long a process that has ended, or hangs, may remain a member of t.
func (a *Auditor) goneAfter(t, other *track) time.Duration {
	switch {
	case other.ended == 0 || !a.atPeace(t, other):
		return 2*a.TTL + 3*time.Second
	case other.left && (a.trouble.loss == 0 || !a.cutOff(other)): // otherwise all copies of its last message may be lost
		return leaves
	}
	return a.TTL + time.Second
}

// checkGone looks for members that have ended, or hang.
func (a *Auditor) checkGone(t *track) {
	for _, m := range t.answer.Members {
		n := name{m.ID, m.Incarnation}
		other := t.known[n]
		if other == nil || other.ended == 0 && other.stopped == 0 {
			continue
		}
		since, limit := cmp.Or(other.ended, other.stopped), a.goneAfter(t, other)
		switch later := t.outlived(other.ended); {
		case other.ended == 0:
		case a.cutOff(t):
			limit += publish // it waits for the lease of the node that it does not reach
		case !other.left && later < a.TTL/2:
			limit += later // nobody is left, so it may be cut off itself, and waits for all leases
		}
		if a.at-max(since, t.active) > limit {
			a.object("gone", "%s has a member %v, which ended, left or hangs for %v", t.now.ID, n, a.at-since)
		}
	}
}
