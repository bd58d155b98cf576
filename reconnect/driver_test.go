package reconnect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// client is a Driver with scripted connections and answers.
type client struct {
	Driver
	start    time.Time
	log      bytes.Buffer
	tries    []try
	resolves []time.Duration
	connect  func(ctx context.Context, n int, d Directive) error // n counts from 1
	resolve  func(ctx context.Context) (Directive, error)
}

type try struct {
	at time.Duration // since start
	to lease.NodeID
}

// newClient returns a client with failing attempts, and with its room on node x.
func newClient() *client {
	c := &client{
		start:   time.Now(),
		connect: func(context.Context, int, Directive) error { return errRefused },
		resolve: func(context.Context) (Directive, error) { return directiveTo("x", 50), nil },
	}
	c.Log = slog.New(slog.NewJSONHandler(&c.log, nil))
	c.Connect = func(ctx context.Context, d Directive) error {
		c.tries = append(c.tries, try{time.Since(c.start), d.To})
		return c.connect(ctx, len(c.tries), d)
	}
	c.Resolve = func(ctx context.Context, room string) (Directive, error) {
		if room != "r" {
			return Directive{}, errors.New("wrong room " + room)
		}
		c.resolves = append(c.resolves, time.Since(c.start))
		return c.resolve(ctx)
	}
	return c
}

func (c *client) to() (nodes string) {
	for _, t := range c.tries {
		nodes += string(t.to)
	}
	return nodes
}

// directAt gives the client a directive at that time since its start.
func (c *client) directAt(t *testing.T, at time.Duration, d Directive) {
	time.AfterFunc(at-time.Since(c.start), func() {
		if !c.Directed(d) {
			t.Errorf("at %v directive %+v is not taken", at, d)
		}
	})
}

// seeds runs f many times, each in a bubble, since waits are random.
func seeds(t *testing.T, f func(*testing.T)) {
	for range 200 {
		if synctest.Test(t, f); t.Failed() {
			return
		}
	}
}

func checkGap(t *testing.T, what string, gap, lo, hi time.Duration) {
	t.Helper()
	if gap < lo || gap > hi {
		t.Errorf("%s after %v, want %v to %v", what, gap, lo, hi)
	}
}

// fifths counts times in each fifth of a range: clients come in no wave.
type fifths [5]int

func (f *fifths) add(d, lo, hi time.Duration) { f[min(max(0, 5*(d-lo)/(hi-lo)), 4)]++ }

func (f *fifths) check(t *testing.T, what string) {
	t.Helper()
	sum := 0
	for _, n := range f {
		sum += n
	}
	if sum == 0 || slices.Max(f[:]) > sum*3/5 {
		t.Errorf("%s by fifths of their range: %v", what, *f)
	}
}

func TestRunGivesUp(t *testing.T) { // S0.9
	var first, next fifths
	seeds(t, func(t *testing.T) {
		c := newClient()
		checkGaveUp(t, c.Run(t.Context(), directiveTo("b", 1)), 4)
		if got := c.to(); got != "bbbx" || len(c.resolves) != 1 {
			t.Fatalf("attempts at %q, %d resolves; want bbbx, 1", got, len(c.resolves))
		}
		checkGap(t, "first attempt", c.tries[0].at, 0, 500*time.Millisecond)
		first.add(c.tries[0].at, 0, 500*time.Millisecond)
		for i := range 3 {
			gap := c.tries[i+1].at - c.tries[i].at
			checkGap(t, "next attempt", gap, 3*time.Second, 5*time.Second)
			next.add(gap, 3*time.Second, 5*time.Second)
		}
		if c.resolves[0] != c.tries[3].at || time.Since(c.start) != c.tries[3].at {
			t.Errorf("resolved at %v, last attempt at %v, gave up at %v; want all at once",
				c.resolves[0], c.tries[3].at, time.Since(c.start))
		}
		if c.log.Len() > 0 {
			t.Errorf("what is returned is logged too: %s", &c.log)
		}
	})
	first.check(t, "first attempts")
	next.check(t, "next attempts")
}

func TestRunConnects(t *testing.T) { // S0.9, S0.13
	for at, want := range []string{1: "b", 2: "bb", 3: "bbb", 4: "bbbx"} {
		if at == 0 {
			continue
		}
		seeds(t, func(t *testing.T) {
			c := newClient()
			c.connect = func(_ context.Context, n int, d Directive) error {
				time.Sleep(time.Second)
				if d.Room != "r" || d.Addr != string(d.To)+":443" {
					t.Errorf("directive %+v", d)
				}
				if n < at {
					return errRefused
				}
				return nil
			}
			if err := c.Run(t.Context(), directiveTo("b", 1)); err != nil || c.to() != want {
				t.Fatalf("attempts at %q, error %v; want %q, none", c.to(), err, want)
			}
			for i := 1; i < at; i++ { // counted from the failure, a second later
				checkGap(t, "next attempt", c.tries[i].at-c.tries[i-1].at, 4*time.Second, 6*time.Second)
			}
			var line struct {
				Msg, Room, To string
				Attempts      int
				DurationMS    int64 `json:"duration_ms"`
			}
			if err := json.Unmarshal(c.log.Bytes(), &line); err != nil {
				t.Fatalf("log %q: %v", &c.log, err)
			}
			if line.Msg != "client migrated" || line.Room != "r" || line.To != want[at-1:] || line.Attempts != at ||
				line.DurationMS != time.Since(c.start).Milliseconds() {
				t.Errorf("log %s after %v", &c.log, time.Since(c.start))
			}
		})
	}
}

func TestRunHangingAttempts(t *testing.T) { // S0.9
	for timeout, want := range map[time.Duration]time.Duration{0: 10 * time.Second, 2 * time.Second: 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient()
			c.AttemptTimeout = timeout
			hang := func(ctx context.Context) error {
				began := time.Now()
				<-ctx.Done()
				checkGap(t, "the context of a step ends", time.Since(began), want, want)
				return ctx.Err()
			}
			c.connect = func(ctx context.Context, _ int, _ Directive) error { return hang(ctx) }
			c.resolve = func(ctx context.Context) (Directive, error) { return Directive{}, hang(ctx) }
			err := c.Run(t.Context(), directiveTo("b", 1))
			var end *GaveUpError
			if !errors.As(err, &end) || !errors.Is(err, context.DeadlineExceeded) || end.Attempts != 3 || c.to() != "bbb" || len(c.resolves) != 1 {
				t.Errorf("attempts at %q, %d resolves, error %v", c.to(), len(c.resolves), err)
			}
			if !strings.Contains(err.Error(), "resolve: ") {
				t.Errorf("%q does not say that the resolve failed", err)
			}
		})
	}
}

func TestRunContextEnds(t *testing.T) {
	for _, at := range []time.Duration{0, time.Nanosecond, 2 * time.Second, 3500 * time.Millisecond, 9 * time.Second} {
		seeds(t, func(t *testing.T) {
			c := newClient()
			c.connect = func(ctx context.Context, _ int, _ Directive) error {
				select {
				case <-time.After(time.Second):
					return errRefused
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), at)
			defer cancel()
			if err := c.Run(ctx, directiveTo("b", 1)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrGaveUp) {
				t.Errorf("error %v", err)
			}
			if got := time.Since(c.start); got != at {
				t.Errorf("returned after %v, want %v", got, at)
			}
			if c.Directed(directiveTo("c", 2)) {
				t.Error("a directive is taken although nothing runs")
			}
		})
	}
}

func TestRunNewerDirective(t *testing.T) { // S0.9
	for _, c := range []struct {
		name string
		at   time.Duration // of the directive; an attempt begins within 500 ms and takes a second
		lo   time.Duration // bounds of the first attempt at the new target
		hi   time.Duration
		old  string // attempts at the old target
	}{
		{"during the attempt", 800 * time.Millisecond, 3 * time.Second, 4 * time.Second, "b"},
		{"during the wait", 2 * time.Second, 3 * time.Second, 4 * time.Second, "b"},
		{"late in the wait", 3900 * time.Millisecond, 3900 * time.Millisecond, 4400 * time.Millisecond, "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var first fifths
			seeds(t, func(t *testing.T) {
				k := newClient()
				abandoned := false
				k.connect = func(ctx context.Context, _ int, d Directive) error {
					if d.To == "c" && len(k.tries) == len(c.old)+2 {
						return nil
					}
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
						abandoned = true
						checkGap(t, "abandoned", time.Since(k.start), c.at, c.at)
					}
					return errRefused
				}
				k.directAt(t, c.at, directiveTo("c", 2))
				k.directAt(t, c.at+time.Nanosecond, directiveTo("d", 2)) // no newer
				k.directAt(t, c.at+2, directiveTo("e", 1))
				if err := k.Run(t.Context(), directiveTo("b", 1)); err != nil || k.to() != c.old+"cc" {
					t.Fatalf("attempts at %q, error %v; want %scc, none", k.to(), err, c.old)
				}
				checkGap(t, "first attempt at the new target", k.tries[len(c.old)].at, c.lo, c.hi)
				first.add(k.tries[len(c.old)].at, c.lo, c.hi)
				checkGap(t, "the one before it", k.tries[len(c.old)].at-k.tries[len(c.old)-1].at, 3*time.Second, time.Hour)
				if abandoned != (c.name == "during the attempt") {
					t.Errorf("attempt abandoned: %v", abandoned)
				}
				if !strings.Contains(k.log.String(), `"attempts":3`) {
					t.Errorf("log %s", &k.log)
				}
			})
			first.check(t, "first attempts at the new target")
		})
	}
}

// All attempts are there again, and the one resolve.
func TestRunNewerDirectiveStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.resolve = func(context.Context) (Directive, error) {
			if len(c.resolves) == 1 && !c.Directed(directiveTo("c", 2)) {
				t.Error("a directive during the resolve is not taken")
			}
			return directiveTo("x", 1), nil
		}
		checkGaveUp(t, c.Run(t.Context(), directiveTo("b", 1)), 7)
		if c.to() != "bbbcccx" || len(c.resolves) != 2 {
			t.Errorf("attempts at %q, %d resolves; want bbbcccx, 2", c.to(), len(c.resolves))
		}
	})
}

// An abandoned attempt that succeeds is connected to the wrong node.
func TestRunAbandonedAttemptSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.connect = func(_ context.Context, n int, _ Directive) error {
			if n == 1 {
				c.Directed(directiveTo("c", 2))
			}
			return nil
		}
		if err := c.Run(t.Context(), directiveTo("b", 1)); err != nil || c.to() != "bc" {
			t.Errorf("attempts at %q, error %v; want bc, none", c.to(), err)
		}
	})
}

func TestDirectedWithoutRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		expect := func(d Directive, want bool) {
			t.Helper()
			if got := c.Directed(d); got != want {
				t.Errorf("Directed(%s %d) = %v, want %v", d.Room, d.Epoch, got, want)
			}
		}
		expect(directiveTo("b", 5), false)
		c.connect = func(context.Context, int, Directive) error { return nil }
		if err := c.Run(t.Context(), directiveTo("b", 5)); err != nil {
			t.Fatal(err)
		}
		expect(directiveTo("a", 4), true) // late news
		expect(directiveTo("b", 5), true) // the client is there
		expect(directiveTo("c", 6), false)
		expect(Directive{Room: "other", Epoch: 1}, false)
		if err := c.Run(t.Context(), directiveTo("a", 4)); err != nil || c.to() != "b" {
			t.Errorf("Run with late news: attempts at %q, error %v; want b and none", c.to(), err)
		}
		if err := c.Run(t.Context(), directiveTo("b", 5)); err != nil || c.to() != "bb" {
			t.Errorf("Run with the same once more: attempts at %q, error %v; want bb and none", c.to(), err)
		}
		c.connect = func(context.Context, int, Directive) error { return errRefused }
		checkGaveUp(t, c.Run(t.Context(), directiveTo("c", 6)), 4)
		expect(directiveTo("c", 6), false) // it is not there
		c.connect = func(context.Context, int, Directive) error { return nil }
		if err := c.Run(t.Context(), directiveTo("z", 1)); err != nil || !strings.HasSuffix(c.to(), "z") {
			t.Errorf("Run after giving up: attempts at %q, error %v", c.to(), err)
		}
	})
}

func TestRunMisused(t *testing.T) {
	if err := (&Driver{}).Run(t.Context(), Directive{}); err == nil {
		t.Error("runs without Connect and Resolve")
	}
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx, directiveTo("b", 1)) }()
		synctest.Wait()
		if err := c.Run(ctx, directiveTo("c", 2)); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("a second Run at the same time: %v", err)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the first Run: %v", err)
		}
		if c.to() == "c" {
			t.Error("the second Run took over")
		}
	})
}

// logFunc is called for each line of a log.
type logFunc func()

func (logFunc) Enabled(context.Context, slog.Level) bool    { return true }
func (f logFunc) Handle(context.Context, slog.Record) error { f(); return nil }
func (f logFunc) WithAttrs([]slog.Attr) slog.Handler        { return f }
func (f logFunc) WithGroup(string) slog.Handler             { return f }

// A Run that has ended but not yet returned must not end the next one.
func TestRunReturnsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.connect = func(context.Context, int, Directive) error { return nil }
		var once sync.Once
		second := make(chan error, 1)
		c.Log = slog.New(logFunc(func() {
			once.Do(func() {
				go func() { second <- c.Run(t.Context(), directiveTo("c", 2)) }()
				synctest.Wait() // until it waits for its first attempt
			})
		}))
		if err := c.Run(t.Context(), directiveTo("b", 1)); err != nil {
			t.Fatal(err)
		}
		if !c.Directed(directiveTo("d", 3)) {
			t.Error("the second Run has been ended by the first")
		}
		if err := <-second; err != nil || c.to() != "bd" {
			t.Errorf("attempts at %q, error %v; want bd, none", c.to(), err)
		}
	})
}

// A panic reaches the caller of Run. The context of the step ends, and the Driver can
// be used again.
func TestRunPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		var step context.Context
		c.connect = func(ctx context.Context, _ int, _ Directive) error {
			step = ctx
			panic("boom")
		}
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			err := c.Run(t.Context(), directiveTo("b", 1))
			t.Errorf("Run returns %v", err)
		}()
		if step.Err() == nil {
			t.Error("the context of the step is alive")
		}
		if c.Directed(directiveTo("b", 2)) {
			t.Error("a directive is taken although nothing runs")
		}
		c.connect = func(context.Context, int, Directive) error { return nil }
		if err := c.Run(t.Context(), directiveTo("b", 1)); err != nil {
			t.Errorf("the next Run: %v", err)
		}
	})
}

// A directive that Directed takes is followed, even if Run is about to end: the client
// ends at the newest node.
func TestDirectedAtTheEnd(t *testing.T) {
	for range 300 {
		r := Driver{
			Pace: Pace{Spread: 1, MinWait: 1, MaxWait: 1}, Log: slog.New(slog.DiscardHandler),
			Resolve: func(context.Context, string) (Directive, error) { return Directive{}, errRefused },
		}
		var mu sync.Mutex
		var at uint64 // epoch of the node that the client is connected to
		r.Connect = func(_ context.Context, d Directive) error {
			mu.Lock()
			defer mu.Unlock()
			at = d.Epoch
			return nil
		}
		run := func(d Directive) {
			for !r.Directed(d) {
				if err := r.Run(t.Context(), d); !errors.Is(err, errRunning) {
					if err != nil {
						t.Error(err)
					}
					return
				}
			}
		}
		const last = 8
		var wg sync.WaitGroup
		for epoch := range uint64(last) {
			wg.Go(func() {
				runtime.Gosched()
				run(directiveTo("b", epoch+1))
			})
		}
		wg.Wait()
		if at != last {
			t.Fatalf("ends at epoch %d, want %d", at, last)
		}
	}
}
