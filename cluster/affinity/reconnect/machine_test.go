package reconnect_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/lease"
)

var errHandshake = errors.New("handshake failed")

func directiveTo(node lease.NodeID, epoch uint64) reconnect.Directive {
	return reconnect.Directive{Room: "r", To: node, Addr: string(node) + ":443", Reason: "test", Epoch: epoch}
}

// tick drives a Machine with its own clock, and records when each step begins.
type tick struct {
	reconnect.Machine
	now   time.Time
	u     func() float64
	steps []tickStep
}

type tickStep struct {
	reconnect.Step
	at time.Time
	to lease.NodeID
}

func newTick(u float64) *tick {
	return &tick{now: time.Unix(1_000_000, 0), u: func() float64 { return u }}
}

// step waits for the next step, begins it and returns it.
func (k *tick) step() reconnect.Step {
	step, wait := k.Next(k.now)
	for wait > 0 {
		k.now = k.now.Add(wait)
		step, wait = k.Next(k.now)
	}
	if step == reconnect.StepConnect || step == reconnect.StepResolve {
		k.steps = append(k.steps, tickStep{step, k.now, k.Target().To})
	}
	return step
}

// text formats the steps like "b 0s, ask 3s".
func (k *tick) text(start time.Time) string {
	var parts []string
	for _, s := range k.steps {
		what := string(s.to)
		if s.Step == reconnect.StepResolve {
			what = "ask"
		}
		parts = append(parts, what+" "+s.at.Sub(start).String())
	}
	return strings.Join(parts, ", ")
}

func TestPaceDefaults(t *testing.T) {
	rest := reconnect.Pace{MinAsk: 100 * time.Millisecond, MaxAsk: 250 * time.Millisecond, AskFor: 15 * time.Second}
	for _, c := range []struct{ give, want reconnect.Pace }{
		{reconnect.Pace{}, reconnect.Pace{3, 3 * time.Second, 5 * time.Second, 500 * time.Millisecond, rest.MinAsk, rest.MaxAsk, rest.AskFor}},
		{
			reconnect.Pace{-1, -1, -1, -1, -1, -1, -1},
			reconnect.Pace{3, 3 * time.Second, 3 * time.Second, 500 * time.Millisecond, rest.MinAsk, rest.MinAsk, rest.AskFor},
		},
		{
			reconnect.Pace{MinWait: 10 * time.Second, MinAsk: time.Second},
			reconnect.Pace{3, 10 * time.Second, 10 * time.Second, 500 * time.Millisecond, time.Second, time.Second, rest.AskFor},
		},
		{reconnect.Pace{1, 1, 2, 3, 4, 5, 6}, reconnect.Pace{1, 1, 2, 3, 4, 5, 6}},
	} {
		if got := reconnect.WithDefaults(c.give); got != c.want {
			t.Errorf("%+v: got %+v, want %+v", c.give, got, c.want)
		}
	}
}

func TestMachineTimes(t *testing.T) {
	for _, c := range []struct {
		u    float64
		want string
	}{
		{0, "b 0s, b 3s, b 6s, ask 9s, c 9s"},
		{0.5, "b 250ms, b 4.25s, b 8.25s, ask 12.25s, c 12.25s"},
		{1, "b 500ms, b 5.5s, b 10.5s, ask 15.5s, c 15.5s"},
	} {
		k := newTick(c.u)
		start := k.now
		if step, wait := k.Next(k.now); step != reconnect.StepNone || wait != 0 {
			t.Fatalf("without a directive: step %d, wait %v", step, wait)
		}
		k.Directed(k.now, c.u, directiveTo("b", 1))
		for range 3 {
			k.step()
			if step, _ := k.Next(k.now); step != reconnect.StepNone {
				t.Fatalf("step %d while one is under way", step)
			}
			k.Failed(k.now, c.u, errHandshake)
		}
		k.step()
		k.Resolved(k.now, c.u, directiveTo("c", 2))
		k.step()
		if k.Err() != nil {
			t.Error("gave up before the last attempt failed")
		}
		k.Failed(k.now, c.u, errHandshake)
		if got := k.text(start); got != c.want {
			t.Errorf("u %v: got  %s\nwant %s", c.u, got, c.want)
		}
		if step := k.step(); step != reconnect.StepDone {
			t.Errorf("step %d at the end, want done", step)
		}
		checkGaveUp(t, k.Err(), 4)
	}
}

func checkGaveUp(t *testing.T, err error, attempts int) {
	t.Helper()
	var e *reconnect.GaveUpError
	if !errors.As(err, &e) || !errors.Is(err, reconnect.ErrGaveUp) || !errors.Is(err, errHandshake) {
		t.Fatalf("error %v; want a GaveUpError that is ErrGaveUp and unwraps to %v", err, errHandshake)
	}
	if e.Room != "r" || e.Attempts != attempts {
		t.Errorf("room %q, %d attempts; want r, %d", e.Room, e.Attempts, attempts)
	}
}

// script plays a script with one letter for each event. At the start, the client has been connected to node a with
// epoch 100 for an hour. All random numbers are 0. A dot begins the next step.
//
// The result of an attempt: c connected, f failed, x refused. The result of a resolve: n a new node (b, c, …), s the
// same target, o and p other nodes without an epoch, e another node with an old epoch, u an error. Other events: L the
// connection is lost, D a directive to a new node, B a newer directive to the same node, d an old directive.
func (k *tick) script(t *testing.T, script string) {
	t.Helper()
	k.Directed(k.now.Add(-time.Hour), 0, directiveTo("a", 100))
	k.Next(k.now.Add(-time.Hour))
	k.Connected()
	epoch, node := uint64(100), 'a'
	another := func() reconnect.Directive {
		epoch, node = epoch+1, node+1
		return directiveTo(lease.NodeID(node), epoch)
	}
	for _, letter := range script {
		switch letter {
		case '.':
			k.step()
		case 'c':
			k.Connected()
		case 'f':
			k.Failed(k.now, 0, errHandshake)
		case 'x':
			k.Refused(k.now, 0, reconnect.ErrRefused)
		case 'n':
			if !k.Resolved(k.now, 0, another()) {
				t.Errorf("%s: a new node is no news", script)
			}
		case 's':
			k.Resolved(k.now, 0, k.Target())
		case 'o', 'p':
			k.Resolved(k.now, 0, directiveTo(lease.NodeID(letter), 0))
		case 'e':
			k.Resolved(k.now, 0, directiveTo("e", 99))
		case 'u':
			k.Unresolved(k.now, 0, errHandshake)
		case 'L':
			if !k.Lost(k.now, 0, k.Target()) {
				t.Errorf("%s: the loss of the connection is ignored", script)
			}
		case 'D':
			if !k.Directed(k.now, 0, another()) {
				t.Errorf("%s: a newer directive is ignored", script)
			}
		case 'B':
			epoch++
			if !k.Directed(k.now, 0, directiveTo(k.Target().To, epoch)) {
				t.Errorf("%s: a newer directive to the same node is ignored", script)
			}
		case 'd':
			if k.Directed(k.now, 0, directiveTo("y", epoch)) || k.Directed(k.now, 0, directiveTo("y", epoch-1)) ||
				k.Directed(k.now, 0, reconnect.Directive{Room: "other", To: "y", Epoch: epoch + 1}) || k.Lost(k.now, 0, directiveTo("z", epoch)) {
				t.Errorf("%s: an old directive, or one for another room, is taken", script)
			}
		}
	}
}

func TestMachineSeeks(t *testing.T) {
	for _, c := range []struct{ name, script, want, end string }{
		{"lost, new node at once", "L.n.c", "ask 0s, b 0s", "connected"},
		{"lost, the node is there", "L.s.c", "ask 0s, a 0s", "connected"},
		{
			"lost, the node refuses until the room has another one", "L.s.x.s.s.n.c",
			"ask 0s, a 0s, ask 100ms, a 125ms, ask 200ms, b 200ms", "connected",
		},
		{"news interrupts an attempt", "L.s..s.n.c", "ask 0s, a 0s, ask 100ms, ask 200ms, b 200ms", "connected"},
		{"a directive interrupts a resolve", "L.D.c", "ask 0s, b 0s", "connected"},
		{"an old answer is not tried", "L.e.e.n.c", "ask 0s, ask 100ms, ask 200ms, b 200ms", "connected"},
		{"no answer: the target may be there", "L.u.c", "ask 0s, a 0s", "connected"},
		{"an answer without an epoch names another node", "L.o.c", "ask 0s, o 0s", "connected"},
		{"the store is back", "L.o.x.n.c", "ask 0s, o 0s, ask 100ms, b 100ms", "connected"},
		{
			"two answers without an epoch", "L.o.x.p.o.p.x.o.p.n.c",
			"ask 0s, o 0s, ask 100ms, ask 200ms, p 225ms, ask 300ms, ask 400ms, ask 500ms, b 500ms", "connected",
		},
		{
			"two answers without an epoch, short connections", "L.o.cL.p.o.cL.o.p.s.c",
			"ask 0s, o 0s, ask 100ms, ask 200ms, p 225ms, ask 300ms, ask 400ms, ask 500ms, o 550ms", "connected",
		},
		{
			"the dead node refuses for a while, then another one without an epoch", "L.s.x.s.s.x.o.c",
			"ask 0s, a 0s, ask 100ms, a 125ms, ask 200ms, o 200ms", "connected",
		},
		{"directive, refused, at once", "D.x.s.s.c", "b 0s, ask 0s, ask 100ms, b 125ms", "connected"},
		{"directive, refused, and another node", "D.x.n.c", "b 0s, ask 0s, c 0s", "connected"},
		{
			"refusals are none of the three attempts", "D.x.s..s.f.f.f.s.f",
			"b 0s, ask 0s, ask 100ms, b 125ms, ask 225ms, b 3.225s, b 6.225s, b 9.225s", "gave up",
		},
		{"failed, then lost news", "D.f.c", "b 0s, b 3s", "connected"},
		{"another node does not wait for the pace", "D.fD.c", "b 0s, c 0s", "connected"},
		{"the same node after a failure", "D.fB.fB.c", "b 0s, b 3s, b 6s", "connected"},
		{"the same node after a refusal", "D.xB.c", "b 0s, b 0s", "connected"},
		{"three failures, and one at the answer", "D.f.f.f.s.f", "b 0s, b 3s, b 6s, ask 9s, b 9s", "gave up"},
		{"three failures, and no answer", "D.f.f.f.u", "b 0s, b 3s, b 6s, ask 9s", "gave up"},
		{"three failures, and an old answer", "D.f.f.f.e.c", "b 0s, b 3s, b 6s, ask 9s, e 9s", "connected"},
		{"three failures, and refused", "D.f.f.f.s.x", "b 0s, b 3s, b 6s, ask 9s, b 9s", "gave up"},
		{"a directive before the check", "D.f.f.fD.c", "b 0s, b 3s, b 6s, c 6s", "connected"},
		{"a directive during the check", "D.f.f.f.D.f.f.f.s.f", "b 0s, b 3s, b 6s, ask 9s, c 9s, c 12s, c 15s, ask 18s, c 18s", "gave up"},
		{"a directive after the end", "D.f.f.f.uD.c", "b 0s, b 3s, b 6s, ask 9s, c 9s", "connected"},
		{"lost after the end", "D.f.f.f.uL.n.c", "b 0s, b 3s, b 6s, ask 9s, ask 9.1s, c 9.1s", "connected"},
		{"old directives", "dD.dcd", "b 0s", "connected"},
		{"lost again and again", "L.s.cL.s.s.c", "ask 0s, a 0s, ask 100ms, ask 200ms, ask 300ms", ""},
	} {
		k := newTick(0)
		start := k.now
		k.script(t, c.script)
		if got := k.text(start); got != c.want {
			t.Errorf("%s, %s: got  %s\nwant %s", c.name, c.script, got, c.want)
		}
		step, _ := k.Next(k.now)
		end := map[bool]string{true: "gave up"}[errors.Is(k.Err(), reconnect.ErrGaveUp)]
		if c.end != "" && (step != reconnect.StepDone || end != strings.TrimPrefix(c.end, "connected")) {
			t.Errorf("%s: ends with step %d, error %v; want %s", c.name, step, k.Err(), c.end)
		}
	}
}

// A target accepts each attempt and then loses the client. The client makes as many attempts as with a target that
// fails.
func TestMachineShortConnections(t *testing.T) {
	k := newTick(0)
	start := k.now
	k.Directed(k.now, 0, directiveTo("b", 1))
	attempts := 0
	for k.Err() == nil {
		if k.step() == reconnect.StepResolve {
			k.Resolved(k.now, 0, directiveTo("b", 1))
			continue
		}
		attempts++
		k.Connected()
		if !k.Lost(k.now, 0, directiveTo("b", 1)) {
			t.Fatal("a loss is ignored")
		}
	}
	if took := k.now.Sub(start); attempts != 4 || took != 9*time.Second || !errors.Is(k.Err(), reconnect.ErrLost) {
		t.Errorf("%d attempts in %v, error %v; want 4 in 9s, ErrLost", attempts, took, k.Err())
	}
}

// If the target refuses every attempt, the client gives up after AskFor, whether or not the resolver answers.
func TestMachineAskFor(t *testing.T) {
	for _, answers := range []bool{true, false} {
		k := newTick(0.5)
		start := k.now
		k.script(t, "L")
		asks, attempts := 0, 0
		for k.Err() == nil {
			if k.step() == reconnect.StepConnect {
				attempts++
				k.Refused(k.now, 0.5, errHandshake)
				continue
			}
			asks++
			if answers {
				k.Resolved(k.now, 0.5, k.Target())
			} else {
				k.Unresolved(k.now, 0.5, errHandshake)
			}
		}
		// The waits between attempts are 0.19, 0.38, 0.75, … 3.75 s.
		if took := k.now.Sub(start); took < 15*time.Second || took > 20*time.Second || attempts > 10 || asks < 80 || asks > 150 {
			t.Errorf("answers %v: gave up after %v, %d attempts, %d asks", answers, took, attempts, asks)
		}
		checkGaveUp(t, k.Err(), attempts)
	}
}

// Two agents do not reach their store, so their answers have no epoch. Each of them names a different node. Both nodes
// refuse the client, or fail after the first refusal. The client alternates between the nodes more and more slowly, and
// gives up.
func TestMachineAlternates(t *testing.T) {
	for seed := range uint64(40) {
		fails := seed%2 == 1
		most := map[bool]int{false: 15, true: 6}[fails]
		k := newTick(0)
		k.u = rand.New(rand.NewPCG(seed, 3)).Float64
		start := k.now
		k.Lost(k.now, k.u(), reconnect.Directive{Room: "r"})
		asks, attempts := 0, 0
		for k.Err() == nil && k.now.Sub(start) < 30*time.Second {
			step := k.step()
			k.now = k.now.Add(time.Millisecond)
			if step == reconnect.StepConnect {
				if attempts++; fails && attempts > 1 {
					k.Failed(k.now, k.u(), errHandshake)
				} else {
					k.Refused(k.now, k.u(), reconnect.ErrRefused)
				}
				continue
			}
			asks++
			k.Resolved(k.now, k.u(), directiveTo(lease.NodeID("ab"[asks%2]), 0))
		}
		if took := k.now.Sub(start); attempts > most || asks > 150 || took < 9*time.Second || k.Err() == nil {
			t.Errorf("seed %d: %d attempts, %d asks in %v, error %v; want at most %d attempts", seed, attempts, asks, took, k.Err(), most)
		}
	}
}

// A thousand clients lose their node at the same moment. MinAsk and MaxAsk limit the rate of their resolves. Neither
// the resolves nor the attempts at the new node come in waves.
func TestMachineCrowd(t *testing.T) {
	const clients = 1000
	s := story{home: homeAfter(3 * time.Second), refuses: onlyA}
	var first int
	var asked [300]int // resolves in each 10 ms
	var arrived [60]int
	for seed := range uint64(clients) {
		c := crowdClient{u: rand.New(rand.NewPCG(seed, 1)).Float64}
		if _, err := c.play(s); err != nil {
			t.Fatal(err)
		}
		for _, at := range c.resolves {
			if at == 0 {
				first++
			} else if i := int(at / (10 * time.Millisecond)); i < len(asked) {
				asked[i]++
			}
		}
		arrived[min(int((c.attempts[len(c.attempts)-1]-3*time.Second)/(10*time.Millisecond)), 59)]++
	}
	sum := 0
	for _, n := range asked[:100] {
		sum += n
	}
	if first != clients || sum < 5000 || sum > 5800 {
		t.Errorf("%d resolves at once, %d in the first second; want 1000, 5000 to 5800", first, sum)
	}
	for i, n := range asked[100:] { // after the first second, there are no waves
		if n > 90 {
			t.Errorf("%d resolves in the 10 ms after %d ms", n, 1000+10*i)
		}
	}
	for i, n := range arrived {
		if n > 100 {
			t.Errorf("%d clients arrive within 10 ms, %d ms after the room has its node", n, 10*i)
		}
	}
	t.Logf("%d resolves at once, %d in the first second", first, sum)
}
