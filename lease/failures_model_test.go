package lease

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/explore"
)

// The model of confirmed failure: a subject and two watchers run real sets; a third watcher is
// known to them by its failure reports alone. What was ever sent may be received at any time,
// in any order, any number of times, or never. Heartbeats are received whole, or as a
// rounded age.

// The invariants. "Once messages flow" means that each set receives all that was ever sent, and
// a reported subject that runs sends the heartbeat that refutes it.
const (
	twoNeeded   = "one reporter ends no incarnation"
	ownLife     = "a failure report ends no other incarnation"
	staysEnded  = "without a later heartbeat, what a confirmed failure ended stays ended"
	runsIsLive  = "once messages flow, an incarnation that runs is live everywhere"
	endedByTwo  = "once messages flow, a process that two report after its end is ended everywhere"
	setsAgree   = "once messages flow, all sets agree"
	modelTTL    = 160 * ms // so that ages are rounded to 10 ms
	modelTick   = 6 * ms
	modelRounds = 3 // of all messages, until the sets are at rest
)

// modelFault makes the world break one part of the rule.
type modelFault string

const (
	noFault    modelFault = ""
	doubled    modelFault = "counts a doubled failure report twice"
	dated      modelFault = "dates a failure report when it arrives"
	anySubject modelFault = "takes a failure report for any incarnation of its subject"
	mutely     modelFault = "does not refute"
	hastily    modelFault = "refutes in the tick of the failure report"
	forgetful  modelFault = "forgets failure reports early"
	sentOnce   modelFault = "sends a failure report once"
	roundedUp  modelFault = "rounds ages up"
	tooEarly   modelFault = "dates a failure report before the end"
)

// modelLimits say how often something may happen.
type modelLimits struct{ ticks, heartbeats, deaths, starts, falsely, failureReports int }

// modelFact is what was sent, at some time, for any set.
type modelFact struct {
	heartbeat Stamp // of the subject, as received; 0 = a failure report
	sent      Stamp // when it was really sent
	whole     bool
	subject   Handle
	FailureReport
	by   NodeID // watcher
	lost bool
}

type modelWorld struct {
	*modelSetup
	now     time.Time
	subject *Set // nil = it has ended
	life    uint64
	last    map[uint64]Stamp // the last heartbeat of each life
	refute  time.Time        // when the subject sends a heartbeat that refutes; zero = it is not reported
	sets    [2]*Set          // of the watchers a and b
	facts   []modelFact
	used    modelLimits
	forgot  []failureReport // by the first set
	broken  string          // invariant that a step broke
}

type modelSetup struct {
	modelLimits
	fault  modelFault
	rested map[string]string // what settle found
}

var (
	modelParams   = Params{TTL: modelTTL, MaxSkew: 5 * time.Second, Settings: testParams.Settings}
	modelWatchers = []*Record{rec("a", 1), rec("b", 1), rec("c", 1)}
)

func subjectRecord(life uint64) *Record { return rec("s", life) }

func newModelWorld(s *modelSetup) *modelWorld {
	w := &modelWorld{modelSetup: s, now: epoch, last: make(map[uint64]Stamp)}
	for i := range w.sets {
		w.sets[i] = startSet(w.now, modelWatchers[i], modelParams)
	}
	w.startSubject()
	for i, set := range w.sets {
		for _, r := range modelWatchers {
			set.Apply(w.now, hello(w.now, r))
		}
		w.hear(i, w.facts[0])
	}
	return w
}

func (w *modelWorld) startSubject() {
	w.life++
	w.subject = startSet(w.now, subjectRecord(w.life), modelParams)
	for _, r := range modelWatchers {
		w.subject.Apply(w.now, hello(w.now, r))
	}
	w.refute = time.Time{}
	w.emit()
}

// emit notes the present heartbeat of the subject.
func (w *modelWorld) emit() {
	at := w.subject.self.at
	w.last = maps.Clone(w.last)
	w.last[w.life] = at
	tick := stamps(modelTTL) / ageLevels
	rounded := at / tick * tick
	if w.fault == roundedUp {
		rounded += tick
	}
	h := subjectRecord(w.life).Handle()
	w.add(modelFact{heartbeat: at, sent: at, whole: true, subject: h})
	w.add(modelFact{heartbeat: rounded, sent: at, subject: h})
}

func (w *modelWorld) add(f modelFact) {
	if !slices.Contains(w.facts, f) {
		w.facts = append(slices.Clone(w.facts), f)
	}
}

// heartbeat has the subject send a heartbeat. Its set is not part of another world.
func (w *modelWorld) heartbeat() {
	w.subject.Heartbeat(w.now, 0, 0)
	w.emit()
	w.refute = time.Time{}
}

// message returns what brings f to a set: a relay is a member.
func (w *modelWorld) message(f modelFact, set *Set) *Message {
	m := messageFrom(w.now, modelWatchers[2], nil)
	if f.heartbeat == 0 {
		a := f.FailureReport
		if w.fault == dated {
			a.At = stampAt(w.now)
		}
		if w.fault == tooEarly {
			a.At -= stamps(2 * modelTick)
		}
		if w.fault == anySubject {
			if e := set.latest("s"); e != nil {
				a.Subject = e.handle
			}
		}
		m.FailureReports = []FailureReport{a}
		if w.fault == doubled {
			a.Watcher = modelWatchers[(slices.IndexFunc(modelWatchers, func(r *Record) bool { return r.ID == f.by })+1)%3].Handle()
			m.FailureReports = append(m.FailureReports, a)
		}
		return m
	}
	b := Heartbeat{Handle: f.subject, At: f.heartbeat, State: Active, Version: 1}
	if !f.whole {
		b.At, b.Renewed = 1, f.heartbeat
	}
	m.Heartbeats = []Heartbeat{b}
	for life := uint64(1); life <= w.life; life++ {
		if r := subjectRecord(life); r.Handle() == f.subject {
			m.Records = []*Record{r}
		}
	}
	return m
}

// hear has a set receive f, and notes what broke. The set is not part of another world.
func (w *modelWorld) hear(i int, f modelFact) {
	next := w.sets[i]
	before := next.known[f.subject]
	var confirmation []failureReport
	if before != nil && before.crashed {
		confirmation = slices.Concat(before.failureReports(), w.forgot)
	}
	next.Apply(w.now, w.message(f, next))
	after := next.known[f.subject]
	if len(confirmation) > 0 && f.heartbeat != 0 && after.status == live {
		later := 0 // failure reports that hold against the heartbeat
		for _, a := range confirmation {
			if next.failures.counts(a.At, f.sent) {
				later++
			}
		}
		if later >= 2 {
			w.broken = staysEnded
		}
	}
	for life := uint64(1); life <= w.life; life++ {
		if e := next.known[subjectRecord(life).Handle()]; e != nil && e.crashed {
			w.checkEnded(e)
		}
	}
}

// checkEnded notes which invariants the end of an incarnation breaks.
func (w *modelWorld) checkEnded(e *entry) {
	by := make(map[NodeID]bool)
	other := make(map[NodeID]bool)
	for _, f := range w.facts {
		switch {
		case f.heartbeat != 0:
		case f.Subject == e.handle:
			by[f.by] = true
		default:
			other[f.by] = true
		}
	}
	switch {
	case len(by) == 0 || (len(by) < 2 && len(other) > 0):
		w.broken = ownLife
	case len(by) < 2:
		w.broken = twoNeeded
	}
}

// reportFailure has watcher i report the present or former life of the subject.
func (w *modelWorld) reportFailure(i int, life uint64) {
	h, at := subjectRecord(life).Handle(), stampAt(w.now)
	if i < len(w.sets) {
		set := w.sets[i].copy()
		w.sets[i] = set
		if !set.ReportFailure(w.now, h, w.now, Refused).Urgent {
			return // it knows a later heartbeat
		}
	}
	w.used.failureReports++
	w.add(modelFact{subject: h, FailureReport: FailureReport{h, modelWatchers[i].Handle(), at, Refused}, by: modelWatchers[i].ID})
	for _, set := range w.sets {
		if e := set.known[h]; e != nil && e.crashed {
			w.checkEnded(e)
		}
	}
}

// tell has the subject receive a failure report. Its set is not part of another world.
func (w *modelWorld) tell(f modelFact) {
	s := w.subject
	e := s.Apply(w.now, w.message(f, s))
	switch {
	case e.Refute.IsZero() || w.fault == mutely:
	case w.fault != hastily:
		w.refute = e.Refute
	case w.used.heartbeats < w.heartbeats:
		w.used.heartbeats++
		w.heartbeat()
	}
}

// pass lets time pass. The subject refutes when it is time.
func (w *modelWorld) pass(d time.Duration) {
	w.now = w.now.Add(d)
	if w.subject != nil && !w.refute.IsZero() && !w.now.Before(w.refute) {
		w.heartbeat()
	}
}

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
	if w.fault == forgetful && len(w.forgot) == 0 {
		try("a forgets", func(n *modelWorld) {
			n.sets[0] = n.sets[0].copy()
			n.forgot = n.sets[0].known[subjectRecord(1).Handle()].failureReports()
			n.sets[0].failures.drop()
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
	if w.fault == sentOnce && w.facts[i].heartbeat == 0 {
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
		if f.heartbeat == 0 && f.subject == subjectRecord(w.life).Handle() && w.sets[0].failures.counts(f.At, w.last[w.life]) {
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
	return w.knowledge() +
		string([]byte{byte(u.ticks), byte(u.heartbeats), byte(u.deaths), byte(u.starts), byte(u.falsely), byte(u.failureReports)})
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
	c.spread.candidates, c.rows.picked, c.begun, c.peers.reachable = nil, nil, nil, nil
	c.requested, c.ages.differs, c.ahead = make(map[Handle]time.Time), make(map[BucketID]difference), make(map[Handle]aheadClock)
	c.buckets.pieces = [maxBits + 1][]piece{}
	c.connect()
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
		{"an end, three reports", true, modelLimits{ticks: 1, heartbeats: 1, deaths: 1, failureReports: 3}},
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
		fault  modelFault
		broken string
		limits modelLimits
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
		t.Run(string(c.fault), func(t *testing.T) {
			r := modelSetup{modelLimits: c.limits, fault: c.fault}.explore()
			if r.Broken != c.broken {
				t.Errorf("want a state that breaks %q", c.broken)
			}
			t.Log(r)
		})
	}
}
