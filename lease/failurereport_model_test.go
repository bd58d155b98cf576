package lease

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/explore"
)

func (w *modelWorld) next(visit func(string, *modelWorld)) {
	try := func(what string, do func(*modelWorld)) {
		next := *w
		do(&next)
		visit(what, &next)
	}
	if w.used.ticks < w.ticks {
		try("time passes", func(n *modelWorld) { n.used.ticks++; n.own(); n.pass(modelTick) })
	}
	if w.subject != nil && w.used.heartbeats < w.heartbeats {
		try("the subject heartbeats", func(n *modelWorld) { n.used.heartbeats++; n.own(); n.heartbeat() })
	}
	if w.subject != nil && w.used.deaths < w.deaths {
		try("the subject ends", func(n *modelWorld) { n.used.deaths++; n.subject = nil })
	}
	if w.subject == nil && w.used.starts < w.starts {
		try("the subject starts again", func(n *modelWorld) { n.used.starts++; n.startSubject() })
	}
	w.nextFailureReports(try)
	for i := range w.facts {
		f := w.facts[i]
		if f.lost {
			continue
		}
		for k := range w.sets {
			try(fmt.Sprintf("%s receives %v", modelWatchers[k].ID, f), func(n *modelWorld) {
				n.sets[k] = n.sets[k].copy()
				n.hear(k, f)
				n.lose(i)
			})
		}
		if w.subject != nil && f.heartbeat == 0 {
			try(fmt.Sprintf("the subject receives %v", f), func(n *modelWorld) { n.own(); n.tell(f); n.lose(i) })
		}
	}
	if w.problem == forgetful && len(w.forgot) == 0 {
		try("a forgets", func(n *modelWorld) {
			n.sets[0] = n.sets[0].copy()
			n.forgot = n.sets[0].known[subjectRecord(1).Handle()].failureReports()
			n.sets[0].dropFailureReports()
		})
	}
}

func (w *modelWorld) nextFailureReports(try func(string, func(*modelWorld))) {
	for i := range modelWatchers {
		if w.used.failureReports >= w.failureReports {
			return
		}
		for life := uint64(1); life <= w.life; life++ {
			runs := life == w.life && w.subject != nil
			if runs && w.used.falsely >= w.falsely {
				continue
			}
			try(fmt.Sprintf("%s reports #%d", modelWatchers[i].ID, life), func(n *modelWorld) {
				if runs {
					n.used.falsely++
				}
				n.reportFailure(i, life)
			})
		}
	}
}

// lose drops a failure report after its first arrival, if it is sent once.
func (w *modelWorld) lose(i int) {
	if w.problem == sentOnce && w.facts[i].heartbeat == 0 {
		w.facts = slices.Clone(w.facts)
		w.facts[i].lost = true
	}
}

// settle returns the invariant that does not hold once messages flow.
func (w *modelWorld) settle() string {
	key := w.knowledge()
	if found, known := w.rested[key]; known {
		return found
	}
	rest := *w
	rest.own()
	for i, set := range rest.sets {
		rest.sets[i] = set.copy()
	}
	for range modelRounds {
		for i, n := 0, len(rest.facts); i < n; i++ { // forwards to one set, backwards and without whole heartbeats to the other
			if there := rest.facts[n-1-i]; !there.lost && !there.whole {
				rest.hear(1, there)
			}
			if rest.facts[i].lost {
				continue
			}
			rest.hear(0, rest.facts[i])
			if rest.subject != nil && rest.facts[i].heartbeat == 0 {
				rest.tell(rest.facts[i])
			}
		}
		rest.pass(modelTick) // less than a cell, and more than a half
		rest.pass(modelTick)
	}
	found := rest.wrongAtRest()
	w.rested[key] = found
	return found
}

func (w *modelWorld) wrongAtRest() string {
	var status [2][]bool
	for i, set := range w.sets {
		for life := uint64(1); life <= w.life; life++ {
			e := set.known[subjectRecord(life).Handle()]
			status[i] = append(status[i], e != nil && e.status == live)
		}
	}
	now := w.life - 1
	by := make(map[NodeID]bool)
	for _, f := range w.facts {
		if f.heartbeat == 0 && f.subject == subjectRecord(w.life).Handle() && w.sets[0].counts(f.At, w.last[w.life]) {
			by[f.by] = true
		}
	}
	switch {
	case w.broken != "":
		return w.broken
	case w.subject != nil && (!status[0][now] || !status[1][now]):
		return runsIsLive
	case !slices.Equal(status[0], status[1]):
		return setsAgree
	case w.subject == nil && len(by) >= 2 && status[0][now]:
		return endedByTwo
	}
	return ""
}

// own makes the set of the subject one that is part of no other world.
func (w *modelWorld) own() {
	if w.subject != nil {
		w.subject = w.subject.copy()
	}
}

// key has all that the future depends on.
func (w *modelWorld) key() string {
	u := w.used
	return w.knowledge() + string([]byte{byte(u.ticks), byte(u.heartbeats), byte(u.deaths), byte(u.starts), byte(u.falsely), byte(u.failureReports)})
}

// knowledge has what the sets know, and what was sent.
func (w *modelWorld) knowledge() string {
	b := make([]byte, 0, 256)
	num := func(values ...int64) {
		for _, v := range values {
			b = binary.AppendVarint(b, v)
		}
	}
	since := func(at Stamp) int64 { return max(-1, int64(at-stampAt(epoch))) }
	for _, set := range w.sets {
		for life := uint64(1); life <= w.life; life++ {
			e := set.known[subjectRecord(life).Handle()]
			if e == nil {
				num(-1)
				continue
			}
			num(int64(e.status), since(e.at), since(e.rowAt), int64(len(e.failureReports())))
			if e.crashed {
				num(1)
			}
			for _, a := range e.failureReports() {
				num(int64(a.id[0]), since(a.At))
			}
		}
		num(int64(len(set.reported)))
	}
	if w.subject != nil {
		num(since(w.subject.self.at))
		if !w.refute.IsZero() {
			num(since(stampAt(w.refute)))
		}
	}
	num(int64(len(w.forgot)))
	num(-2, w.now.UnixMilli()-epoch.UnixMilli(), int64(w.life))
	facts := slices.Clone(w.facts)
	slices.SortFunc(facts, modelFact.compare)
	for _, f := range facts {
		num(since(f.heartbeat), since(f.sent), int64(f.subject), since(f.At))
		b = append(b, f.by...)
		if f.lost {
			b = append(b, '-')
		}
	}
	return string(b) + w.broken
}

func (f modelFact) compare(o modelFact) int {
	return cmp.Or(cmp.Compare(f.heartbeat, o.heartbeat), cmp.Compare(f.sent, o.sent), cmp.Compare(f.subject, o.subject),
		f.FailureReport.compare(o.FailureReport))
}

func (f modelFact) String() string {
	switch {
	case f.heartbeat == 0:
		return fmt.Sprintf("the failure report of %s at +%d", f.by, f.At-stampAt(epoch))
	case f.whole:
		return fmt.Sprintf("the heartbeat of +%d", f.heartbeat-stampAt(epoch))
	}
	return fmt.Sprintf("the age of a heartbeat, +%d", f.heartbeat-stampAt(epoch))
}

// copy returns a set that shares nothing with s that the model changes.
func (s *Set) copy() *Set {
	c, of := *s, make(map[*entry]*entry)
	clone := func(e *entry) *entry {
		if e == nil || of[e] != nil {
			return of[e]
		}
		next, v := *e, *e.vitals
		next.vitals = &v
		if e.rare != nil {
			r := *e.rare
			next.rare, r.failureReports = &r, slices.Clone(r.failureReports)
		}
		of[e] = &next
		return &next
	}
	c.known = make(map[Handle]*entry)
	for h, e := range s.known {
		c.known[h] = clone(e)
	}
	c.self, c.duplicate.entry = clone(s.self), clone(s.duplicate.entry)
	lists := []*[]*entry{&c.nodes, &c.live, &c.reported}
	for _, list := range lists {
		*list = slices.Clone(*list)
		for i, e := range *list {
			(*list)[i] = clone(e)
		}
	}
	c.order, c.vitals = slices.Clone(s.order), make([]*vitals, len(s.live))
	for i, e := range c.live {
		c.vitals[i] = e.vitals
	}
	c.rows, c.candidates, c.begun, c.peers = nil, nil, nil, nil
	c.requested, c.differs, c.ahead = make(map[Handle]time.Time), make(map[BucketID]difference), make(map[Handle]aheadClock)
	c.pieces = [maxBits + 1][]piece{}
	return &c
}

func (s modelSetup) explore() explore.Result[string] {
	s.rested = make(map[string]string)
	m := explore.Model[*modelWorld, string]{
		Start:     []*modelWorld{newModelWorld(&s)},
		Key:       (*modelWorld).key,
		Next:      func(w *modelWorld, visit func(string, *modelWorld)) { w.next(visit) },
		MaxStates: 300_000,
	}
	for _, name := range []string{twoNeeded, ownLife, staysEnded, endedByTwo, runsIsLive, setsAgree} {
		m.Invariants = append(m.Invariants, explore.Invariant[*modelWorld]{
			Name: name, Holds: func(w *modelWorld) bool { return w.settle() != name },
		})
	}
	return m.Run()
}

func TestConfirmedFailure(t *testing.T) {
	for _, c := range []struct {
		name   string
		long   bool
		limits modelLimits
	}{
		{"an end", false, modelLimits{ticks: 2, heartbeats: 1, deaths: 1, failureReports: 2}},
		{"an end, three report", true, modelLimits{ticks: 1, heartbeats: 1, deaths: 1, failureReports: 3}},
		{"false failure reports", true, modelLimits{ticks: 2, falsely: 2, failureReports: 2}},
		{"false failure reports at once", false, modelLimits{ticks: 1, heartbeats: 1, falsely: 2, failureReports: 2}},
		{"a false one and an end", true, modelLimits{ticks: 1, heartbeats: 1, deaths: 1, falsely: 1, failureReports: 2}},
		{"a restart", false, modelLimits{ticks: 1, heartbeats: 0, deaths: 1, starts: 1, failureReports: 2}},
		{"a restart, falsely reported", true, modelLimits{ticks: 1, heartbeats: 0, deaths: 1, starts: 1, falsely: 1, failureReports: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.long && testing.Short() {
				t.Skip("takes seconds")
			}
			begin := time.Now()
			r := modelSetup{modelLimits: c.limits}.explore()
			if !r.Whole {
				t.Fatal(r)
			}
			t.Log(r, time.Since(begin))
		})
	}
}

func TestConfirmedFailureFaults(t *testing.T) {
	for _, c := range []struct {
		problem modelFault
		broken  string
		limits  modelLimits
	}{
		{doubled, twoNeeded, modelLimits{deaths: 1, failureReports: 1}},
		{dated, runsIsLive, modelLimits{ticks: 1, heartbeats: 1, falsely: 2, failureReports: 2}},
		{anySubject, ownLife, modelLimits{ticks: 1, deaths: 1, starts: 1, failureReports: 2}},
		{mutely, runsIsLive, modelLimits{ticks: 1, falsely: 2, failureReports: 2}},
		{hastily, runsIsLive, modelLimits{ticks: 1, heartbeats: 1, falsely: 2, failureReports: 2}},
		{forgetful, staysEnded, modelLimits{ticks: 2, heartbeats: 1, deaths: 1, failureReports: 2}},
		{sentOnce, setsAgree, modelLimits{ticks: 1, deaths: 1, failureReports: 2}},
		{roundedUp, staysEnded, modelLimits{ticks: 2, heartbeats: 1, deaths: 1, failureReports: 2}},
		{tooEarly, endedByTwo, modelLimits{ticks: 2, heartbeats: 1, deaths: 1, failureReports: 2}},
	} {
		t.Run(string(c.problem), func(t *testing.T) {
			r := modelSetup{modelLimits: c.limits, problem: c.problem}.explore()
			if r.Broken != c.broken {
				t.Errorf("want a state that breaks %q", c.broken)
			}
			t.Log(r)
		})
	}
}
