package chaos

import (
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	from   = flag.Uint64("from", 0, "the first seed of TestSchedules")
	seeds  = flag.Uint64("seeds", 0, "how many seeds TestSchedules runs; 0 = 60, and 10 with -short")
	single = flag.Int64("seed", -1, "run this seed alone, and print its steps and the log lines of all nodes")
	jobs   = flag.Int("jobs", runtime.GOMAXPROCS(0), "how many seeds run side by side")
	first  = flag.Bool("first", false, "stop when an invariant has failed or the auditor has objected")
	both   = flag.Bool("both", false, "stop when an invariant has failed and the auditor has objected")
	shrunk = flag.Bool("shrink", false, "print the steps and log lines of each failure, with as few faults as still fail")
	traces = flag.Bool("traces", false,
		"print for each seed a hash of all messages and one of all decisions, to compare two versions of the core")
	hunt = flag.Bool("hunt", false, "look for the first seed that finds each planted bug")
)

// All invariants hold for some schedules. make chaos runs many more.
func TestSchedules(t *testing.T) {
	begin, n := *from, *seeds
	switch {
	case *single >= 0:
		begin, n = uint64(*single), 1
	case n == 0 && testing.Short():
		n = 10
	case n == 0:
		n = 60
	}
	r := report{out: t.Output(), seeds: n, begin: time.Now(), story: *single >= 0, shrink: *shrunk, traces: *traces}
	r.shown = r.begin
	var next atomic.Uint64
	var workers sync.WaitGroup
	for range *jobs {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
				w := run(draw(begin + i))
				if r.add(w); *first && r.failed > 0 || *both && r.found.checks && r.found.auditor {
					next.Store(n)
				}
			}
		})
	}
	workers.Wait()
	if r.line(); r.failed > 0 {
		t.Fail()
	}
}

// report counts and prints results.
type report struct {
	out           io.Writer
	seeds         uint64
	story, traces bool // of each seed
	shrink        bool

	mu           sync.Mutex
	begin, shown time.Time
	ran, failed  int
	found        struct{ checks, auditor bool }
	virtual      time.Duration
}

// lineEvery is the time between two progress lines.
const lineEvery = 15 * time.Second

func (r *report) add(w *world) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ran++
	r.virtual += w.Elapsed()
	r.found.checks = r.found.checks || w.failure != nil
	r.found.auditor = r.found.auditor || w.objection() != nil
	if w.bad() {
		r.failed++
	}
	r.print(w)
	if r.traces {
		messages, decisions := w.traces()
		_, _ = fmt.Fprintf(r.out, "seed %d: messages %016x, decisions %016x\n", w.s.seed, messages, decisions)
	}
	if time.Since(r.shown) > lineEvery {
		r.shown = time.Now()
		r.line()
	}
}

func (r *report) line() {
	_, _ = fmt.Fprintf(r.out, "%d of %d seeds, %.1f virtual hours in %v: %d failed\n",
		r.ran, r.seeds, r.virtual.Hours(), time.Since(r.begin).Round(100*time.Millisecond), r.failed)
}

func (r *report) print(w *world) {
	if w.bad() && r.shrink {
		w = shrink(w)
	}
	if r.story || w.bad() && r.shrink {
		_, _ = fmt.Fprintf(r.out, "seed %d: %v\n%s\n", w.s.seed, w.s, strings.Join(w.story, "\n"))
	}
	if w.failure != nil {
		_, _ = fmt.Fprintf(r.out, "seed %d failed: %v\n", w.s.seed, w.failure)
	}
	if o := w.objection(); o != nil {
		_, _ = fmt.Fprintf(r.out, "seed %d: the auditor objects: %v\n", w.s.seed, o)
	}
	if w.bad() {
		_, _ = fmt.Fprintf(r.out, "  again: go test ./internal/sim/chaos -run Schedules -seed %d -shrink\n", w.s.seed)
	}
}

// shrink removes steps from a schedule as long as the same invariant fails, or the same rule of the auditor if no
// invariant does.
func shrink(w *world) *world {
	for chunk := len(w.s.steps) / 2; chunk > 0; chunk /= 2 {
		for at := 0; at+chunk <= len(w.s.steps); {
			less := w.s
			less.steps = slices.Delete(slices.Clone(w.s.steps), at, at+chunk)
			if x := run(less); x.bad() && x.verdict() == w.verdict() {
				w = x
			} else {
				at += chunk
			}
		}
	}
	return w
}

// verdict returns the invariant or rule that does not hold.
func (w *world) verdict() string {
	if w.failure != nil {
		return w.failure.invariant
	}
	return w.objection().invariant
}

// Two runs with the same seed are identical, including the time of each step and each log line.
func TestReplay(t *testing.T) {
	for seed := range uint64(5) {
		a, b := run(draw(seed)), run(draw(seed))
		if !slices.Equal(a.story, b.story) || a.Fingerprint() != b.Fingerprint() {
			t.Errorf("two runs of seed %d differ", seed)
		}
	}
	if a, b := run(draw(1)), run(draw(2)); slices.Equal(a.story, b.story) {
		t.Error("two seeds are the same")
	}
}

// A failure is printed with the command that repeats it, and with only the faults that are necessary for it.
func TestShrink(t *testing.T) {
	s := draw(1)
	half := make(map[*world]bool)
	s.steps = slices.Insert(s.steps, 3, step{text: "first", do: func(w *world) { half[w] = true }})
	s.steps = append(s.steps, step{text: "last", do: func(w *world) {
		if half[w] {
			w.fail("fence", "planted")
		}
	}})
	var out strings.Builder
	r := report{shrink: true, out: &out, begin: time.Now()}
	r.add(run(s))
	r.line()
	for _, want := range []string{"first\n", "last\n", "seed 1 failed: fence", "-seed 1 -shrink", "1 failed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
	if x := shrink(run(s)); len(x.s.steps) != 2 || x.failure == nil {
		t.Errorf("%d steps are left, and %v", len(x.s.steps), x.failure)
	}
}

// A panic of a node counts as a failure.
func TestPanic(t *testing.T) {
	s := draw(1)
	s.steps[0].do = func(*world) { panic("planted") }
	if w := run(s); w.failure == nil || w.failure.invariant != "panic" {
		t.Errorf("failure %v", w.failure)
	}
}
