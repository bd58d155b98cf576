package auditor

import (
	"fmt"
	"slices"
	"time"
)

// Auditor judges a fleet. Use [New].
type Auditor struct {
	Settings
	Objections []Objection // at most one for each rule

	at      time.Duration
	all     map[int]*track  // by Run
	named   map[name]*track // by incarnation
	running []*track        // that have not ended, the earliest first
	trouble trouble
	orders  map[string][]Order  // by the id of the cordoned node
	tables  map[string][]string // owners, by candidates
	double  map[[2]*track]time.Duration

	skewed  bool          // a clock was wrong
	shifted time.Duration // when cordons, flapping or processes last changed by themselves
	judged  time.Duration // the last change before the last look of checkFleet
	resting []*track      // that have agreed since then; nil = it is too early
}

// name identifies an incarnation.
type name struct {
	id     string
	number uint64
}

// track is what the auditor remembers about a process.
type track struct {
	now            *Process
	answer         *Answer // the last
	mine           set     // what it owns by this answer
	began, ended   time.Duration
	left           bool
	stopped        time.Duration // since when; 0 = not
	suspended      bool
	active         time.Duration // since when it answers and is active
	continued      time.Duration // when it last continued after a pause
	trouble        time.Duration
	twin           *track // another running process with the same id
	twins, bothOwn time.Duration

	known    map[name]*track          // its members; nil = no process had this incarnation yet
	unknown  map[name]time.Duration   // since when
	met      map[*track]time.Duration // since when they are members
	dropped  map[*track]bool          // after they had ended
	forgets  bool                     // its newest answer shows a fence that forgets members
	lost     map[string][]*track      // members with this id that it has lost, and has not named to its application yet
	lostAt   map[string]time.Duration // when it last lost a process that runs
	always   ledger
	seldom   ledger
	missed   set           // released since the watcher that reads seldom last read
	must     set           // what it has to release before it owns it again
	untold   time.Duration // since when its application should know that it has lost partitions; 0 = it knows
	woke     time.Duration // when its host last continued after a suspension
	kept     set
	takers   []taker
	idle     time.Duration // since when it has to own nothing
	table    *Table        // the last that was not stale
	strange  time.Duration // since when a candidate is no member
	waits    map[int]time.Duration
	overran  time.Duration
	cordons  map[string]Cordon // in force
	over     []Cordon          // that it has seen end
	flapping bool
}

// taker is a member of a node that was suspended, with what it owned when the node continued.
type taker struct {
	*track

	took set
}

// New returns an auditor of a fleet.
func New(s Settings) *Auditor {
	return &Auditor{
		Settings: s, all: make(map[int]*track), named: make(map[name]*track), orders: make(map[string][]Order),
		tables: make(map[string][]string), double: make(map[[2]*track]time.Duration), judged: -1,
		trouble: trouble{links: make(map[Cut]time.Duration)},
	}
}

// object records an objection, unless the rule was broken before.
func (a *Auditor) object(rule, format string, args ...any) {
	if !slices.ContainsFunc(a.Objections, func(o Objection) bool { return o.Rule == rule }) {
		a.Objections = append(a.Objections, Objection{rule, fmt.Sprintf(format, args...), a.at})
	}
}

// Observe judges the next observation.
func (a *Auditor) Observe(o *Observation) {
	passed := o.At - a.at
	a.at = o.At
	for _, order := range o.Orders {
		a.checkOrder(order)
	}
	for _, p := range o.Processes {
		a.follow(p)
	}
	a.pairTwins()
	a.note(o)
	a.noteSleep(passed)
	for _, t := range slices.Clone(a.running) {
		a.checkTold(t, a.answered(t))
		a.checkTimes(t)
	}
	for _, overlap := range o.Overlaps {
		a.checkOverlap(overlap)
	}
	a.checkPairs()
	a.checkFleet(o)
}

// follow records what the harness knows about a process.
func (a *Auditor) follow(p *Process) {
	t := a.all[p.Run]
	if t == nil {
		t = &track{
			began: a.at, active: a.at, known: make(map[name]*track), unknown: make(map[name]time.Duration),
			met: make(map[*track]time.Duration), missed: make(set, a.Partitions),
			dropped: make(map[*track]bool), lost: make(map[string][]*track), lostAt: make(map[string]time.Duration), waits: make(map[int]time.Duration),
			cordons: make(map[string]Cordon),
		}
		a.all[p.Run] = t
		a.running = append(a.running, t)
		a.shifted = a.at
	}
	t.now = p
	a.skewed = a.skewed || p.Clock != 0
	if p.Incarnation != 0 {
		a.named[name{p.ID, p.Incarnation}] = t
	}
	switch p.Status {
	case Left, Dead:
		t.ended, t.left, t.stopped, a.shifted = a.at, p.Status == Left, 0, a.at
		a.running = slices.DeleteFunc(a.running, func(o *track) bool { return o == t })
	case Paused, Suspended:
		if t.suspended = p.Status == Suspended; t.stopped == 0 {
			t.stopped = a.at
		}
	case Running:
		if t.stopped > 0 {
			a.continues(t, a.at-t.stopped)
			t.stopped = 0
		}
	}
}

// continues records that a process continues after a pause.
func (a *Auditor) continues(t *track, pause time.Duration) {
	t.idle, t.untold, t.active, t.continued = 0, 0, a.at, a.at
	clear(t.waits)
	if t.suspended {
		t.woke = a.at
	}
	switch {
	case !t.suspended && pause > a.TTL*7/8+tolerance:
		t.must = slices.Clone(t.always.owned) // its lease ended an eighth of a TTL early
	case t.suspended && pause > a.TTL:
		t.kept, t.takers = slices.Clone(t.always.owned), nil
		for _, other := range a.running {
			if _, met := t.met[other]; met && other != t && other.stopped == 0 && !a.dozed(other) {
				t.takers = append(t.takers, taker{other, slices.Clone(other.owned())})
			}
		}
	}
	t.suspended = false
}

// dozed reports whether the host of a process was suspended until less than a TTL ago. Hosts that were suspended together
// have stale clocks, so none of them can tell the others soon that they slept.
func (a *Auditor) dozed(t *track) bool { return t.woke > 0 && a.at-t.woke < a.TTL }

// pairTwins finds running processes with the same id.
func (a *Auditor) pairTwins() {
	for _, t := range a.running {
		t.twin = nil
	}
	for i, t := range a.running {
		for _, o := range a.running[:i] {
			if o.now.ID == t.now.ID && o.stopped == 0 {
				t.twin, o.twin = o, t
			}
		}
	}
}

// owned returns what a process answers that it owns.
func (t *track) owned() set {
	if t.stopped > 0 {
		return nil
	}
	return t.mine
}
