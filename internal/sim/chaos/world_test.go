package chaos

import (
	"fmt"
	"hash"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
)

// world is a cluster that goes through a schedule.
type world struct {
	*sim.Cluster
	s          schedule
	seeds      []string // addresses
	hosts      map[string]*host
	now        map[string]*process // that run or are paused, by id
	all        map[lease.Incarnation]*process
	duplicates map[string]*process // by id, that later processes have followed
	running    []*process          // those in now, in the order in which they started
	tape       [][]byte            // some of the messages that were sent
	sent       int
	messages   hash.Hash64 // of all that were sent, with their times
	rng        *rand.Rand  // of the checks and of the tape

	handlers     *sim.Handlers
	overlaps     int                    // of runs, that were checked
	parted       map[link]time.Duration // when one node took the other for gone
	decisions    map[lease.Cordon]*decision
	lastDecision map[string]time.Duration // when a node was cordoned last, or its cordon ended early
	stepped      bool                     // a clock was wrong

	audit     *audit
	disturbed time.Duration // when the last step was

	cuts    map[link]bool
	calm    calm
	double  map[pair]time.Duration // since when two nodes own the same
	changed time.Duration          // when the last step was
	sides   [][]*process           // since then
	checked bool                   // the sides
	story   []string               // steps and log lines, with their times
	failure *failure
	harm    *harm // if not nil, it is measured in place of the checks
}

// failure is an invariant that does not hold.
type failure struct {
	invariant, text string
	at              time.Duration
}

func (f *failure) String() string { return fmt.Sprintf("%s, after %v: %s", f.invariant, f.at, f.text) }

func newWorld(s schedule) *world {
	w := &world{
		s: s, hosts: make(map[string]*host), now: make(map[string]*process), all: make(map[lease.Incarnation]*process),
		rng: rand.New(rand.NewPCG(s.seed, 5)), double: make(map[pair]time.Duration),
		cuts: make(map[link]bool), messages: fnv.New64a(),
		parted:     make(map[link]time.Duration),
		duplicates: make(map[string]*process),
		calm:       calm{node: make(map[string]time.Duration), link: make(map[link]time.Duration)},
		audit:      newAudit(s),
		decisions:  make(map[lease.Cordon]*decision), lastDecision: make(map[string]time.Duration),
	}
	rng := rand.New(rand.NewPCG(s.seed, 6))
	w.handlers = &sim.Handlers{Stop: func(p *sim.Process) time.Duration { return w.returnsAfter(p.ID, rng) }}
	w.Cluster = sim.New(s.options(w))
	for i := range s.hosts {
		addr := fmt.Sprintf("192.0.2.%d:7946", i+1)
		w.hosts[nameOf(i)] = &host{addr: addr}
		if i < 3 {
			w.seeds = append(w.seeds, addr)
		}
	}
	return w
}

// record keeps a random sample of the messages, and a hash of all messages.
func (w *world) record(message []byte) {
	_, _ = fmt.Fprint(w.messages, w.Elapsed())
	_, _ = w.messages.Write(message)
	const most = 500
	if w.sent++; len(w.tape) < most {
		w.tape = append(w.tape, message)
	} else if i := w.rng.IntN(w.sent); i < most {
		w.tape[i] = message
	}
}

// log adds a log line of a node to the story.
func (w *world) log(p *sim.Process, e node.Event) {
	if e.Level > node.Debug {
		w.story = append(w.story, fmt.Sprintf("%14v      %s at %s: %s %v", w.Elapsed(), p.ID, p.Addr, e.Message, e.Attrs))
	}
}

// run runs a schedule until its end, or until both judges have found something, and returns the world as it is then.
func run(s schedule) *world {
	w := newWorld(s)
	w.play()
	return w
}

func (w *world) play() {
	defer func() {
		if fault := recover(); fault != nil {
			w.story = append(w.story, string(debug.Stack()))
			w.fail("panic", "%v", fault)
		}
	}()
	for i := range w.s.atStart {
		w.start(nameOf(i))
	}
	for _, step := range w.s.steps {
		w.pass(step.after)
		if w.over() {
			return
		}
		w.step(step.text, step.do)
	}
	w.pass(time.Second)
	w.rest()
}

// traces returns two values that differ if two runs with the same seed differ: a hash of all messages and of what the
// nodes know in the end, and a hash of all steps and log lines, which tell what the nodes decided and when.
func (w *world) traces() (messages, decisions uint64) {
	_, _ = fmt.Fprint(w.messages, w.Fingerprint())
	story := fnv.New64a()
	for _, line := range w.story {
		_, _ = fmt.Fprintln(story, line)
	}
	return w.messages.Sum64(), story.Sum64()
}

func (w *world) step(text string, do func(*world)) {
	w.story = append(w.story, fmt.Sprintf("%12v  %s", w.Elapsed(), text))
	do(w)
	w.disturbed, w.audit.cutsSeen = w.Elapsed(), false
	w.audit.cutsSince = append(w.audit.cutsSince, w.cutLinks()...)
	w.changed, w.checked, w.sides = w.Elapsed(), false, w.findSides()
}

// look is the time between two checks of the invariants.
const look = 100 * time.Millisecond

// pass lets time pass, but stops when both judges have found something.
func (w *world) pass(d time.Duration) {
	for ; d > 0 && !w.over(); d -= look {
		w.Run(min(d, look))
		if w.harm != nil {
			w.harm.suffer(w)
			continue
		}
		w.check()
		w.observe()
	}
}

// over reports whether an invariant has failed and the auditor objects, so that there is nothing more to find.
func (w *world) over() bool { return w.failure != nil && w.objection() != nil }

// bad reports whether an invariant has failed or the auditor objects.
func (w *world) bad() bool { return w.failure != nil || w.objection() != nil }

// objection returns the first objection of the auditor.
func (w *world) objection() *failure {
	if len(w.audit.Objections) == 0 {
		return nil
	}
	o := w.audit.Objections[0]
	return &failure{o.Rule, o.Text, o.At}
}

// rest ends all faults, and waits until nothing changes anymore.
func (w *world) rest() {
	w.step("end of all faults", func(w *world) {
		w.heal()
		w.SetLoss(w.s.loss)
		for id, h := range w.hosts {
			if !w.runs(id) {
				h.clock = 0 // before a process starts there
			}
		}
		w.startAll()
		w.resumeAll()
		for i := range w.s.hosts {
			w.setLossOf(nameOf(i), 0, 0)
			w.RefuseStreams(nameOf(i), false)
			w.setClock(nameOf(i), 0)
			w.resumeDuplicate(nameOf(i))
		}
	})
	w.pass(w.cordonedFor())
	w.pass(w.s.settles() + look) // all nodes are one side at the end of it
	w.endHolds()
	w.checkLevel(w.running[0].View().Table)
	before := w.versions()
	w.pass(3 * ttl)
	after := w.versions()
	for _, id := range w.IDs() {
		if now := after[id]; now != before[id] {
			w.fail("rest", "%s: %+v, and %+v %v later", id, before[id], now, 3*ttl)
		}
	}
	w.checked = false
	w.check()
}

// version contains counters that do not change while a node is at rest.
type version struct{ states, expired, fences, fetches uint64 }

func (w *world) versions() map[string]version {
	all := make(map[string]version)
	for id, p := range w.now {
		v := p.View()
		all[id] = version{uint64(len(p.Batches())), v.Stats.Expired, v.Stats.Fences, v.Stats.AssignmentFetches}
	}
	return all
}

func (w *world) fail(invariant, text string, args ...any) {
	if w.failure == nil {
		w.failure = &failure{invariant, fmt.Sprintf(text, args...), w.Elapsed()}
	}
}

// endHolds waits until no node is flapping anymore, but at most for the maximum duration of such a hold.
func (w *world) endHolds() {
	flapping := func() int {
		n, _ := w.flapping(slices.Collect(maps.Values(w.now)))
		return n
	}
	for end := w.Elapsed() + 30*ttl; flapping() > 0 && w.Elapsed() < end; {
		w.pass(ttl)
	}
	if n := flapping(); n > 0 {
		w.fail("rest", "%d nodes are still flapping", n)
	}
	w.pass(w.changed + w.s.settles() + look - w.Elapsed())
}
