package tour

import (
	"context"
	"fmt"
	"io"
	"net/http"
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

// TestInvite: the same number of rooms for each node, and some that fill the owner of the
// big room, so that it lacks headroom while the other nodes have it.
func TestInvite(t *testing.T) {
	for _, nodes := range []int{2, 5, 20} {
		tour, _ := scene(t, ab, evenly("ab", 64), nil)
		tour.o.Nodes, tour.parties = nodes, nil
		for i := range roomCount {
			tour.rooms = append(tour.rooms, fmt.Sprintf("room-%d", i))
		}
		tour.invite()
		want := min(mostRooms, roomsPerNode*nodes) + fullRooms
		if len(tour.parties) != want {
			t.Errorf("%d nodes: %d rooms, want %d", nodes, len(tour.parties), want)
		}
		seen, sizes, full := make(map[string]bool), make(map[int]int), 0
		for _, p := range tour.parties {
			if seen[p.room] {
				t.Errorf("%s twice", p.room)
			}
			seen[p.room] = true
			sizes[p.size]++
			if p.size == fullSize && tour.hashed(p.room) == tour.hashed(bigRoom) {
				full += p.streams()
			}
		}
		for size := leastSize; size <= mostSize; size++ {
			if sizes[size] == 0 {
				t.Errorf("%d nodes: no room of %d: %v", nodes, size, sizes)
			}
		}
		ceiling := capacity * affinity.Config{}.WithDefaults().SoftCeiling / 100
		if big := (party{bigRoom, bigSize}).streams(); full+big <= ceiling || big > ceiling {
			t.Errorf("%d streams fill a node, and %d more fit below %d", full, big, ceiling)
		}
	}
}

// TestVisitAgain: the tour repeats a question after a degraded answer and after an error
// that may pass.
func TestVisitAgain(t *testing.T) {
	tour, f := scene(t, ab, "abab", homes)
	f.guesses, f.busy = 2, 1
	visits, err := tour.visit(t.Context(), tour.parties)
	if err != nil {
		t.Fatal(err)
	}
	for i := range visits {
		for j := range visits[i].homes {
			visits[i].homes[j].again = false
		}
	}
	if diff := cmp.Diff(asked(tour.parties, f.answers), visits, cmp.AllowUnexported(visit{}, home{})); diff != "" {
		t.Error(diff)
	}
	tour.askedAgain()
	if out := tour.out.w.(*agentproc.Log).String(); !strings.Contains(out, "3 times") {
		t.Errorf("3 repeated questions are not printed: %q", out)
	}
	f.busy = 1
	pins, err := tour.nodes[0].list(t.Context(), "b")
	if diff := cmp.Diff(map[string]pin{"yard": {"b", 17, 3}}, pins, cmp.AllowUnexported(pin{})); diff != "" || err != nil {
		t.Error(err, diff)
	}
	tour.nodes[1].client.Base = "127.0.0.1:1"
	if _, err := tour.visit(t.Context(), tour.parties); err == nil || !strings.Contains(err.Error(), "ask b for attic") {
		t.Errorf("of a node that is gone: %v", err)
	}
}

// TestGivesUp: the tour does not wait long for a store that hangs, and its error says what the agent said last.
func TestGivesUp(t *testing.T) {
	away := `{"code": "store", "error": "the store is away"}`
	for name, c := range map[string]struct {
		status       int
		answer, want string
	}{
		"busy":   {http.StatusServiceUnavailable, away, "gave up after 30s: the store is away"},
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

// TestGrace: Ctrl-C shortens a stop that has begun.
func TestGrace(t *testing.T) {
	for at, want := range map[time.Duration]time.Duration{
		-1: hurryTime, 5 * time.Second: 5*time.Second + hurryTime, 19 * time.Second: stopTime, time.Minute: stopTime,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), at)
			defer cancel()
			began := time.Now()
			limit, release := grace(ctx)
			defer release()
			<-limit.Done()
			if took := time.Since(began); took != want {
				t.Errorf("Ctrl-C after %v: the stop may take %v, want %v", at, took, want)
			}
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestFailedOver(t *testing.T) {
	tour, f := scene(t, ab, "abab", map[string]lease.NodeID{"attic": "a", "yard": "c"})
	later := fleet(ab, "abab", nil)
	people(later, homes)
	timer := time.AfterFunc(300*time.Millisecond, func() { f.set(later) })
	defer timer.Stop()
	since := time.Now().Add(-2 * time.Second)
	took, err := tour.failedOver(t.Context(), since, "c")
	if err != nil || took < 2300*time.Millisecond {
		t.Errorf("after %v, %v", took, err)
	}
	if out := tour.out.w.(*agentproc.Log).String(); !strings.Contains(out, "1 pinned rooms still wait on c") {
		t.Errorf("the wait is not shown: %s", out)
	}
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := tour.failedOver(short, since, "b"); err != nil { // the checks find the problem
		t.Error(err)
	}
}

func TestLoaded(t *testing.T) {
	tour, f := scene(t, ab, "abab", homes)
	f.lag = 3
	if _, problem := tour.loaded(t.Context(), time.Now(), f.answers[0].pins); problem != "" || f.lag > 0 {
		t.Errorf("%s, %d answers to go", problem, f.lag)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, problem := tour.loaded(short, time.Now(), map[string]pin{"attic": {"a", 17, 3}, "yard": {"b", 17, 4}})
	if problem != "a has heard that b carries 6 streams, by its rooms it is 12" {
		t.Errorf("got %q", problem)
	}
	m := &clusterhttp.Members{Members: []clusterhttp.Member{{Profile: lease.Profile{ID: "a"}, Load: 6}, {Profile: lease.Profile{ID: "b"}}}}
	for want, loads := range map[string]map[lease.NodeID]int{
		"": {"a": 6},
		"x has heard that a carries 6 streams, by its rooms it is 0": {},
		"x has heard that b carries 0 streams, by its rooms it is 2": {"a": 6, "b": 2},
	} {
		if got := wrongLoad("x", m, loads); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := wrongLoad("x", nil, nil); got != "x does not answer" {
		t.Error(got)
	}
}

// TestOverrideStep: the step of the big room finds out where the room went.
func TestOverrideStep(t *testing.T) {
	for name, c := range map[string]struct {
		homes  []lease.NodeID // of the big room, by each agent
		broken []string
	}{
		"all to another node": {[]lease.NodeID{"c", "c", "c"}, nil},
		"all by the hash":     {[]lease.NodeID{"a", "a", "a"}, []string{"it is not a, the owner by the hash: that one has no headroom: "}},
		"each elsewhere": {[]lease.NodeID{"b", "c", "b"}, []string{
			"all 50 people are sent to one node, by all 3 agents: ",
			"each is hosted by the node that it is pinned to, and by no other: all-hands has no host",
			"all 3 agents list the same 2 pins, one for each room: all-hands is pinned to c (epoch 17) says b",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tour, f := scene(t, abc, "aaaa", map[string]lease.NodeID{"attic": "a"})
			for i := range f.answers {
				f.answers[i].pins[bigRoom] = pin{c.homes[i], 17, bigSize}
			}
			if err := tour.override(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(tour.broken) != len(c.broken) {
				t.Fatalf("broken: %q", tour.broken)
			}
			for i, want := range c.broken {
				if !strings.HasPrefix(tour.broken[i], "step 3: "+want) {
					t.Errorf("broken: %q, want %q", tour.broken[i], want)
				}
			}
		})
	}
}

// TestRestart: a room that ends on a drained node starts on another node, where the tour
// sees it from then on. A store that does not answer at first ends no tour.
func TestRestart(t *testing.T) {
	for heir, problem := range map[lease.NodeID]string{"a": "", "b": "a sends people of yard to b (and 1 more)"} {
		t.Run(string(heir), func(t *testing.T) {
			t.Parallel() // one waits
			tour, f := scene(t, ab, "aaaa", homes)
			f.heir, f.busy = heir, 1
			checks, err := tour.restart(t.Context(), tour.nodes[1])
			if err != nil || len(checks) != 1 {
				t.Fatal(checks, err)
			}
			expectCheck(t, checks[0], problem)
			if got := tour.seen[1].pins["yard"]; got != (pin{heir, 18, 3}) {
				t.Errorf("the tour sees yard as %+v", got)
			}
		})
	}
	tour, _ := scene(t, ab, "aaaa", map[string]lease.NodeID{"attic": "a"})
	if checks, err := tour.restart(t.Context(), tour.nodes[1]); len(checks) > 0 || err != nil {
		t.Errorf("it had no room: %v, %v", checks, err)
	}
}

// TestPick: events happen to a node with rooms, if there is one.
func TestPick(t *testing.T) {
	tour, _ := scene(t, abc, "abcabc", nil)
	picked := make(map[lease.NodeID]int)
	for range 100 {
		picked[tour.pick().id]++
	}
	if picked["a"] > 0 || picked["b"] == 0 || picked["c"] == 0 {
		t.Errorf("without rooms: %v", picked)
	}
	people(tour.seen, map[string]lease.NodeID{"attic": "a", "yard": "c"})
	for range 100 {
		if id := tour.pick().id; id != "c" {
			t.Fatalf("%s has no rooms", id)
		}
	}
}

// TestCrowd: the first question is not to the owner, which might guess, and the last
// questions are to all agents.
func TestCrowd(t *testing.T) {
	tour, _ := scene(t, abc, "abcabc", map[string]lease.NodeID{bigRoom: "c"})
	for range 20 {
		asks, err := tour.crowd(t.Context(), party{bigRoom, bigSize}, "b")
		if err != nil || len(asks) != bigSize {
			t.Fatal(len(asks), err)
		}
		if asks[0].agent == "b" {
			t.Fatal("the first question was to the owner")
		}
		last := make(map[lease.NodeID]bool)
		for _, ask := range asks[bigSize-3:] {
			last[ask.agent] = true
		}
		if len(last) != 3 {
			t.Fatalf("the last questions were to %v", last)
		}
	}
}
