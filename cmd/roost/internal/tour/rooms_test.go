package tour

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
)

// The rooms that people come into: as many for each node, and some that fill the
// node which the hash gives the big one to, so that it lacks headroom, while the
// others have it.
func TestInvite(t *testing.T) {
	for _, nodes := range []int{2, 5, 20} {
		tour, _, _ := fakeTour(t, fleet([]string{"a", "b"}, evenly("ab", 64), nil))
		tour.o.Nodes = nodes
		tour.rooms = nil
		for i := range roomCount {
			tour.rooms = append(tour.rooms, fmt.Sprintf("room-%d", i))
		}
		tour.seen = fleet([]string{"a", "b"}, evenly("ab", 64), nil)
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

// An answer that is a guess is not taken, nor is one that there is none now.
func TestVisitAgain(t *testing.T) {
	answers := fleet([]string{"a", "b"}, "abab", nil)
	parties := people(answers, map[string]lease.NodeID{"attic": "a", "yard": "b"})
	tour, f, _ := fakeTour(t, answers)
	f.guesses, f.busy = 2, 1
	visits, err := tour.visit(t.Context(), parties)
	if err != nil {
		t.Fatal(err)
	}
	for i := range visits {
		for j := range visits[i].homes {
			visits[i].homes[j].again = false
		}
	}
	if diff := cmp.Diff(asked(parties, answers), visits, cmp.AllowUnexported(visit{}, home{})); diff != "" {
		t.Error(diff)
	}
	if n := tour.again.Load(); n != 3 {
		t.Errorf("asked again %d times, want 3", n)
	}
	tour.askedAgain()
	if out := tour.out.w.(*agentproc.Log).String(); !strings.Contains(out, "3 times") {
		t.Errorf("it is not told: %q", out)
	}
}

func TestVisitOneThatIsGone(t *testing.T) {
	answers := fleet([]string{"a", "b"}, "abab", nil)
	parties := people(answers, map[string]lease.NodeID{"attic": "a"})
	tour, _, _ := fakeTour(t, answers)
	tour.nodes[1].client.Base = "127.0.0.1:1"
	if _, err := tour.visit(t.Context(), parties); err == nil || !strings.Contains(err.Error(), "ask b for attic") {
		t.Errorf("got %v", err)
	}
}

func TestListAgain(t *testing.T) {
	answers := fleet([]string{"a", "b"}, "abab", nil)
	people(answers, map[string]lease.NodeID{"attic": "a", "yard": "b"})
	tour, f, _ := fakeTour(t, answers)
	f.busy = 1
	pins, err := tour.nodes[0].list(t.Context(), "b")
	if diff := cmp.Diff(map[string]pin{"yard": {"b", 17, 3}}, pins, cmp.AllowUnexported(pin{})); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func TestRehomed(t *testing.T) {
	answers := fleet([]string{"a", "b"}, "abab", nil)
	people(answers, map[string]lease.NodeID{"attic": "a", "yard": "c"})
	tour, f, out := fakeTour(t, answers)
	later := fleet([]string{"a", "b"}, "abab", nil)
	people(later, map[string]lease.NodeID{"attic": "a", "yard": "b"})
	timer := time.AfterFunc(300*time.Millisecond, func() { f.set(later) })
	defer timer.Stop()
	since := time.Now().Add(-2 * time.Second)
	took, err := tour.rehomed(t.Context(), since, "c")
	if err != nil || took < 2300*time.Millisecond {
		t.Errorf("after %v, %v", took, err)
	}
	if !strings.Contains(out.String(), "1 pinned rooms still wait on c") {
		t.Errorf("the wait is not told of: %s", out)
	}
	// When it is given up, it is for the checks to say what is wrong.
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := tour.rehomed(short, since, "b"); err != nil {
		t.Error(err)
	}
}

func TestLoaded(t *testing.T) {
	answers := fleet([]string{"a", "b"}, "abab", nil)
	people(answers, map[string]lease.NodeID{"attic": "a", "yard": "b"})
	tour, f, _ := fakeTour(t, answers)
	f.lag = 3
	if _, fault := tour.loaded(t.Context(), time.Now(), answers[0].pins); fault != "" || f.lag > 0 {
		t.Errorf("%s, %d answers to go", fault, f.lag)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, fault := tour.loaded(short, time.Now(), map[string]pin{"attic": {"a", 17, 3}, "yard": {"b", 17, 4}})
	if fault != "a has heard that b carries 6 streams, by its rooms it is 12" {
		t.Errorf("got %q", fault)
	}
}

func TestWrongLoad(t *testing.T) {
	m := &clusterhttp.Members{Members: []clusterhttp.Member{{ID: "a", Load: 6}, {ID: "b"}}}
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

// The step of the big room sees whether it went where it should.
func TestOverrideStep(t *testing.T) {
	for _, c := range []struct {
		name   string
		homes  []lease.NodeID // of the big room, by each agent
		broken []string
	}{
		{"all to another node", []lease.NodeID{"c", "c", "c"}, nil},
		{"all by the hash", []lease.NodeID{"a", "a", "a"}, []string{"it is not a, the owner by the hash: that one has no headroom: "}},
		{"each elsewhere", []lease.NodeID{"b", "c", "b"}, []string{
			"all 50 people are sent to one node, by all 3 agents: ",
			"each is hosted by the node that it is pinned to, and by no other: all-hands is hosted by nobody",
			"all 3 agents list the same 2 pins, one for each room: all-hands is pinned to c (epoch 17) says b",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers := fleet([]string{"a", "b", "c"}, "aaaa", nil)
			parties := people(answers, map[string]lease.NodeID{"attic": "a"})
			tour, _, out := fakeTour(t, answers)
			tour.rooms, tour.parties = nil, parties
			tour.seen = fleet([]string{"a", "b", "c"}, "aaaa", nil)
			people(tour.seen, map[string]lease.NodeID{"attic": "a"})
			for i := range answers {
				answers[i].pins[bigRoom] = pin{c.homes[i], 17, bigSize}
			}
			if err := tour.override(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(tour.broken) != len(c.broken) {
				t.Fatalf("broken: %q\n%s", tour.broken, out)
			}
			for i, want := range c.broken {
				if !strings.HasPrefix(tour.broken[i], "step 3: "+want) {
					t.Errorf("broken: %q, want %q", tour.broken[i], want)
				}
			}
		})
	}
}

// A step finds out about rooms that should have stayed, or should have moved.
func TestBrokenRooms(t *testing.T) {
	nodes := []string{"a", "b", "c"}
	for _, c := range []struct {
		name   string
		after  map[string]lease.NodeID
		broken []string
	}{
		{"sound", map[string]lease.NodeID{"attic": "a", "yard": "b"}, nil},
		{"moved", map[string]lease.NodeID{"attic": "a", "yard": "c"}, []string{
			"step 3: no pinned room moved: yard was pinned to b, now to c",
		}},
		{"lost", map[string]lease.NodeID{"attic": "a"}, []string{
			"step 3: no pinned room moved: yard was pinned to b, now to nobody",
			"step 3: all 3 agents list the same 2 pins, one for each room: yard has no pin, says a (and 2 more)",
			"step 3: each is hosted by the node that it is pinned to, and by no other: yard is hosted by nobody",
		}},
		{"orphaned", map[string]lease.NodeID{"attic": "a", "yard": "d"}, []string{
			"step 3: no pinned room moved: yard was pinned to b, now to d",
			"step 3: no pin names a node that is gone: yard is pinned to d says a, which is no member (and 2 more)",
			"step 3: each is hosted by the node that it is pinned to, and by no other: yard is hosted by nobody",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, after := fleet(nodes, "abcabc", []string{"lobby", "stage"}), fleet(nodes, "abcabc", []string{"lobby", "stage"})
			parties := people(before, map[string]lease.NodeID{"attic": "a", "yard": "b"})
			people(after, c.after)
			tour, f, out := fakeTour(t, before)
			tour.seen, tour.parties = before, parties
			err := tour.apply(t.Context(), change{
				title: "something happens", what: "it happened",
				act:    func(context.Context) error { f.set(after); return nil },
				checks: func(o outcome) []check { return []check{pinsStay(o.before, o.after)} },
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.broken, tour.broken); diff != "" {
				t.Errorf("%s\n%s", diff, out)
			}
		})
	}
}

// A room that ends on a node that drains begins anew elsewhere, and the tour goes
// on from there.
func TestRestart(t *testing.T) {
	for heir, fault := range map[lease.NodeID]string{"a": "", "b": "a sends people of yard to b (and 1 more)"} {
		t.Run(string(heir), func(t *testing.T) {
			t.Parallel() // one waits
			answers := fleet([]string{"a", "b"}, "aaaa", nil)
			tour, f, _ := fakeTour(t, answers)
			tour.parties = people(answers, map[string]lease.NodeID{"attic": "a", "yard": "b"})
			tour.seen = fleet([]string{"a", "b"}, "aaaa", nil)
			people(tour.seen, map[string]lease.NodeID{"attic": "a", "yard": "b"})
			f.heir = heir
			checks, err := tour.restart(t.Context(), tour.nodes[1])
			if err != nil || len(checks) != 1 {
				t.Fatal(checks, err)
			}
			expectCheck(t, checks[0], fault)
			if got := tour.seen[1].pins["yard"]; got != (pin{heir, 18, 3}) {
				t.Errorf("the tour goes on with yard as %+v", got)
			}
		})
	}
	answers := fleet([]string{"a", "b"}, "aaaa", nil)
	tour, _, _ := fakeTour(t, answers)
	tour.parties = people(answers, map[string]lease.NodeID{"attic": "a"})
	tour.seen = answers
	if checks, err := tour.restart(t.Context(), tour.nodes[1]); len(checks) > 0 || err != nil {
		t.Errorf("it had no room: %v, %v", checks, err)
	}
}

// What happens, happens to a node with rooms, if there is one.
func TestPick(t *testing.T) {
	answers := fleet([]string{"a", "b", "c"}, "abcabc", nil)
	tour, _, _ := fakeTour(t, answers)
	tour.seen = answers
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

// On somebody's own Redis the tour ends its rooms, each at the agent that hosts it.
func TestRelease(t *testing.T) {
	answers := fleet([]string{"a", "b"}, "abab", nil)
	tour, f, _ := fakeTour(t, answers)
	tour.parties = people(answers, map[string]lease.NodeID{"attic": "a", "yard": "b"})
	tour.release()
	if answers[0].pins["yard"].epoch != 17 {
		t.Error("what stands in for a Redis ends by itself")
	}
	f.heir = "x"
	tour.o.Redis = "redis://somewhere"
	tour.release()
	for room, p := range answers[0].pins {
		if p.node != "x" {
			t.Errorf("%s is still pinned to %s", room, p.node)
		}
	}
}

// The first one asks no owner that might guess, and the last ones ask all agents.
func TestCrowd(t *testing.T) {
	answers := fleet([]string{"a", "b", "c"}, "abcabc", nil)
	people(answers, map[string]lease.NodeID{bigRoom: "c"})
	tour, _, _ := fakeTour(t, answers)
	for range 20 {
		asks, err := tour.crowd(t.Context(), party{bigRoom, bigSize}, "b")
		if err != nil || len(asks) != bigSize {
			t.Fatal(len(asks), err)
		}
		if asks[0].agent == "b" {
			t.Fatal("the owner was asked first")
		}
		last := make(map[lease.NodeID]bool)
		for _, ask := range asks[bigSize-3:] {
			last[ask.agent] = true
		}
		if len(last) != 3 {
			t.Fatalf("the last ones asked %v", last)
		}
	}
}
