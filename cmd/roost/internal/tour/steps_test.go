package tour

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/lease"
)

// TestInvite: the number of rooms per node is the same for every cluster size, up to a maximum. Additional rooms fill
// the owner of the big room, so that it lacks headroom while the other nodes have headroom.
func TestInvite(t *testing.T) {
	for _, nodes := range []int{2, 5, 20} {
		tour := &tour{o: Options{Nodes: nodes}, seen: fleet(ab, evenly("ab", 64), nil), rng: newScene(t, nil, "", nil).rng}
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

// expectBroken compares the checks of a step that did not hold with the expected ones, by their beginnings.
func expectBroken(t *testing.T, s scene, want []string) {
	t.Helper()
	if len(s.broken) != len(want) {
		t.Fatalf("broken: %q, want %q", s.broken, want)
	}
	for i := range want {
		if !strings.HasPrefix(s.broken[i], "step 3: "+want[i]) {
			t.Errorf("broken: %q, want %q", s.broken[i], want[i])
		}
	}
}

// TestBrokenStep: a step names partitions and rooms that should have stayed or should have moved. The verdict repeats
// them.
func TestBrokenStep(t *testing.T) {
	const moved, host = "no pinned room moved: yard was pinned to b (epoch 17, 3 people), ", "each room is hosted by the node that it is pinned to, and by no other node: host of yard: by its pin "
	for name, c := range map[string]struct {
		table  string
		after  map[string]lease.NodeID
		broken []string
	}{
		"sound":       {"abcabc", homes, nil},
		"a partition": {"bbcabc", homes, []string{"no partition moved: partition 0 moved from a to b"}},
		"moved":       {"abcabc", map[string]lease.NodeID{"attic": "a", "yard": "c"}, []string{moved + "now to c "}},
		"lost": {"abcabc", map[string]lease.NodeID{"attic": "a"}, []string{
			moved + "now to none",
			"all 3 agents list the same 2 pins, one per room: people in yard: in fact 3, a says none (and 2 more)",
			"1 pinned rooms resolve to their pins at all 3 agents: home of yard: by its pin none, a says b (and 2 more)",
			host + "none, in fact b",
		}},
		"orphaned": {"abcabc", map[string]lease.NodeID{"attic": "a", "yard": "d"}, []string{
			moved + "now to d ",
			"no pin names a node that is gone: yard is pinned to d says a, which is no member (and 2 more)",
			host + "d, in fact none",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, abc, "abcabc", homes)
			err := s.apply(t.Context(), change{
				title: "something happens", what: "it happened",
				act:    func(context.Context) error { s.set(fleet(abc, c.table, c.after)); return nil },
				checks: func(o outcome) []check { return []check{nothingMoved(o.moves), pinsStay(o.was.pins, o.is.pins)} },
			})
			if err != nil {
				t.Fatal(err)
			}
			expectBroken(t, s, c.broken)
			err = s.verdict()
			if shown := strings.Contains(s.printed(), "BROKEN"); shown != (c.broken != nil) || shown != (err != nil) {
				t.Errorf("verdict %v of this:\n%s", err, s.printed())
			}
			for _, want := range c.broken {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("the verdict does not name the broken part: %v", err)
				}
			}
			if s.rows[0].checks != 9 || s.rows[0].held != 9-len(c.broken) {
				t.Errorf("the summary says that %d of %d checks held", s.rows[0].held, s.rows[0].checks)
			}
		})
	}
}

// TestOverrideStep: the step with the big room finds out where the room went.
func TestOverrideStep(t *testing.T) {
	for name, c := range map[string]struct {
		homes  string // where each agent sends people of the big room
		broken []string
	}{
		"all to another node": {"ccc", nil},
		"all by the hash":     {"aaa", []string{"that node is not a, the owner by hash, which has no headroom: "}},
		"each elsewhere": {"bcb", []string{
			"all 50 people are sent to the same node, by all 3 agents: ",
			"each room is hosted by the node that it is pinned to, and by no other node: host of all-hands: ",
			"all 3 agents list the same 2 pins, one per room: pin of all-hands: a says b (epoch 17, 50 people), b says c ",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, abc, "aaaa", map[string]lease.NodeID{"attic": "a"})
			views := fleet(abc, "aaaa", map[string]lease.NodeID{"attic": "a"})
			for i := range views {
				views[i].pins[bigRoom] = pin{lease.NodeID(c.homes[i : i+1]), 17, bigSize}
			}
			s.set(views)
			var claims atomic.Int32
			for _, v := range views { // the first answer claims the room
				s.agents[v.by].Set("POST /v1/rooms/all-hands/resolve", func(int) any {
					if claims.Add(1) == 1 {
						return answerOf(v, bigRoom, affinity.Override).RoomAssignment
					}
					return answerOf(v, bigRoom, affinity.Pinned).RoomAssignment
				})
			}
			if err := s.override(t.Context()); err != nil {
				t.Fatal(err)
			}
			expectBroken(t, s, c.broken)
		})
	}
}

// TestRestart: a room that ends on a drained node starts on another node, and from then on, the tour sees it there. If
// the store does not answer at first, the tour continues.
func TestRestart(t *testing.T) {
	for heir, problem := range map[lease.NodeID]string{"a": "", "b": "a sends people of yard to b (and 1 more)"} {
		t.Run(string(heir), func(t *testing.T) {
			t.Parallel() // one waits
			s := newScene(t, ab, "aaaa", homes)
			s.set(fleet(ab, "aaaa", map[string]lease.NodeID{"attic": "a", "yard": heir}))
			s.first(1, "b", "DELETE /v1/rooms/yard", away, struct{}{})
			checks, err := s.restart(t.Context(), s.nodes[1])
			if err != nil || len(checks) != 1 {
				t.Fatal(checks, err)
			}
			expectCheck(t, checks[0], problem)
			if got := s.seen[1].pins["yard"]; got != (pin{heir, 17, 3}) {
				t.Errorf("the tour sees yard as %+v", got)
			}
			if n := s.agents["b"].Times("DELETE /v1/rooms/yard"); n != 2 {
				t.Errorf("the room was released %d times at its node, want twice", n)
			}
		})
	}
	s := newScene(t, ab, "aaaa", map[string]lease.NodeID{"attic": "a"})
	if checks, err := s.restart(t.Context(), s.nodes[1]); len(checks) > 0 || err != nil {
		t.Errorf("it had no room: %v, %v", checks, err)
	}
}

// TestCrowd: the tour does not ask the owner first, because the owner might guess. It asks all agents last.
func TestCrowd(t *testing.T) {
	s := newScene(t, abc, "abcabc", map[string]lease.NodeID{bigRoom: "c"})
	for range 20 {
		answers, err := s.crowd(t.Context(), party{bigRoom, bigSize}, "b")
		if err != nil || len(answers) != bigSize {
			t.Fatal(len(answers), err)
		}
		if answers[0].by == "b" {
			t.Fatal("the first question was to the owner")
		}
		last := make(map[lease.NodeID]bool)
		for _, a := range answers[bigSize-3:] {
			last[a.by] = true
		}
		if diff := cmp.Diff(map[lease.NodeID]bool{"a": true, "b": true, "c": true}, last); diff != "" {
			t.Fatal(diff)
		}
	}
}
