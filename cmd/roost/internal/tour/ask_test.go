package tour

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
)

func TestObserve(t *testing.T) {
	rooms := []string{"lobby", "stage"}
	s := newScene(t, abc, "abcabcab", homes, rooms...)
	want := fleet(abc, "abcabcab", homes, rooms...)
	want[1].expired = map[lease.NodeID]int{"x": 2}
	s.set(want)
	s.agents["a"].Set("GET /v1/members", func(n int) any {
		m := s.membersOf(want[0])
		m.Version = uint64(min(n, 6)) // the tour must not combine answers from two versions
		return m
	})
	got, err := s.observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(view{}, pin{})); diff != "" {
		t.Error(diff)
	}
	if asked := s.agents["a"].Times("GET /v1/members"); asked != 8 {
		t.Errorf("a was asked %d times for its members, want twice at versions 1 and 2, 3 and 4, 5 and 6, 6 and 6", asked)
	}
}

func TestObserveOneThatDied(t *testing.T) {
	s := newScene(t, ab, "abab", nil, "lobby")
	observe := func(ctx context.Context) error {
		_, err := s.observe(ctx)
		return err
	}
	s.agents["b"].Set("GET /v1/place?key=lobby", away)
	if err := s.take(t.Context(), observe); err == nil || !strings.Contains(err.Error(), "ask b for lobby: the store is away") {
		t.Errorf("got %v", err)
	}
	s.nodes[1].client.Base = "127.0.0.1:1" // where no agent listens
	if err := s.take(t.Context(), observe); err == nil || !strings.Contains(err.Error(), "ask b for its view: ") {
		t.Errorf("got %v", err)
	}
	p, err := agentproc.Start(exec.Command("true"), nil)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	s.nodes[1].Process = p
	want := fmt.Sprintf("b: pid %d ended by itself", p.PID())
	if err := s.take(t.Context(), observe); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

// TestVisitAgain: the tour repeats a question after a degraded answer, and after a temporary error.
func TestVisitAgain(t *testing.T) {
	s := newScene(t, ab, "abab", homes)
	var want []answer
	for _, v := range s.seen {
		for _, p := range s.parties {
			want = append(want, answerOf(v, p.room, affinity.Pinned))
		}
	}
	guess := clusterhttp.RoomAssignment{Room: "yard", Node: memberOf("a"), Source: affinity.Degraded, Reason: "a guess"}
	s.first(2, "a", "POST /v1/rooms/yard/resolve", guess, want[1].RoomAssignment)
	s.first(1, "b", "POST /v1/rooms/attic/resolve", away, want[2].RoomAssignment)
	want[1].again, want[2].again = true, true
	answers, err := s.visit(t.Context(), s.parties)
	if diff := cmp.Diff(want, answers, cmp.AllowUnexported(answer{})); diff != "" || err != nil {
		t.Error(err, diff)
	}
	s.askedAgain()
	if !strings.Contains(s.printed(), "3 times") {
		t.Errorf("3 repeated questions are not printed: %q", s.printed())
	}
	const list = "GET /v1/rooms?limit=10000&node=b"
	s.first(1, "a", list, away, clusterhttp.Rooms{Rooms: []clusterhttp.PinnedRoom{{Room: "yard", Node: "b", Epoch: 17, Size: 3}}})
	pins, err := s.nodes[0].list(t.Context(), "b")
	if diff := cmp.Diff(map[string]pin{"yard": {"b", 17, 3}}, pins, cmp.AllowUnexported(pin{})); diff != "" || err != nil {
		t.Error(err, diff)
	}
	s.nodes[1].client.Base = "127.0.0.1:1"
	if _, err := s.visit(t.Context(), s.parties); err == nil || !strings.Contains(err.Error(), "ask b for attic") {
		t.Errorf("of a node that is gone: %v", err)
	}
}

// TestGivesUp: the tour does not wait long for a store that hangs, and its error includes the agent's last answer.
func TestGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		status       int
		answer, want string
	}{
		"busy":   {http.StatusServiceUnavailable, `{"code": "store", "error": "the store is away"}`, "gave up after 30s: the store is away"},
		"guess":  {http.StatusOK, `{"source": "degraded", "reason": "no heartbeat"}`, "gave up after 30s: it can only guess: no heartbeat"},
		"silent": {0, "", "gave up after 30s: no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &node{id: "a", client: &clusterhttp.Client{HTTP: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
					time.Sleep(time.Second)
					if c.status == 0 {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					return &http.Response{StatusCode: c.status, Body: io.NopCloser(strings.NewReader(c.answer))}, nil
				})}}}
				began := time.Now()
				_, err := new(tour).resolve(t.Context(), n, party{"attic", 3})
				if err == nil || !strings.Contains(err.Error(), "ask a for attic: "+c.want) || time.Since(began) > persistTime+time.Second {
					t.Errorf("after %v: %v, want %q", time.Since(began), err, c.want)
				}
			})
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestFailedOver(t *testing.T) {
	s := newScene(t, ab, "abab", map[string]lease.NodeID{"attic": "a", "yard": "c"})
	orphan := clusterhttp.Rooms{Rooms: []clusterhttp.PinnedRoom{{Room: "yard", Node: "c"}}}
	const list = "GET /v1/rooms?limit=10000&node=c"
	s.first(3, "a", list, orphan, clusterhttp.Rooms{})
	since := time.Now().Add(-2 * time.Second)
	took, err := s.failedOver(t.Context(), since, "c")
	if err != nil || took < 2*time.Second+3*pollEvery || s.agents["a"].Times("GET /v1/rooms") != 4 {
		t.Errorf("after %v and %d questions, %v", took, s.agents["a"].Times("GET /v1/rooms"), err)
	}
	if !strings.Contains(s.printed(), "1 pinned rooms still wait on c") {
		t.Errorf("the wait is not shown: %s", s.printed())
	}
}

func TestLoaded(t *testing.T) {
	s := newScene(t, ab, "abab", homes)
	heard := s.membersOf(s.seen[1])
	unheard := clusterhttp.Members{Self: "b", Members: []clusterhttp.Member{memberOf("a"), memberOf("b")}}
	s.first(3, "b", "GET /v1/members", unheard, heard)
	if _, problem, err := s.loaded(t.Context(), time.Now(), s.seen[0].pins); problem != "" || err != nil || s.agents["b"].Times("GET /v1/members") < 4 {
		t.Error(problem, err)
	}
	for name, c := range map[string]struct {
		people  int // in yard
		upset   func()
		problem string
	}{
		"less than it is": {4, func() {}, "streams of b: by its rooms 12, a says 6"},
		"more than it is": {0, func() {}, "streams of b: by its rooms none, a says 6"},
		"silent":          {3, func() { s.nodes[1].client.Base = "127.0.0.1:1" }, "b does not answer: "},
	} {
		t.Run(name, func(t *testing.T) {
			c.upset()
			ctx, since := s.untilItWaits(t)
			_, problem, err := s.loaded(ctx, since, map[string]pin{"attic": {"a", 17, 3}, "yard": {"b", 17, c.people}})
			if !strings.HasPrefix(problem, c.problem) || !errors.Is(err, errWaits) {
				t.Errorf("got %q, %v", problem, err)
			}
		})
	}
}

// TestPollFor: if what the tour waits for takes too long, the step goes on, because a check will notice. If the step's
// own time runs out, the step fails.
func TestPollFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tour := &tour{out: newPrinter(new(agentproc.Log))}
		look := func(context.Context) (string, error) { return "it takes long", nil }
		began := time.Now()
		if took, err := tour.pollFor(t.Context(), loadTime, began, look); err != nil || took < loadTime {
			t.Errorf("after %v: %v", took, err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, io.ErrUnexpectedEOF)
		defer cancel()
		if took, err := tour.pollFor(ctx, loadTime, time.Now(), look); !errors.Is(err, io.ErrUnexpectedEOF) || took > 2*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
