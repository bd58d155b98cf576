package fleettest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// lostRooms returns a fleet of four nodes, and a fifth node in its own process, which hosts some rooms.
func lostRooms(t *testing.T, url string) (*fleet, *process, map[string]affinity.Assignment) {
	t.Helper()
	f := newFleet(t, setup{URL: url, Budget: timeout}, "a", "b", "c", "d")
	s := f.setup
	s.ID, s.Join = "e", []string{f.nodes[0].agent.Addr()}
	e := startProcess(t, s)
	redistest.Eventually(t, "five nodes", func() error {
		for _, n := range f.nodes {
			s := n.agent.Snapshot()
			m, ok := s.Member("e")
			if !ok || m.Load == lease.NoLoad || !s.Converged() || s.Stats.Watched != 4 {
				return fmt.Errorf("%s: %+v, watches %d", s.Self.ID, m, s.Stats.Watched)
			}
		}
		return nil
	})
	const n = 100
	homes, rooms := make(map[string]affinity.Assignment), make([]string, 0, n)
	for i := 0; len(homes) < n; i++ {
		room := fmt.Sprint("lost-", i)
		a, err := f.nodes[i%4].rooms.Resolve(t.Context(), room, affinity.Demand{Size: size})
		if err != nil {
			t.Fatal(err)
		}
		if a.Node == "e" {
			homes[room] = a
			rooms = append(rooms, room)
		}
	}
	for i, a := range e.rooms("Host", rooms) {
		if a.Err != "" {
			t.Fatalf("%s: %s", rooms[i], a.Err)
		}
	}
	return f, e, homes
}

// report reports each room eight times, at all nodes simultaneously, until the answers name another node or timeout has
// passed. It returns the answers.
func (f *fleet) report(homes map[string]affinity.Assignment) map[string][]affinity.Assignment {
	f.t.Helper()
	const each = 8
	answers := make(map[string][]affinity.Assignment)
	var mu sync.Mutex
	var wait sync.WaitGroup
	began := time.Now()
	for room, home := range homes {
		for i := range each {
			wait.Go(func() {
				var a affinity.Assignment
				var err error
				again := func() bool { // on a starved machine the store may not answer in time
					return time.Since(began) < timeout &&
						(errors.Is(err, pinstore.ErrStore) || err == nil && (a.Incarnation == home.Incarnation || a.Source == affinity.Degraded))
				}
				for first := true; first || again(); first = false {
					a, err = f.nodes[i%len(f.nodes)].rooms.Report(f.t.Context(), home.Directive())
				}
				if err != nil {
					f.t.Errorf("%s: %v", room, err)
				}
				mu.Lock()
				defer mu.Unlock()
				answers[room] = append(answers[room], a)
			})
		}
	}
	wait.Wait()
	f.t.Logf("%d rooms, %d reports each: %v", len(homes), each, time.Since(began).Round(time.Millisecond))
	return answers
}

// moved returns how many times each room was moved.
func (f *fleet) moved() map[string]int {
	all := make(map[string]int)
	for _, n := range f.nodes {
		for room, times := range n.store.moved() {
			all[room] += times
		}
	}
	return all
}

// The report of a client is not enough to move a room of a live node. If many clients report a room of a dead node at
// several nodes, the room moves only once, and all answers name its new home.
func TestReportsOfTheDead(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	f, e, homes := lostRooms(t, redis.URL())
	look := newEye(t, redis.URL())
	alive := slices.Collect(maps.Keys(homes))[:8]
	for i, room := range alive {
		a, err := f.nodes[i%4].rooms.Report(t.Context(), homes[room].Directive())
		pin := look.mustPins(alive)[room]
		if err != nil || a.Incarnation != homes[room].Incarnation || a.Epoch != homes[room].Epoch || pin.Epoch != a.Epoch {
			t.Errorf("%s lives on %v; the answer is %v, %v, the pin %+v", room, homes[room], a, err, pin)
		}
	}
	e.kill()
	answers := f.report(homes)
	moved := f.moved()
	for room, home := range homes {
		pin := look.mustPins([]string{room})[room]
		if moved[room] != 1 || pin.Node == "e" || pin.Epoch <= home.Epoch {
			t.Errorf("%s moved %d times, from %v to %+v", room, moved[room], home, pin)
		}
		for _, a := range answers[room] {
			if a.Incarnation != pin.Incarnation || a.Epoch != pin.Epoch {
				t.Errorf("%s is pinned to %+v; an answer is %v", room, pin, a)
			}
		}
	}
	noScan(t, redis)
}
