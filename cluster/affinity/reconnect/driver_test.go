package reconnect_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/lease"
)

// client is a Driver whose connections and answers are set by the test.
type client struct {
	reconnect.Driver
	start    time.Time
	log      bytes.Buffer
	tries    []try
	resolves []time.Duration
	connect  func(ctx context.Context, n int, d reconnect.Directive) error // n is 1 for the first attempt
	resolve  func(ctx context.Context) (reconnect.Directive, error)
}

type try struct {
	at time.Duration // since start
	to lease.NodeID
}

// newClient returns a client whose attempts fail and whose room is on node x.
func newClient() *client {
	c := &client{
		start:   time.Now(),
		connect: func(context.Context, int, reconnect.Directive) error { return errHandshake },
		resolve: func(context.Context) (reconnect.Directive, error) { return directiveTo("x", 50), nil },
	}
	c.Log = slog.New(slog.NewJSONHandler(&c.log, nil))
	c.Connect = func(ctx context.Context, d reconnect.Directive) error {
		c.tries = append(c.tries, try{time.Since(c.start), d.To})
		return c.connect(ctx, len(c.tries), d)
	}
	c.Resolve = func(ctx context.Context, room string) (reconnect.Directive, error) {
		if room != "r" {
			return reconnect.Directive{}, errors.New("wrong room " + room)
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

// directAt gives the client a directive at the given time after the client's start.
func (c *client) directAt(t *testing.T, at time.Duration, d reconnect.Directive) {
	time.AfterFunc(at-time.Since(c.start), func() {
		if err := c.Follow(t.Context(), d); err != nil {
			t.Errorf("at %v directive %+v: %v", at, d, err)
		}
	})
}

// seeds runs f many times, each time in its own bubble, because waits are random.
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

// fifths counts the times in each fifth of a range, to check that clients do not arrive in a wave.
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

func TestFollowGivesUp(t *testing.T) {
	var first, next fifths
	seeds(t, func(t *testing.T) {
		c := newClient()
		checkGaveUp(t, c.Follow(t.Context(), directiveTo("b", 1)), 4)
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
			t.Errorf("the returned error is logged too: %s", &c.log)
		}
	})
	first.check(t, "first attempts")
	next.check(t, "next attempts")
}

func TestFollowConnects(t *testing.T) {
	for at, want := range []string{1: "b", 2: "bb", 3: "bbb", 4: "bbbx"} {
		if at == 0 {
			continue
		}
		seeds(t, func(t *testing.T) {
			c := newClient()
			c.connect = func(_ context.Context, n int, d reconnect.Directive) error {
				time.Sleep(time.Second)
				if d.Room != "r" || d.Addr != string(d.To)+":443" {
					t.Errorf("directive %+v", d)
				}
				if n < at {
					return errHandshake
				}
				return nil
			}
			if err := c.Follow(t.Context(), directiveTo("b", 1)); err != nil || c.to() != want {
				t.Fatalf("attempts at %q, error %v; want %q, none", c.to(), err, want)
			}
			for i := 1; i < at; i++ { // the wait begins when an attempt fails, a second after its start
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

func TestFollowHangingAttempts(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 10 * time.Second, 2 * time.Second: 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient()
			c.AttemptTimeout = timeout
			hang := func(ctx context.Context, want time.Duration) error {
				began := time.Now()
				<-ctx.Done()
				checkGap(t, "the context of a step ends", time.Since(began), want, want)
				return ctx.Err()
			}
			c.connect = func(ctx context.Context, _ int, _ reconnect.Directive) error { return hang(ctx, want) }
			c.resolve = func(ctx context.Context) (reconnect.Directive, error) {
				return reconnect.Directive{}, hang(ctx, 2*time.Second) // a resolve may hang for at most 2 s
			}
			err := c.Follow(t.Context(), directiveTo("b", 1))
			var end *reconnect.GaveUpError
			if !errors.As(err, &end) || !errors.Is(err, context.DeadlineExceeded) || end.Attempts != 3 || c.to() != "bbb" || len(c.resolves) != 1 {
				t.Errorf("attempts at %q, %d resolves, error %v", c.to(), len(c.resolves), err)
			}
			if !strings.Contains(err.Error(), "resolve: ") {
				t.Errorf("%q does not say that the resolve failed", err)
			}
		})
	}
}

func TestFollowContextEnds(t *testing.T) {
	for _, at := range []time.Duration{0, time.Nanosecond, 2 * time.Second, 3500 * time.Millisecond, 9 * time.Second} {
		seeds(t, func(t *testing.T) {
			c := newClient()
			c.connect = func(ctx context.Context, _ int, _ reconnect.Directive) error {
				select {
				case <-time.After(time.Second):
					return errHandshake
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), at)
			defer cancel()
			if err := c.Follow(ctx, directiveTo("b", 1)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, reconnect.ErrGaveUp) {
				t.Errorf("error %v", err)
			}
			if got := time.Since(c.start); got != at {
				t.Errorf("returned after %v, want %v", got, at)
			}
		})
	}
}

func TestFollowNewerDirective(t *testing.T) {
	for _, c := range []struct {
		name string
		at   time.Duration // when the directive arrives; an attempt begins within 500 ms and takes a second
		lo   time.Duration // bounds for the first attempt at the new target
		hi   time.Duration
		old  string // attempts at the old target
	}{
		{"during the attempt", 800 * time.Millisecond, 800 * time.Millisecond, 1300 * time.Millisecond, "b"},
		{"during the wait", 2 * time.Second, 2 * time.Second, 2500 * time.Millisecond, "b"},
		{"late in the wait", 3900 * time.Millisecond, 3900 * time.Millisecond, 4400 * time.Millisecond, "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var first fifths
			seeds(t, func(t *testing.T) {
				k := newClient()
				abandoned := false
				k.connect = func(ctx context.Context, _ int, d reconnect.Directive) error {
					if d.To == "c" && len(k.tries) == len(c.old)+2 {
						return nil
					}
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
						abandoned = true
						checkGap(t, "abandoned", time.Since(k.start), c.at, c.at)
					}
					return errHandshake
				}
				k.directAt(t, c.at, directiveTo("c", 2))
				k.directAt(t, c.at+time.Nanosecond, directiveTo("d", 2)) // no newer
				k.directAt(t, c.at+2, directiveTo("e", 1))
				if err := k.Follow(t.Context(), directiveTo("b", 1)); err != nil || k.to() != c.old+"cc" {
					t.Fatalf("attempts at %q, error %v; want %scc, none", k.to(), err, c.old)
				}
				checkGap(t, "first attempt at the new target", k.tries[len(c.old)].at, c.lo, c.hi)
				first.add(k.tries[len(c.old)].at, c.lo, c.hi)
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

// An attempt succeeds after a newer directive has abandoned it. The client then connects to the node of the newer
// directive.
func TestFollowAbandonedAttemptSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.connect = func(_ context.Context, n int, _ reconnect.Directive) error {
			if n == 1 {
				go func() { _ = c.Follow(t.Context(), directiveTo("c", 2)) }()
				synctest.Wait()
			}
			return nil
		}
		if err := c.Follow(t.Context(), directiveTo("b", 1)); err != nil || c.to() != "bc" {
			t.Errorf("attempts at %q, error %v; want bc, none", c.to(), err)
		}
	})
}

// A call with an old directive changes nothing. A call with a directive for another room fails.
func TestFollowOldNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.connect = func(context.Context, int, reconnect.Directive) error { return nil }
		expect := func(d reconnect.Directive, want string) {
			t.Helper()
			if err := c.Follow(t.Context(), d); err != nil || c.to() != want {
				t.Errorf("%s %d: attempts at %q, error %v; want %q, none", d.To, d.Epoch, c.to(), err, want)
			}
		}
		expect(directiveTo("b", 5), "b")
		expect(directiveTo("b", 5), "b") // the client is already connected to b
		expect(directiveTo("a", 4), "b") // late
		expect(directiveTo("c", 6), "bc")
		if err := c.Follow(t.Context(), reconnect.Directive{Room: "other", To: "b", Epoch: 9}); !errors.Is(err, reconnect.ErrRoom) {
			t.Errorf("for another room: %v", err)
		}
		c.connect = func(context.Context, int, reconnect.Directive) error { return errHandshake }
		c.tries = nil
		checkGaveUp(t, c.Follow(t.Context(), directiveTo("d", 51)), 4)
		c.connect = func(context.Context, int, reconnect.Directive) error { return nil }
		expect(directiveTo("d", 51), "dddxd") // the client gave up, so it tries the same directive again
	})
	if err := (&reconnect.Driver{}).Follow(t.Context(), directiveTo("b", 1)); !errors.Is(err, reconnect.ErrDriver) {
		t.Errorf("without Connect and Resolve: %v", err)
	}
	if err := newClient().Follow(t.Context(), reconnect.Directive{Room: "r"}); !errors.Is(err, reconnect.ErrNoNode) {
		t.Errorf("without a node: %v", err)
	}
}
