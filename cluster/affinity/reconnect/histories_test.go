package reconnect

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

var errLost = errors.New("no answer")

var updateHistories = flag.Bool("update", false, "rewrite testdata/histories.json")

const historiesFile = "testdata/histories.json"

// history drives a Machine at random, records each call with its result, and checks
// the bounds that doc.go promises. Times are in milliseconds since start.
type history struct {
	Machine
	t     *testing.T
	r     *rand.Rand
	start time.Time
	now   int64
	lines []string

	newest         uint64 // the latest epoch of the room
	connects, asks []int64
	lastTo         lease.NodeID // target of the latest attempt
	refused        bool         // whether the latest attempt was refused
	accepted       int          // attempts that the current target did not refuse
	attempt, ask   bool         // in progress
	calm           []int64      // times of the attempts since the latest news
	hard           bool         // most attempts fail, and the room rarely moves
	storeless      bool         // answers have no epoch and alternate between two nodes, which refuse the client
}

func (h *history) at() time.Time { return h.start.Add(time.Duration(h.now) * time.Millisecond) }

// u returns a random number with at most three digits, so that the file contains the exact number.
func (h *history) u() float64 { return float64(h.r.IntN(1000)) / 1000 }

func (h *history) line(format string, args ...any) {
	h.lines = append(h.lines, fmt.Sprintf(format, args...))
}

// any returns a directive to one of four nodes. Its epoch is old, known, new or missing.
func (h *history) any() Directive {
	to := lease.NodeID("abcd"[h.r.IntN(4)])
	if h.storeless && h.r.IntN(30) > 0 {
		return Directive{Room: "r", To: lease.NodeID("ab"[h.r.IntN(2)])}
	}
	if h.hard && h.target.To != "" && h.r.IntN(20) > 0 {
		return Directive{Room: "r", To: h.target.To, Epoch: h.target.Epoch}
	}
	switch h.r.IntN(6) {
	case 0:
		return Directive{Room: "r", To: to}
	case 1:
		return Directive{Room: "r", To: to, Epoch: max(h.newest, 1) - 1}
	case 2, 3:
		return Directive{Room: "r", To: h.target.To, Epoch: h.target.Epoch}
	}
	h.newest++
	return Directive{Room: "r", To: to, Epoch: h.newest}
}

// report passes a directive to the machine, and records which steps the machine abandons.
func (h *history) report(name string, call func(time.Time, float64, Directive) bool, d Directive) {
	u, epoch, short := h.u(), h.epoch, h.short()
	news := call(h.at(), u, d)
	if name == "directed" && news || name == "lost" && !short || h.epoch > epoch {
		h.calm = nil
	}
	h.line("%s %d %v %s %d %v", name, h.now, u, d.To, d.Epoch, news)
	h.attempt, h.ask = h.connecting, h.asking
	if news && h.state == seeking && name != "lost" {
		h.accepted = 0
	}
}

// next begins a step if one is due, and returns the wait until the next step.
func (h *history) next() (Step, int64) {
	step, wait := h.Next(h.at())
	h.line("next %d %d,%d", h.now, step, wait.Milliseconds())
	switch {
	case wait > 0 || step == StepNone && (h.attempt || h.ask || h.state == idle):
	case step == StepNone:
		h.t.Fatal("nothing to do, and nothing in progress")
	case step == StepConnect:
		h.begin()
	case step == StepResolve:
		h.ask = true
		if n := len(h.asks); n > 0 && h.now-h.asks[n-1] < 100 {
			h.t.Fatalf("two asks within %d ms: %q", h.now-h.asks[n-1], h.lines)
		}
		h.asks = append(h.asks, h.now)
	}
	return step, wait.Milliseconds()
}

func (h *history) begin() {
	n := len(h.connects)
	if n > 0 && h.lastTo == h.target.To && !h.refused && h.state != trying && h.now-h.connects[n-1] < 3000 {
		h.t.Fatalf("two attempts at %s %d ms apart: %q", h.lastTo, h.now-h.connects[n-1], h.lines)
	}
	h.connects, h.lastTo, h.refused, h.attempt = append(h.connects, h.now), h.target.To, false, true
	if n := len(h.calm); n >= 8 && h.now-h.calm[n-8] < 1000 {
		h.t.Fatalf("9 attempts within %d ms without news: %q", h.now-h.calm[n-8], h.lines)
	}
	h.calm = append(h.calm, h.now)
	if h.accepted++; h.accepted > 3 && h.state != trying {
		h.t.Fatalf("attempt %d at one target: %q", h.accepted, h.lines)
	}
}

// outcome ends a step in progress.
func (h *history) outcome() {
	if h.ask && (!h.attempt || h.r.IntN(2) == 0) {
		if h.r.IntN(4) > 0 {
			h.report("resolved", h.Resolved, h.any())
			return
		}
		u := h.u()
		h.Unresolved(h.at(), u, errLost)
		h.line("unresolved %d %v", h.now, u)
		h.ask = false
		return
	}
	u := h.u()
	h.attempt = false
	outcome := h.r.IntN(6)
	if h.storeless && h.r.IntN(10) > 0 {
		outcome = 1
	}
	if h.hard && outcome == 0 && h.r.IntN(4) > 0 {
		outcome = 3
	}
	switch outcome {
	case 0:
		h.Connected()
		h.line("connected %d", h.now)
		h.ask = false
	case 1, 2:
		h.Refused(h.at(), u, errLost)
		h.line("refused %d %v", h.now, u)
		h.refused = true
		h.accepted--
	default:
		h.Failed(h.at(), u, errLost)
		h.line("failed %d %v", h.now, u)
	}
}

// other adds an event from outside, which is a directive or a lost connection.
func (h *history) other() {
	if h.r.IntN(2) == 0 {
		h.report("directed", h.Directed, h.any())
		return
	}
	d := h.target
	d.Room = "r"
	if h.r.IntN(4) == 0 {
		d = h.any()
	}
	short := h.short()
	if h.report("lost", h.Lost, d); h.state == seeking && !short {
		h.accepted = 0
	}
}

// short reports whether a connection that was lost now would count as a short connection.
func (h *history) short() bool {
	return h.state == connected && h.at().Sub(h.began) < 5*time.Second
}

func record(t *testing.T, seed uint64) []string {
	h := history{t: t, r: rand.New(rand.NewPCG(seed, 7)), start: time.Unix(1_000_000, 0), hard: seed%2 == 1, storeless: seed%10 == 2}
	length := 10 + h.r.IntN(40)
	switch {
	case h.hard:
		length += 15
	case h.storeless:
		length += 80
	}
	for len(h.lines) < length && (h.err == nil || h.r.IntN(2) == 0) {
		step, wait := h.next()
		running := h.attempt || h.ask
		pause := h.r.Int64N(1 + min(max(wait, 100), 6000))
		if h.storeless {
			pause = 1
		}
		switch {
		case wait > 0 && (!running || h.r.IntN(2) == 0) && h.r.IntN(6) > 0:
			h.now += wait
		case running && h.r.IntN(6) > 0:
			h.now += pause
			h.outcome()
		case h.r.IntN(8) == 0 || step == StepNone || step == StepDone:
			h.now += pause
			h.other()
		}
	}
	h.line("end %s,%d,%d,%v", h.target.To, h.target.Epoch, h.attempts, h.err != nil)
	return h.lines
}

// TestHistories runs 1,000 random histories. The machines in Go and in JavaScript must take the same steps, and must
// keep the bounds that doc.go promises.
func TestHistories(t *testing.T) {
	var b bytes.Buffer
	for seed := range uint64(1000) {
		lines, err := json.Marshal(record(t, seed))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s%s", map[bool]string{true: "[\n", false: ",\n"}[seed == 0], lines)
	}
	b.WriteString("\n]\n")
	if *updateHistories {
		if err := os.WriteFile(historiesFile, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	held, err := os.ReadFile(historiesFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), held) {
		t.Errorf("the machine differs from %s; after a change on purpose, run go test -update", historiesFile)
	}
	// go test only notices a change of these files if the test reads them. Otherwise it would use a cached result.
	for _, file := range []string{"reconnect.mjs", "testdata/replay.mjs"} {
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "node", "testdata/replay.mjs").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "1000 histories" {
		t.Errorf("%v; scripts/deps.sh installs node\n%s", err, out)
	}
}
