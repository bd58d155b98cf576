package fleettest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
)

// stage contains rooms that clients join and leave, and all hostings so far.
type stage struct {
	*fleet
	rooms []string
	mu    sync.Mutex
	all   map[*affinity.Hosting]*node
}

// join makes a client join a room: it resolves the room at a random node, and hosts it on the node that was returned.
// Sometimes the room ends.
func (s *stage) join(l *load) {
	room, size := s.rooms[rand.IntN(len(s.rooms))], 2+rand.IntN(8)
	a, ok := l.join(s.nodes[rand.IntN(len(s.nodes))], room, size)
	if !ok {
		return
	}
	host := s.node(a.Node)
	over := l.stopwatch(budget)
	h, err := host.rooms.Host(context.Background(), room, affinity.Demand{Size: size})
	l.heed(over())
	switch {
	case errors.Is(err, affinity.ErrNotOwner) || errors.Is(err, affinity.ErrFenced):
		return // a real client would retry
	case err != nil:
		s.t.Errorf("hosting %s: %v", room, err)
		return
	}
	s.mu.Lock()
	s.all[h] = host
	s.mu.Unlock()
	if rand.IntN(100) == 0 {
		_ = h.Release(context.Background())
	}
}

// doubles returns an error if two nodes host the same room. If confirmed is true, only hostings that the store has
// confirmed count.
func (s *stage) doubles(confirmed bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	byRoom := make(map[string][]*affinity.Hosting)
	for h := range s.all {
		if !lost(h) && (!confirmed || h.Epoch() != 0) {
			byRoom[h.Room()] = append(byRoom[h.Room()], h)
		}
	}
	var faults []error
	for room, live := range byRoom {
		// Between the two reads, one hosting may have ended and the other may have started.
		live = slices.DeleteFunc(live, lost)
		if len(live) > 1 {
			faults = append(faults, fmt.Errorf("%s is hosted by %v with epoch %d and by %v with %d", room,
				s.all[live[0]].incarnation(), live[0].Epoch(), s.all[live[1]].incarnation(), live[1].Epoch()))
		}
	}
	return errors.Join(faults...)
}

// Redis is repeatedly killed and restarted without data, or paused and resumed, while clients join rooms. No client has
// to wait, and afterwards no room has two hosts.
func TestComesAndGoes(t *testing.T) {
	long(t)
	t.Parallel()
	redis := redistest.Start(t)
	// The nodes are so small that many rooms are not on the node of their hash.
	f := newFleet(t, setup{URL: redis.URL(), Capacity: 700, ReportLoad: true}, "a", "b", "c", "d")
	s := &stage{fleet: f, rooms: names(100), all: make(map[*affinity.Hosting]*node)}
	l, look := newLoad(t), newEye(t, redis.URL())
	l.run(3*time.Millisecond, func() { s.join(l) })
	absences := []struct {
		killed bool
		ms     time.Duration
	}{{true, 100}, {false, 600}, {true, 700}, {true, 0}, {false, 1500}, {true, 1500}}
	if underRace {
		absences = absences[:3]
	}
	for _, absence := range absences {
		begin, end := redis.Pause, redis.Resume
		if absence.killed {
			noScan(t, redis)
			begin, end = redis.Kill, redis.Restart
		}
		begin()
		wait(absence.ms * time.Millisecond)
		end()
		back := time.Now()
		redistest.Eventually(t, "all rooms to be hosted", func() error { return s.hosted(look) })
		t.Logf("away for %v (killed: %t): all were hosted %v later; %d conflicts so far", absence.ms*time.Millisecond, absence.killed,
			time.Since(back).Round(10*time.Millisecond), s.conflicts())
		// On a busy machine, the store may still be too late for a join.
		settle(t, "once it is back", time.Second, func() error { return s.doubles(true) })
	}
	l.stop()
	redistest.Eventually(t, "all rooms to be hosted in the end", func() error { return s.hosted(look) })
	l.report()
	s.accounts()
	noScan(t, redis)
}

// hosted returns nil if each room is hosted exactly once, on the node that it is pinned to, and the store decides about
// joins again.
func (s *stage) hosted(look *eye) error {
	s.mu.Lock()
	all := maps.Clone(s.all)
	s.mu.Unlock()
	return errors.Join(s.wellAgain(), s.doubles(false), look.pinned(all))
}

// wait waits for the duration of a fault.
func wait(d time.Duration) { <-time.After(d) }

func (s *stage) conflicts() (n uint64) {
	for _, node := range s.nodes {
		n += node.rooms.Stats().Conflicts
	}
	return n
}

// accounts fails the test unless each conflict was reported both to the host of the room and in the counters.
func (s *stage) accounts() {
	s.t.Helper()
	why := make(map[string]uint64)
	for h := range s.all {
		switch err := h.Err(); {
		case err == nil:
			why["hosted"]++
		case errors.Is(err, affinity.ErrSplit):
			why["split"]++
		case errors.Is(err, affinity.ErrReleased):
			why["released"]++
		case errors.Is(err, affinity.ErrFenced):
			why["fenced"]++ // the machine was very busy
		default:
			s.t.Errorf("%s was lost: %v", h.Room(), err)
		}
	}
	s.t.Logf("what became of hostings: %v; %d conflicts counted", why, s.conflicts())
	if why["split"] != s.conflicts() {
		s.t.Errorf("%d conflicts were counted; %d hostings ended as split", s.conflicts(), why["split"])
	}
}
