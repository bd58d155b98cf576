package reconnect

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

var errRefused = errors.New("connection refused")

func directiveTo(node lease.NodeID, epoch uint64) Directive {
	return Directive{Room: "r", To: node, Addr: string(node) + ":443", Reason: "test", Epoch: epoch}
}

// tick drives a Machine on its own clock, and records when each step begins.
type tick struct {
	Machine
	now   time.Time
	u     func() float64
	steps []tickStep
}

type tickStep struct {
	Step
	at time.Time
	to lease.NodeID
}

func newTick(u float64) *tick {
	return &tick{now: time.Unix(1_000_000, 0), u: func() float64 { return u }}
}

// step waits for the next step, begins it and returns it.
func (k *tick) step() Step {
	step, wait := k.Next(k.now)
	if wait > 0 {
		k.now = k.now.Add(wait)
		step, wait = k.Next(k.now)
	}
	if wait > 0 {
		panic("a step is not due when the machine said")
	}
	if step == StepConnect || step == StepResolve {
		k.steps = append(k.steps, tickStep{step, k.now, k.Target().To})
	}
	return step
}

func (k *tick) fail() { k.Failed(k.now, k.u(), errRefused) }

// text writes the steps as "connect node-b 0s, resolve 3s".
func (k *tick) text(start time.Time) string {
	var parts []string
	for _, s := range k.steps {
		what := "connect " + string(s.to)
		if s.Step == StepResolve {
			what = "resolve"
		}
		parts = append(parts, what+" "+s.at.Sub(start).String())
	}
	return strings.Join(parts, ", ")
}

func TestPaceDefaults(t *testing.T) {
	for _, c := range []struct{ give, want Pace }{
		{Pace{}, Pace{3, 3 * time.Second, 5 * time.Second, 500 * time.Millisecond}},
		{Pace{-1, -1, -1, -1}, Pace{3, 3 * time.Second, 3 * time.Second, 500 * time.Millisecond}},
		{Pace{MinWait: 10 * time.Second}, Pace{3, 10 * time.Second, 10 * time.Second, 500 * time.Millisecond}},
		{Pace{1, 1, 2, 3}, Pace{1, 1, 2, 3}},
	} {
		if got := c.give.withDefaults(); got != c.want {
			t.Errorf("%+v: got %+v, want %+v", c.give, got, c.want)
		}
	}
}

func TestMachineTimes(t *testing.T) { // S0.9
	for _, c := range []struct {
		u    float64
		want string
	}{
		{0, "connect b 0s, connect b 3s, connect b 6s, resolve 9s, connect c 9s"},
		{0.5, "connect b 250ms, connect b 4.25s, connect b 8.25s, resolve 12.25s, connect c 12.25s"},
		{1, "connect b 500ms, connect b 5.5s, connect b 10.5s, resolve 15.5s, connect c 15.5s"},
	} {
		k := newTick(c.u)
		start := k.now
		if step, wait := k.Next(k.now); step != StepNone || wait != 0 {
			t.Fatalf("without a directive: step %d, wait %v", step, wait)
		}
		k.Directed(k.now, c.u, directiveTo("b", 1))
		for range 3 {
			k.step()
			if step, _ := k.Next(k.now); step != StepNone {
				t.Fatalf("step %d while one is under way", step)
			}
			k.fail()
		}
		k.step()
		k.Resolved(k.now, directiveTo("c", 2))
		k.step()
		if k.Err() != nil {
			t.Error("gave up before the last attempt failed")
		}
		k.fail()
		if got := k.text(start); got != c.want {
			t.Errorf("u %v: got  %s\nwant %s", c.u, got, c.want)
		}
		if step := k.step(); step != StepDone {
			t.Errorf("step %d at the end, want done", step)
		}
		checkGaveUp(t, k.Err(), 4)
	}
}

func checkGaveUp(t *testing.T, err error, attempts int) {
	t.Helper()
	var e *GaveUpError
	if !errors.As(err, &e) || !errors.Is(err, ErrGaveUp) || !errors.Is(err, errRefused) {
		t.Fatalf("error %v; want a GaveUpError that is ErrGaveUp and unwraps to %v", err, errRefused)
	}
	if e.Room != "r" || e.Attempts != attempts {
		t.Errorf("room %q, %d attempts; want r, %d", e.Room, e.Attempts, attempts)
	}
}

func TestMachineOutcomes(t *testing.T) { // S0.9
	// Each letter is the outcome of the next step: f failed, c connected, r resolved to
	// node x, n a newer directive arrived (to c, d, …), o an older one.
	for _, c := range []struct {
		script, want string
		gaveUp       bool
	}{
		{"c", "connect b 0s", false},
		{"fc", "connect b 0s, connect b 3s", false},
		{"ffc", "connect b 0s, connect b 3s, connect b 6s", false},
		{"fffrc", "connect b 0s, connect b 3s, connect b 6s, resolve 9s, connect x 9s", false},
		{"ffff", "connect b 0s, connect b 3s, connect b 6s, resolve 9s", true},
		{"fffrf", "connect b 0s, connect b 3s, connect b 6s, resolve 9s, connect x 9s", true},
		{"nc", "connect b 0s, connect c 3s", false},
		{"o", "connect b 0s", false},
		{"fffnc", "connect b 0s, connect b 3s, connect b 6s, resolve 9s, connect c 9s", false},
		{"ffnfffrc", "connect b 0s, connect b 3s, connect b 6s, connect c 9s, connect c 12s, connect c 15s, resolve 18s, connect x 18s", false},
		{"nnnc", "connect b 0s, connect c 3s, connect d 6s, connect e 9s", false},
		{"fffrnc", "connect b 0s, connect b 3s, connect b 6s, resolve 9s, connect x 9s, connect c 12s", false},
		{"cnc", "connect b 0s, connect c 3s", false},
		{"ffffnc", "connect b 0s, connect b 3s, connect b 6s, resolve 9s, connect c 9s", false},
	} {
		k := newTick(0)
		start := k.now
		epoch := uint64(100)
		k.Directed(k.now, 0, directiveTo("b", epoch))
		for _, outcome := range c.script {
			step := k.step()
			if step == StepDone && outcome != 'n' {
				t.Fatalf("%s: done too early, after %s", c.script, k.text(start))
			}
			switch outcome {
			case 'f':
				k.fail()
			case 'c':
				k.Connected()
			case 'r':
				k.Resolved(k.now, directiveTo("x", epoch))
			case 'n':
				epoch++
				if !k.Directed(k.now, 0, directiveTo(lease.NodeID(rune('b'+epoch-100)), epoch)) {
					t.Errorf("%s: a newer directive is ignored", c.script)
				}
			case 'o':
				if k.Directed(k.now, 0, directiveTo("y", epoch)) || k.Directed(k.now, 0, directiveTo("y", epoch-1)) ||
					k.Directed(k.now, 0, Directive{Room: "other", Epoch: epoch + 1}) {
					t.Errorf("%s: an old directive, or one for another room, is taken", c.script)
				}
				k.Connected() // the step under way has not been abandoned
			}
		}
		if got := k.text(start); got != c.want {
			t.Errorf("%s: got  %s\nwant %s", c.script, got, c.want)
		}
		if step := k.step(); step != StepDone || errors.Is(k.Err(), ErrGaveUp) != c.gaveUp {
			t.Errorf("%s: ends with step %d, error %v; want done, gave up: %v", c.script, step, k.Err(), c.gaveUp)
		}
	}
}

// Attempts before the last end do not count.
func TestMachineCountsAnew(t *testing.T) {
	k := newTick(0)
	for epoch := range uint64(3) {
		k.Directed(k.now, 0, directiveTo("b", epoch))
		k.step()
		k.fail()
		k.step()
		k.Connected()
		if k.Attempts() != 2 {
			t.Errorf("%d attempts, want 2", k.Attempts())
		}
	}
}

// The epoch of the resolve counts: a directive with the same epoch, or a smaller one,
// is no news.
func TestMachineResolvedEpochCounts(t *testing.T) {
	k := newTick(0)
	k.Directed(k.now, 0, directiveTo("b", 5))
	for range 3 {
		k.step()
		k.fail()
	}
	k.step()
	k.Resolved(k.now, Directive{To: "c", Epoch: 8})
	if got := k.Target().Room; got != "r" {
		t.Errorf("after the resolve the room is %q, want r", got)
	}
	if k.Directed(k.now, 0, directiveTo("d", 8)) || !k.Directed(k.now, 0, directiveTo("d", 9)) {
		t.Error("the epoch that was resolved does not count")
	}
}

// Reports without a step in progress change nothing.
func TestMachineStrayReports(t *testing.T) {
	k := newTick(0)
	stray := func(when string) {
		t.Helper()
		before := k.Machine
		k.Connected()
		k.Resolved(k.now, directiveTo("x", 99))
		k.Failed(k.now, 0, errRefused)
		if k.Machine != before {
			t.Errorf("%s: a stray report turns %+v into %+v", when, before, k.Machine)
		}
	}
	stray("at first")
	k.Directed(k.now, 0, directiveTo("b", 1))
	stray("waiting")
	k.step()
	k.Directed(k.now, 0, directiveTo("c", 2))
	stray("abandoned")
	k.step()
	k.Resolved(k.now, directiveTo("x", 99))
	if k.Target().To != "c" {
		t.Error("an attempt can be resolved")
	}
	k.fail()
	k.step()
	k.fail()
	k.step()
	k.fail()
	stray("before the resolve")
	k.step()
	k.Connected()
	if k.step() == StepDone {
		t.Error("a resolve can be connected")
	}
	k.fail()
	stray("gave up")
}

// The waits of many clients are uniform: none is out of bounds and no tenth of
// the range has twice its share.
func TestMachineSpread(t *testing.T) { // S0.9
	const clients = 10_000
	var first, later [10]int
	for seed := range uint64(clients) {
		k := newTick(0)
		k.u = rand.New(rand.NewPCG(seed, 1)).Float64
		start := k.now
		k.Directed(k.now, k.u(), directiveTo("b", 1))
		k.step()
		at := k.now
		k.fail()
		k.step()
		first[tenth(t, at.Sub(start), 0, 500*time.Millisecond)]++
		later[tenth(t, k.now.Sub(at), 3*time.Second, 5*time.Second)]++
	}
	for i := range first {
		if min(first[i], later[i]) < clients/20 || max(first[i], later[i]) > clients/5 {
			t.Errorf("tenths of the first wait %v, of later ones %v: not uniform", first, later)
		}
	}
}

func tenth(t *testing.T, d, lo, hi time.Duration) int {
	t.Helper()
	if d < lo || d >= hi {
		t.Fatalf("a wait of %v is not within [%v, %v)", d, lo, hi)
	}
	return int(10 * (d - lo) / (hi - lo))
}

// In every run: at most 3+1 attempts for one directive, one resolve, and no two
// attempts closer than MinWait.
func TestMachineBounds(t *testing.T) { // S0.9
	rapid.Check(t, func(t *rapid.T) {
		k := newTick(0)
		k.u = func() float64 { return rapid.Float64Range(0, 0.999).Draw(t, "u") }
		pause := func(limit time.Duration) {
			k.now = k.now.Add(time.Duration(rapid.Int64Range(0, int64(limit)).Draw(t, "pause")))
		}
		epoch := uint64(1)
		k.Directed(k.now, k.u(), directiveTo("b", epoch))
		var attempts, resolves int
		directed := func(e uint64) {
			if news := k.Directed(k.now, k.u(), directiveTo("c", e)); news != (e > epoch) {
				t.Fatalf("epoch %d after %d: news %v", e, epoch, news)
			} else if news {
				epoch, attempts, resolves = e, 0, 0
			}
		}
		var last time.Time
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			step, wait := k.Next(k.now)
			if wait > 0 {
				if rapid.IntRange(0, 4).Draw(t, "meanwhile") == 0 {
					pause(wait)
					directed(rapid.Uint64Range(1, 20).Draw(t, "epoch"))
				} else {
					k.now = k.now.Add(wait)
				}
				continue
			}
			switch step {
			case StepConnect:
				if attempts++; attempts > 4 || (attempts == 4) != (resolves == 1) {
					t.Fatalf("attempt %d with %d resolves", attempts, resolves)
				}
				if !last.IsZero() && k.now.Sub(last) < 3*time.Second {
					t.Fatalf("two attempts %v apart", k.now.Sub(last))
				}
				last = k.now
			case StepResolve:
				if resolves++; resolves > 1 || attempts != 3 {
					t.Fatalf("resolve %d after %d attempts", resolves, attempts)
				}
			case StepDone:
				if k.Err() != nil && attempts != 3+resolves && attempts != 3 {
					t.Fatalf("gave up after %d attempts and %d resolves", attempts, resolves)
				}
				directed(rapid.Uint64Range(1, 20).Draw(t, "epoch"))
				continue
			case StepNone:
				t.Fatal("nothing to do, and nothing under way")
			}
			pause(10 * time.Second)
			switch rapid.IntRange(0, 5).Draw(t, "outcome") {
			case 0:
				directed(epoch + 1)
			case 1:
				k.Connected()
				if step == StepResolve {
					k.Resolved(k.now, directiveTo("x", epoch))
				}
			case 2:
				if step == StepResolve {
					k.Resolved(k.now, directiveTo("x", epoch))
					continue
				}
				fallthrough
			default:
				k.fail()
			}
		}
	})
}
