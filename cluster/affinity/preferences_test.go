package affinity_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

// newZones returns a fleet with nodes such as eu-1-a, which is in zone eu-1 of region eu. Nodes with a number at the
// end of their name have recorders.
func newZones(t *testing.T, cfg affinity.Config, ids ...string) *fleet {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	f := &fleet{t: t, store: pinstore.NewMemory(), cfg: cfg, rooms: make(map[string]*affinity.Resolver)}
	f.Cluster = clustertest.New(t, clustertest.Options{Config: func(c *cluster.Config) {
		c.Capacity, c.Partitions = capacity, 64
		parts := strings.Split(c.ID, "-")
		c.Zone, c.Labels = strings.Join(parts[:2], "-"), map[string]string{"region": parts[0]}
		if strings.Trim(parts[2], "0123456789") == "" {
			c.Labels["recorder"] = "yes"
		}
	}})
	f.start(ids...)
	return f
}

// Rooms prefer zone eu-1 and then region eu. Zone eu-1 is nearly full and zone eu-2 is down, so most of the first 1,000
// rooms must go elsewhere. When zone eu-2 has a node again, most of the next 500 rooms must go there.
func TestPreferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newZones(t, affinity.Config{Settle: time.Hour}, "eu-1-a", "eu-1-b", "eu-2-a", "eu-2-b", "us-1-a", "us-1-b", "us-1-c")
		for _, id := range []string{"eu-1-a", "eu-1-b"} {
			f.Agent(id).SetLoad(700)
		}
		f.crash("eu-2-a")
		f.crash("eu-2-b")
		time.Sleep(soon)
		d := affinity.Demand{Size: 2, Prefer: []string{"zone:eu-1", "region:eu"}}
		best := 0 // rooms in the nearly full zone that are on their best node there
		climb := func(rooms string, n int, want map[string]int) {
			t.Helper()
			at := make(map[string]int)
			for i := range n {
				a, err := f.rooms["us-1-a"].Resolve(t.Context(), fmt.Sprint(rooms, i), d)
				if err != nil {
					t.Fatal(err)
				}
				_, preference, _ := strings.Cut(a.Reason, " at ")
				at[a.Member.Zone+", "+preference]++
				if strings.Contains(a.Reason, "the best node for its partition at preference 1 (zone:eu-1)") {
					best++
				}
			}
			if !maps.Equal(at, want) {
				t.Errorf("%d rooms are at %v, want %v", n, at, want)
			}
		}
		climb("room-", 1000, map[string]int{"eu-1, preference 1 (zone:eu-1)": 100, "us-1, preference 3 (anywhere)": 900})
		if best == 0 {
			t.Error("no room is on the best node for its partition")
		}
		for i := range 10 {
			e, err := f.rooms["us-1-a"].Explain(t.Context(), fmt.Sprint("new-", i), d)
			if err != nil || len(e.Candidates) != 5 || e.Assignment.Member.Zone != "us-1" ||
				!strings.Contains(e.Assignment.Reason, "preference 3 (anywhere)") {
				t.Fatalf("%+v, %v", e, err)
			}
			for _, c := range e.Candidates {
				preference, text, headroom := 1, "preference 1 (zone:eu-1); ", "no headroom: carries 800 of 800"
				if c.Member.Zone == "us-1" {
					preference, text, headroom = 3, "preference 3 (anywhere); ", "has headroom: carries "
				}
				if c.Preference != preference || !strings.HasPrefix(c.Why, text) || !strings.Contains(c.Why, headroom) {
					t.Errorf("%s at preference %d: %s", c.Member.ID, c.Preference, c.Why)
				}
			}
		}
		f.start("eu-2-c") // in region eu
		climb("later-", 500, map[string]int{"eu-2, preference 2 (region:eu)": 400, "us-1, preference 3 (anywhere)": 100})
	})
}

// Requirements apply to the claim, to the replacement of a dead node's pin, and to a failover by nodes that
// have never heard of the room.
func TestRequire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newZones(t, affinity.Config{PinTTL: 3 * time.Minute}, "eu-1-a", "eu-1-1", "eu-1-2", "us-1-3")
		d := affinity.Demand{Publishers: 1, Subscribers: 3, Prefer: []string{"region:eu"}, Require: map[string]string{"recorder": "yes"}}
		home := make(map[string]lease.NodeID)
		for _, room := range names(40) {
			a, err := f.rooms["eu-1-a"].Resolve(t.Context(), room, d)
			if err != nil || a.Member.Labels["recorder"] != "yes" {
				t.Fatalf("%+v, %v", a, err)
			}
			if a.Node == "us-1-3" {
				t.Errorf("%s is on preference 2: %s", a.Node, a.Reason)
			}
			home[room] = a.Node
			// The host only states that one participant has joined.
			f.hostAt(string(a.Node), room, 1)
		}
		time.Sleep(75 * time.Second) // pins are refreshed
		f.crash("eu-1-1")
		time.Sleep(soon)
		found := pins(t, f.store)
		for room, pin := range found {
			if pin.Node != "eu-1-2" || pin.Size != 4 ||
				strings.TrimSuffix(pin.Needs, "&replaced=its+node+died") != "publishers=1&prefer=region%3Aeu&require=recorder%3Dyes" {
				t.Errorf("%s, of %s before, is pinned to %v with %q", room, home[room], pin, pin.Needs)
			}
		}
		// A room that has to leave its node must get another node that meets its requirement.
		for room, pin := range found {
			if a, err := f.rooms["eu-1-a"].MoveFrom(t.Context(), room, pin.Incarnation, pin.Epoch); err != nil || a.Node != "us-1-3" {
				t.Errorf("%s leaves %s: %v, %v", room, pin.Node, a, err)
			}
		}
		f.crash("eu-1-2")
		f.crash("us-1-3")
		time.Sleep(soon)
		_, err := f.rooms["eu-1-a"].Resolve(t.Context(), "new", d)
		if !errors.Is(err, affinity.ErrRequire) || !strings.Contains(err.Error(), "no live node has recorder=yes") {
			t.Errorf("without a recorder: %v", err)
		}
		for room := range home { // the pin names a dead node, and the joiner states no requirement
			if _, err := f.rooms["eu-1-a"].Resolve(t.Context(), room, affinity.Demand{Size: 1}); !errors.Is(err, affinity.ErrRequire) {
				t.Fatalf("%s goes anywhere: %v", room, err)
			}
			break
		}
		e, err := f.rooms["eu-1-a"].Explain(t.Context(), "new", d)
		if err != nil || len(e.Candidates) != 1 || e.Candidates[0].Preference != 0 ||
			e.Candidates[0].Why != "excluded: lacks recorder=yes" || e.Assignment.Node != "" {
			t.Errorf("%+v, %v", e, err)
		}
		f.start("us-1-4")
		time.Sleep(time.Minute)
		for room, pin := range pins(t, f.store) {
			if pin.Node != "us-1-4" {
				t.Errorf("%s is pinned to %v", room, pin)
			}
		}
	})
}

// A webinar that is failed over keeps its number of publishers, even if its participants are counted.
func TestWebinarIsNoMesh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := affinity.Config{ReportLoad: true, Counter: counter(400), PinTTL: 3 * time.Minute}
		f := newFleet(t, pinstore.NewMemory(), cfg, "a", "b", "c")
		d := affinity.Demand{Publishers: 1, Subscribers: 300}
		a, err := f.rooms["a"].Resolve(t.Context(), "webinar", d)
		if err != nil || a.Source != affinity.Hash {
			t.Fatalf("300 streams fit on its owner: %+v, %v", a, err)
		}
		h := f.hostAt(string(a.Node), "webinar", 1)
		if rooms, units := f.rooms[string(a.Node)].Hosted(); units != 300 || rooms[0].Size != 301 {
			t.Errorf("hosted as %+v", rooms)
		}
		if err := h.Restate(affinity.Demand{Publishers: 2, Subscribers: 100}); err != nil {
			t.Fatal(err)
		}
		if _, units := f.rooms[string(a.Node)].Hosted(); units != 2*101 {
			t.Errorf("restated, it costs %d", units)
		}
		if err := h.Restate(affinity.Demand{Size: -1}); !errors.Is(err, affinity.ErrDemand) {
			t.Errorf("restated wrongly: %v", err)
		}
		time.Sleep(75 * time.Second) // its pin is refreshed
		f.crash(string(a.Node))
		time.Sleep(soon)
		pin := pins(t, f.store)["webinar"]
		if pin.Node == a.Node || pin.Size != 400 || pin.Needs != "publishers=2&replaced=its+node+died" {
			t.Errorf("failed over as %v with %q", pin, pin.Needs)
		}
	})
}

// A Selector excludes members by its own rules.
func TestSelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := affinity.Config{Selector: func(room string, d affinity.Demand, m *cluster.Member) bool {
			return m.ID != "a" && (d.Units < 50 || m.ID == "c")
		}}
		f := newFleet(t, pinstore.NewMemory(), cfg, "a", "b", "c")
		for i := range 50 {
			a, err := f.rooms["a"].Resolve(t.Context(), fmt.Sprint("small-", i), affinity.Demand{Units: 1})
			b, err2 := f.rooms["b"].Resolve(t.Context(), fmt.Sprint("large-", i), affinity.Demand{Units: 50})
			if err != nil || err2 != nil || a.Node == "a" || b.Node != "c" {
				t.Fatalf("%v and %v; %v, %v", a, b, err, err2)
			}
		}
		f.crash("c")
		time.Sleep(soon)
		for room, pin := range pins(t, f.store) {
			if strings.HasPrefix(room, "small-") && pin.Node != "b" {
				t.Errorf("%s is on %v", room, pin)
			}
		}
		if _, err := f.rooms["b"].Resolve(t.Context(), "large", affinity.Demand{Units: 50}); !errors.Is(err, affinity.ErrRequire) {
			t.Errorf("%v", err)
		}
	})
}
