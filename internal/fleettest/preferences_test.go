package fleettest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// at is where rooms were placed: a zone, and the preference that led to it.
type at struct{ zone, preference string }

// resolveRooms resolves rooms with a list of preferences at one node. It returns how many rooms are pinned to each
// place, according to the store.
func (f *fleet) resolveRooms(look *eye, n *node, rooms []string, d affinity.Demand) map[at]int {
	f.t.Helper()
	homes := make([]affinity.Assignment, len(rooms))
	each(32, rooms, func(i int, room string) {
		var err error
		if homes[i], err = n.rooms.Resolve(f.t.Context(), room, d); err != nil {
			f.t.Errorf("%s: %v", room, err)
		}
	})
	pins, places := look.mustPins(rooms), make(map[at]int)
	for i, a := range homes {
		pin := pins[rooms[i]]
		if a.Member == nil || pin.Incarnation != a.Incarnation || pin.Epoch != a.Epoch {
			f.t.Fatalf("%s is pinned to %+v; the answer is %v", rooms[i], pin, a)
		}
		_, preference, _ := strings.Cut(a.Reason, " at ")
		preference, _, _ = strings.Cut(preference, ")")
		places[at{a.Member.Zone, preference + ")"}]++
	}
	return places
}

// A thousand rooms prefer a zone, and otherwise its region. The zone is full after 100 rooms, and the other zone of the
// region is down, so the other rooms go anywhere. Then the zone that was down gets a node again.
func TestPreferencesOverZones(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	// Only one node resolves, so that no claim has to wait for a report of the load.
	f := newFleet(t, setup{URL: redis.URL(), Zones: true, Capacity: 1000, Budget: timeout, Settle: 10 * timeout},
		"us-1-a", "us-1-b", "us-1-c", "eu-1-a", "eu-1-b")
	n, look := f.node("us-1-a"), newEye(t, redis.URL())
	var down []*process
	for _, id := range []string{"eu-2-a", "eu-2-b"} {
		s := f.setup
		s.ID, s.Join = id, []string{n.agent.Addr()}
		down = append(down, startProcess(t, s))
	}
	for _, id := range []lease.NodeID{"eu-1-a", "eu-1-b"} {
		f.node(id).agent.SetLoad(700) // of 800, the soft ceiling, so there is space for 50 rooms of two
	}
	redistest.Eventually(t, "seven nodes, two of them nearly full", func() error {
		s := n.agent.Snapshot()
		full := 0
		for _, m := range s.Members {
			if m.Load == 700 {
				full++
			}
		}
		for _, n := range f.nodes {
			if s := n.agent.Snapshot(); len(s.Members) != 7 || !s.Converged() || s.Stats.Watched < 4 {
				return fmt.Errorf("%s: %d members, watches %d", s.Self.ID, len(s.Members), s.Stats.Watched)
			}
		}
		if full != 2 {
			return fmt.Errorf("%d nodes have a load of 700", full)
		}
		return nil
	})
	for _, p := range down {
		p.kill()
	}
	f.waitAgreed()

	d := affinity.Demand{Size: 2, Prefer: []string{"zone:eu-1", "region:eu"}}
	places := f.resolveRooms(look, n, names(1000), d)
	t.Logf("1,000 rooms: %v", places)
	if len(places) != 2 || places[at{"eu-1", "preference 1 (zone:eu-1)"}] != 100 || places[at{"us-1", "preference 3 (anywhere)"}] != 900 {
		t.Errorf("eu-1 has headroom for 100 rooms, and eu-2 is down: %v", places)
	}
	for i := range 10 {
		f.explained(n, fmt.Sprint("new-", i), d, "preference 3 (anywhere)", 5)
	}

	f.start("eu-2-c")
	f.waitAgreed()
	for i := range 10 {
		f.explained(n, fmt.Sprint("new-", i), d, "preference 2 (region:eu)", 6)
	}
	more := make([]string, 500)
	for i := range more {
		more[i] = fmt.Sprint("more-", i)
	}
	places = f.resolveRooms(look, n, more, d)
	t.Logf("500 more: %v", places)
	if len(places) != 2 || places[at{"eu-2", "preference 2 (region:eu)"}] != 400 || places[at{"us-1", "preference 3 (anywhere)"}] != 100 {
		t.Errorf("eu-2 has headroom for 400 rooms: %v", places)
	}
	noScan(t, redis)
}

// explained fails the test unless Explain places a new room according to the given preference, and names the preference
// and headroom of each candidate.
func (f *fleet) explained(n *node, room string, d affinity.Demand, to string, candidates int) {
	f.t.Helper()
	e, err := n.rooms.Explain(f.t.Context(), room, d)
	if err != nil || len(e.Candidates) != candidates || !strings.HasSuffix(e.Assignment.Reason, to) {
		f.t.Fatalf("%s: %+v, %v; want it at %s of %d candidates", room, e, err, to, candidates)
	}
	for _, c := range e.Candidates {
		preference, text, headroom := 3, "preference 3 (anywhere); ", "has headroom: carries "
		switch c.Member.Zone {
		case "eu-1":
			preference, text, headroom = 1, "preference 1 (zone:eu-1); ", "no headroom: carries 800 of 800"
		case "eu-2":
			preference, text = 2, "preference 2 (region:eu); "
		}
		if c.Preference != preference || !strings.HasPrefix(c.Why, text) || !strings.Contains(c.Why, headroom) {
			f.t.Errorf("%s for %s at preference %d: %s", c.Member.ID, room, c.Preference, c.Why)
		}
	}
}
