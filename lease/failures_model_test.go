package lease_test

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/explore"
	"github.com/roost-cluster/roost/lease"
)

// The model of confirmed failure has one subject and two watchers, which run real sets. These sets know a third watcher
// only from its messages. Any set may receive any message that was ever sent, at any time, in any order, any number of
// times, or never. A set receives either the whole heartbeat or only its rounded age.

// The invariants. "Once messages flow" means that each set receives all messages that were ever sent, and that a
// running subject sends a heartbeat to refute the reports against it.
const (
	twoNeeded   = "one reporter ends no incarnation"
	ownLife     = "a failure report ends no other incarnation"
	staysEnded  = "without a later heartbeat, what a confirmed failure ended stays ended"
	runsIsLive  = "once messages flow, an incarnation that runs is live everywhere"
	endedByTwo  = "once messages flow, a process that two report after its end is ended everywhere"
	setsAgree   = "once messages flow, all sets agree"
	modelTTL    = 160 * ms // so that ages are rounded to 10 ms
	modelTick   = 6 * ms
	modelRounds = 3 // how often settle delivers all messages
)

// modelFault is a deliberate mistake in the protocol. The tests check that the model finds each mistake.
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

// modelLimits are the maximum numbers of events of each kind.
type modelLimits struct{ ticks, heartbeats, deaths, starts, falsely, failureReports int }

// modelFact is a message that was sent at some time. Any set can receive it.
type modelFact struct {
	heartbeat lease.Stamp // the subject's heartbeat, as received; 0 = a failure report
	sent      lease.Stamp // when it was really sent
	whole     bool
	subject   lease.Handle
	lease.FailureReport
	by   lease.NodeID // watcher
	lost bool
}

type modelWorld struct {
	*modelSetup
	now     time.Time
	subject *modelSet // nil = its process has ended
	life    uint64
	last    map[uint64]lease.Stamp // latest heartbeat of each incarnation
	refute  time.Time              // when the subject sends a heartbeat to refute reports; zero = nobody has reported it
	sets    [2]*modelSet           // sets of the watchers a and b
	facts   []modelFact
	used    modelLimits
	forgot  []lease.FailureReport // reports that the first set has forgotten
	broken  string                // invariant that a step has broken
}

type modelSetup struct {
	modelLimits
	fault  modelFault
	rested map[string]string // results of settle
}

var (
	modelParams   = lease.Params{TTL: modelTTL, MaxSkew: 5 * time.Second, Settings: testParams.Settings}
	modelWatchers = []*lease.Record{rec("a", 1), rec("b", 1), rec("c", 1)}
)

func subjectRecord(life uint64) *lease.Record { return rec("s", life) }

func newModelWorld(s *modelSetup) *modelWorld {
	w := &modelWorld{modelSetup: s, now: epoch, last: make(map[uint64]lease.Stamp)}
	for i := range w.sets {
		w.sets[i] = startModelSet(w.now, modelWatchers[i])
	}
	w.startSubject()
	for i, set := range w.sets {
		for _, r := range modelWatchers {
			set.do(func(s *lease.Set) { s.Apply(w.now, hello(w.now, r)) })
		}
		w.hear(i, w.facts[0])
	}
	return w
}

func startModelSet(now time.Time, r *lease.Record) *modelSet {
	return newModelSet(now, func() *lease.Set { return startSet(now, r, modelParams) })
}

func (w *modelWorld) startSubject() {
	w.life++
	w.subject = startModelSet(w.now, subjectRecord(w.life))
	for _, r := range modelWatchers {
		w.subject.do(func(s *lease.Set) { s.Apply(w.now, hello(w.now, r)) })
	}
	w.refute = time.Time{}
	w.emit()
}

// emit adds the latest heartbeat of the subject to the messages that were sent.
func (w *modelWorld) emit() {
	at := w.subject.sent()
	w.last = maps.Clone(w.last)
	w.last[w.life] = at
	tick := stamps(modelTTL) / 16
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

// heartbeat makes the subject send a heartbeat. No other world may share the subject's set.
func (w *modelWorld) heartbeat() {
	now := w.now
	w.subject.do(func(s *lease.Set) { s.Heartbeat(now, 0, 0) })
	w.emit()
	w.refute = time.Time{}
}

// message returns a message with f for a set. The sender is a member that relays f.
func (w *modelWorld) message(f modelFact, set *modelSet) *lease.Message {
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
			for life := uint64(1); life <= w.life; life++ {
				if h := subjectRecord(life).Handle(); set.AddrOf(h) != "" || set.crashed(life) {
					a.Subject = h
				}
			}
		}
		m.FailureReports = []lease.FailureReport{a}
		if w.fault == doubled {
			a.Watcher = modelWatchers[(slices.IndexFunc(modelWatchers, func(r *lease.Record) bool { return r.ID == f.by })+1)%3].Handle()
			m.FailureReports = append(m.FailureReports, a)
		}
		return m
	}
	b := lease.Heartbeat{Handle: f.subject, At: f.heartbeat, State: lease.Active, Version: 1}
	if !f.whole {
		b.At, b.Renewed = 1, f.heartbeat
	}
	m.Heartbeats = []lease.Heartbeat{b}
	for life := uint64(1); life <= w.life; life++ {
		if r := subjectRecord(life); r.Handle() == f.subject {
			m.Records = []*lease.Record{r}
		}
	}
	return m
}

// hear makes a set receive f, and records invariants that broke. No other world may share the set.
func (w *modelWorld) hear(i int, f modelFact) {
	next := w.sets[i]
	life := w.lifeOf(f.subject)
	var confirmation []lease.FailureReport
	if next.crashed(life) {
		confirmation = slices.Concat(next.against(f.subject), w.forgot)
	}
	now, m := w.now, w.message(f, next)
	next.do(func(s *lease.Set) { s.Apply(now, m) })
	if latest := next.heard[f.subject]; f.whole && f.heartbeat > latest.whole { // even if the set rejects it
		next.heard[f.subject] = heard{f.heartbeat, latest.latest}
	}
	if len(confirmation) > 0 && f.heartbeat != 0 && next.AddrOf(f.subject) != "" {
		later := 0 // failure reports that are valid against the heartbeat
		for _, a := range confirmation {
			if counts(a.At, f.sent) {
				later++
			}
		}
		if later >= 2 {
			w.broken = staysEnded
		}
	}
	w.checkAllEnded(next)
}

// counts reports whether a failure report is valid against a heartbeat. It rounds both times down to ticks of ages.
func counts(at, heartbeat lease.Stamp) bool {
	const tick = lease.Stamp(modelTTL/ms) / 16
	return heartbeat/tick <= at/tick
}

// lifeOf returns the incarnation number of the subject with this handle.
func (w *modelWorld) lifeOf(h lease.Handle) (life uint64) {
	for life = 1; subjectRecord(life).Handle() != h; life++ {
	}
	return life
}

// checkAllEnded calls checkEnded for every incarnation whose failure a set has confirmed.
func (w *modelWorld) checkAllEnded(set *modelSet) {
	for life := uint64(1); life <= w.life; life++ {
		if set.crashed(life) {
			w.checkEnded(subjectRecord(life).Handle())
		}
	}
}

// checkEnded records a broken invariant if a failure was confirmed without the reports of two watchers.
func (w *modelWorld) checkEnded(h lease.Handle) {
	by := make(map[lease.NodeID]bool)
	other := make(map[lease.NodeID]bool)
	for _, f := range w.facts {
		switch {
		case f.heartbeat != 0:
		case f.Subject == h:
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

// reportFailure makes watcher i report that an incarnation of the subject has ended.
func (w *modelWorld) reportFailure(i int, life uint64) {
	h, at := subjectRecord(life).Handle(), stampAt(w.now)
	if i < len(w.sets) {
		set := w.sets[i].copy()
		w.sets[i] = set
		var e lease.Effect
		now := w.now
		set.do(func(s *lease.Set) { e = s.ReportFailure(now, h, now, lease.Refused) })
		if !e.Urgent {
			return // the set knows a later heartbeat
		}
	}
	w.used.failureReports++
	w.add(modelFact{subject: h, FailureReport: lease.FailureReport{h, modelWatchers[i].Handle(), at, lease.Refused}, by: modelWatchers[i].ID})
	for _, set := range w.sets {
		if set.crashed(life) {
			w.checkEnded(h)
		}
	}
}

// tell makes the subject receive a failure report. No other world may share the subject's set.
func (w *modelWorld) tell(f modelFact) {
	var e lease.Effect
	now, m := w.now, w.message(f, w.subject)
	w.subject.do(func(s *lease.Set) { e = s.Apply(now, m) })
	switch {
	case e.Refute.IsZero() || w.fault == mutely:
	case w.fault != hastily:
		w.refute = e.Refute
	case w.used.heartbeats < w.heartbeats:
		w.used.heartbeats++
		w.heartbeat()
	}
}

// pass advances the time. If the subject's heartbeat to refute reports is due, the subject sends it.
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
	if w.fault == forgetful && len(w.forgot) == 0 && w.sets[0].crashed(1) {
		try("a forgets", func(n *modelWorld) {
			n.sets[0] = n.sets[0].copy()
			n.forgot = n.sets[0].against(subjectRecord(1).Handle())
			later := n.now.Add(2 * modelTTL)
			n.sets[0].do(func(s *lease.Set) { s.Expire(later) })
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

// lose drops a failure report after its first arrival, if the fault is to send each report only once.
func (w *modelWorld) lose(i int) {
	if w.fault == sentOnce && w.facts[i].heartbeat == 0 {
		w.facts = slices.Clone(w.facts)
		w.facts[i].lost = true
	}
}

// settle delivers all messages. It returns the invariant that is broken afterwards, or an empty string.
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
		for i, n := 0, len(rest.facts); i < n; i++ { // one set receives them in order, the other in reverse and without whole heartbeats
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
		rest.pass(modelTick) // shorter than a tick of ages, longer than half a tick
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
			status[i] = append(status[i], set.AddrOf(subjectRecord(life).Handle()) != "")
		}
	}
	now := w.life - 1
	by := make(map[lease.NodeID]bool)
	for _, f := range w.facts {
		if f.heartbeat == 0 && f.subject == subjectRecord(w.life).Handle() && counts(f.At, w.last[w.life]) {
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

// own gives this world a copy of the subject's set that no other world shares.
func (w *modelWorld) own() {
	if w.subject != nil {
		w.subject = w.subject.copy()
	}
}

// key identifies this world. Two worlds with the same key behave the same from then on.
func (w *modelWorld) key() string {
	u := w.used
	return w.knowledge() +
		string([]byte{byte(u.ticks), byte(u.heartbeats), byte(u.deaths), byte(u.starts), byte(u.falsely), byte(u.failureReports)})
}

// knowledge encodes what the sets know and which messages were sent.
func (w *modelWorld) knowledge() string {
	b := make([]byte, 0, 256)
	num := func(values ...int64) {
		for _, v := range values {
			b = binary.AppendVarint(b, v)
		}
	}
	since := func(at lease.Stamp) int64 { return max(-1, int64(at-stampAt(epoch))) }
	for _, set := range w.sets {
		b = append(b, set.said()...)
		num(int64(set.Sizes()["known"]))
		for life := uint64(1); life <= w.life; life++ {
			latest := set.heard[subjectRecord(life).Handle()]
			num(since(latest.whole), since(latest.latest))
			if set.crashed(life) {
				num(1)
			}
		}
	}
	if w.subject != nil {
		num(since(w.subject.sent()))
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
		cmp.Compare(f.Subject, o.Subject), cmp.Compare(f.Watcher, o.Watcher), cmp.Compare(f.At, o.At))
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

// modelSet is a set that can be copied. It records all calls, and a copy repeats the calls on a new set.
type modelSet struct {
	*lease.Set
	start func() *lease.Set
	later time.Time // than all calls
	calls []func(*lease.Set)
	heard map[lease.Handle]heard // for each incarnation of the subject that was live here
	sync  *lease.Message         // what the set sends after these calls, at a later time
	wire  []byte                 // sync, encoded; nil = not encoded yet
	ended map[lease.Incarnation]lease.Reason
}

// heard contains two stamps of an incarnation: the latest heartbeat that arrived whole, and the latest heartbeat of
// which at least the age arrived.
type heard struct{ whole, latest lease.Stamp }

func newModelSet(now time.Time, start func() *lease.Set) *modelSet {
	m := &modelSet{Set: start(), start: start, later: now.Add(time.Minute), heard: make(map[lease.Handle]heard)}
	m.note()
	return m
}

func (m *modelSet) copy() *modelSet {
	next := *m
	next.Set, next.calls, next.heard = m.start(), slices.Clone(m.calls), maps.Clone(m.heard)
	for _, call := range m.calls {
		call(next.Set)
	}
	return &next
}

func (m *modelSet) do(call func(*lease.Set)) {
	call(m.Set)
	m.calls = append(m.calls, call)
	m.note()
}

// note records what the set sends, and which leases have ended in it.
func (m *modelSet) note() {
	m.sync, m.wire, m.ended = m.Sync(m.later), nil, m.Ended()
	for _, b := range m.sync.Heartbeats {
		m.heard[b.Handle] = heard{b.At, b.Renewed}
	}
}

// said returns the encoded form of what the set sends.
func (m *modelSet) said() []byte {
	if m.wire == nil {
		m.wire = lease.Encode(m.sync)
	}
	return m.wire
}

// sent returns when the node of the set sent its latest heartbeat.
func (m *modelSet) sent() lease.Stamp { return m.Stamp(m.Renewed()) }

// crashed reports whether a confirmed failure ended an incarnation of the subject.
func (m *modelSet) crashed(life uint64) bool {
	return m.ended[lease.Incarnation{Node: "s", Number: life}] == lease.Crashed
}

// against returns the failure reports against an incarnation.
func (m *modelSet) against(h lease.Handle) (reports []lease.FailureReport) {
	for _, a := range m.sync.FailureReports {
		if a.Subject == h {
			reports = append(reports, a)
		}
	}
	return reports
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
