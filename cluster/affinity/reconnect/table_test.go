package reconnect_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// story describes what happens to a room in virtual time. The room's node a disappears at time 0.
type story struct {
	name      string
	directive bool                                       // whether the client gets a directive; otherwise it loses its connection
	home      func(at time.Duration) reconnect.Directive // the answer of a resolve
	refuses   func(d reconnect.Directive, at time.Duration) bool
	away      time.Duration // until when the resolver does not answer
}

const (
	attemptTakes = 30 * time.Millisecond
	resolveTakes = 2 * time.Millisecond
)

// homeAfter returns a function that names node a before the time moved, and node b after it.
func homeAfter(moved time.Duration) func(time.Duration) reconnect.Directive {
	return func(at time.Duration) reconnect.Directive {
		if at < moved {
			return directiveTo("a", 1)
		}
		return directiveTo("b", 2)
	}
}

func onlyA(d reconnect.Directive, _ time.Duration) bool { return d.To == "a" }

// stories contains one story for each row of the table in the package comment.
var stories = []story{
	{"kill -9, directive lost", false, homeAfter(300 * time.Millisecond), onlyA, 0},
	{"kill -9, failure unconfirmed for 5 s", false, homeAfter(5 * time.Second), onlyA, 0},
	{"drain with a directive", true, homeAfter(0), onlyA, 0},
	{"the target refuses for 1 s", true, homeAfter(0), func(d reconnect.Directive, at time.Duration) bool { return d.To == "a" || at < time.Second }, 0},
	{"kill -9, store away for 3 s", false, homeAfter(300 * time.Millisecond), onlyA, 3 * time.Second},
}

// crowdClient runs a Machine through a story.
type crowdClient struct {
	reconnect.Machine
	u         func() float64
	connectAt time.Duration // when the attempt in progress ends; negative if there is none
	answerAt  time.Duration
	target    reconnect.Directive
	resolves  []time.Duration
	attempts  []time.Duration
}

// play plays the story, and returns how long it takes until the client is connected.
func (c *crowdClient) play(s story) (time.Duration, error) {
	start := time.Unix(1_000_000, 0)
	c.connectAt, c.answerAt = -1, -1
	c.Directed(start.Add(-time.Hour), 0, directiveTo("a", 1))
	c.Next(start.Add(-time.Hour))
	c.Connected()
	if s.directive {
		c.Directed(start, c.u(), s.home(0))
	} else {
		c.Lost(start, c.u(), directiveTo("a", 1))
	}
	for now := time.Duration(0); ; {
		step, wait := c.Next(start.Add(now))
		switch {
		case step == reconnect.StepDone:
			return now, c.Err()
		case step == reconnect.StepConnect && wait <= 0:
			c.target, c.connectAt = c.Target(), now+attemptTakes
			c.attempts = append(c.attempts, now)
			continue
		case step == reconnect.StepResolve && wait <= 0:
			c.answerAt = now + resolveTakes
			c.resolves = append(c.resolves, now)
			continue
		}
		now = earliestOf(now, step, wait, c.connectAt, c.answerAt)
		c.outcome(s, start, now)
	}
}

func earliestOf(now time.Duration, step reconnect.Step, wait, connectAt, answerAt time.Duration) time.Duration {
	next := time.Hour
	if step != reconnect.StepNone {
		next = now + wait
	}
	for _, at := range []time.Duration{connectAt, answerAt} {
		if at >= 0 {
			next = min(next, at)
		}
	}
	return next
}

func (c *crowdClient) outcome(s story, start time.Time, now time.Duration) {
	at := start.Add(now)
	if c.answerAt == now {
		c.answerAt = -1
		if now < s.away {
			c.Unresolved(at, c.u(), errors.New("no answer"))
		} else if c.Resolved(at, c.u(), s.home(now)) {
			c.connectAt = -1
		}
	}
	if c.connectAt != now {
		return
	}
	c.connectAt = -1
	if s.refuses(c.target, now) {
		c.Refused(at, c.u(), reconnect.ErrRefused)
	} else {
		c.Connected()
		c.answerAt = -1
	}
}

// The table in the package comment must show the times that the machine reaches.
func TestTable(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	bounds := []time.Duration{time.Second, 5600 * time.Millisecond, 600 * time.Millisecond, 2 * time.Second, 3800 * time.Millisecond}
	for i, s := range stories {
		const clients = 1000
		var sum, longest time.Duration
		for seed := range uint64(clients) {
			c := crowdClient{u: rand.New(rand.NewPCG(seed, 1)).Float64}
			took, err := c.play(s)
			if err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			sum, longest = sum+took, max(longest, took)
		}
		if longest > bounds[i] {
			t.Errorf("%s: connected after %v at the latest, want %v", s.name, longest, bounds[i])
		}
		row := fmt.Sprintf("%.1f s %.1f s", (sum / clients).Seconds(), longest.Seconds())
		line := ""
		for text := range strings.Lines(string(doc)) {
			if strings.HasPrefix(text, "//\t"+s.name+" ") {
				line = strings.Join(strings.Fields(text), " ")
			}
		}
		if !strings.HasSuffix(line, row) {
			t.Errorf("doc.go: %q; the machine: %s", line, row)
		}
	}
}
