package lease

import (
	"maps"
	"slices"
	"time"
)

// The model of confirmed failure: a subject and two watchers run real sets; a third watcher is
// known to them by its failure reports alone. What was ever sent may be received at any time,
// in any order, any number of times, or never. Heartbeats are received whole, or as a
// rounded age.

// The invariants. "Once messages flow" means that each set receives all that was ever sent, and
// an reported subject that runs sends the heartbeat that refutes it.
const (
	twoNeeded   = "one reporter ends no incarnation"
	ownLife     = "a failure report ends no other incarnation"
	staysEnded  = "without a later heartbeat, what was ended by confirmation stays ended"
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
	hastily    modelFault = "refutes in the cell of the failure report"
	forgetful  modelFault = "forgets failure reports early"
	sentOnce   modelFault = "sends a failure report once"
	roundedUp  modelFault = "rounds ages up"
	tooEarly   modelFault = "dates a failure report before the end"
)

// modelLimits say how often something may happen.
type modelLimits struct{ ticks, heartbeats, deaths, starts, falsely, failureReports int }

// fact is what was sent, at some time, for any set.
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
	refute  time.Time        // when the subject sends one that refutes; zero = it is not reported
	sets    [2]*Set          // of the watchers a and b
	facts   []modelFact
	used    modelLimits
	forgot  []failureReport // by the first set
	broken  string          // invariant that a step broke
}

type modelSetup struct {
	modelLimits
	problem modelFault
	rested  map[string]string // what settle found
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
	if w.problem == roundedUp {
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
		if w.problem == dated {
			a.At = stampAt(w.now)
		}
		if w.problem == tooEarly {
			a.At -= stamps(2 * modelTick)
		}
		if w.problem == anySubject {
			if e := set.latest("s"); e != nil {
				a.Subject = e.handle
			}
		}
		m.FailureReports = []FailureReport{a}
		if w.problem == doubled {
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
			if next.counts(a.At, f.sent) {
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

// checkEnded notes problems of the end of an incarnation.
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

// report has watcher i report the present or former life of the subject.
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
	case e.Refute.IsZero() || w.problem == mutely:
	case w.problem != hastily:
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
