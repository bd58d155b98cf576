package affinity_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// headroom fails the test unless the headroom of a node is want.
func (f *fleet) headroom(what, id string, want int64) {
	f.t.Helper()
	if got := f.rooms[id].Stats().Headroom; got != want {
		f.t.Errorf("%s: the headroom of %s is %d, want %d", what, id, got, want)
	}
}

// load reports the load of a node, and waits until the others know it.
func (f *fleet) load(id string, units int64) {
	f.Agent(id).SetLoad(units)
	time.Sleep(5 * time.Second)
}

func TestHeadroom(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		f.headroom("empty", "a", 800)
		f.load("a", 300)
		f.headroom("with load", "a", 500)
		f.load("b", 800)
		f.resolve("a", "r", 10)
		f.headroom("a room of 90 units that the load does not show yet", "a", 410)
		f.load("a", 900)
		f.headroom("above the ceiling", "a", 0)
		f.load("a", 300)
		if err := f.Agent("a").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.headroom("draining", "a", 0)
		if err := f.Agent("a").Undrain(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.headroom("again active", "a", 500)
		f.Pause("a")
		time.Sleep(soon)
		f.Resume("a")
		f.headroom("fenced", "a", 0)
	})
}

// startMute starts a node that reports no load.
func (f *fleet) startMute(id string, capacity int64) {
	f.t.Helper()
	f.StartWith(id, clustertest.WithConfig(func(c *cluster.Config) { c.Capacity, c.Resources = capacity, nil }))
	r, err := affinity.Start(f.Agent(id), f.store, f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.rooms[id] = r
	f.t.Cleanup(func() { _ = r.Close() })
	f.WaitAgreed(3 * time.Second)
}

// The headroom of a node without a capacity, or without a load, is unknown.
func TestHeadroomUnknown(t *testing.T) {
	inFleet(t, "a", func(t *testing.T, f *fleet) {
		f.startMute("no-capacity", 0)
		f.startMute("no-load", capacity)
		f.load("no-capacity", 10)
		f.headroom("without a capacity", "no-capacity", 0)
		f.headroom("without a load", "no-load", 0)
	})
}

// The counters distinguish joins that found headroom, joins above the soft ceiling, and refused joins.
func TestWithoutHeadroom(t *testing.T) {
	for name, d := range map[string]affinity.Demand{"anywhere": {}, "by preference": {Prefer: []string{"zone:eu"}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, pinstore.NewMemory(), affinity.Config{SoftCeiling: 50, HardCeiling: 80}, "a", "b")
				join := func(room string, units int64) error {
					d.Units = units
					_, err := f.rooms["a"].Resolve(t.Context(), room, d)
					return err
				}
				expect := func(what string, crowded, refused uint64) {
					t.Helper()
					if s := f.rooms["a"].Stats(); s.Crowded != crowded || s.NoCapacity != refused {
						t.Errorf("%s: %d crowded and %d refused, want %d and %d", what, s.Crowded, s.NoCapacity, crowded, refused)
					}
				}
				f.load("a", 600)
				f.load("b", 100)
				if err := join("fits", 100); err != nil {
					t.Fatal(err)
				}
				expect("b has headroom", 0, 0)
				f.load("b", 600)
				if err := join("crowds", 100); err != nil {
					t.Fatal(err)
				}
				expect("both are above their soft ceilings", 1, 0)
				if err := join("crowds", 100); err != nil {
					t.Fatal(err)
				}
				expect("the room is pinned", 1, 0)
				if err := join("huge", 500); !errors.Is(err, affinity.ErrNoCapacity) {
					t.Fatal(err)
				}
				expect("above every hard ceiling", 1, 1)
			})
		})
	}
}

// A node that reports no load counts as crowded as soon as the rooms that this instance has placed there fill it.
func TestWithoutHeadroomOrLoad(t *testing.T) {
	for name, d := range map[string]affinity.Demand{"anywhere": {}, "by preference": {Prefer: []string{"zone:eu"}}} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, "", func(t *testing.T, f *fleet) {
				f.startMute("a", capacity)
				for i, room := range []string{"fits", "crowds"} {
					d.Units = 500
					if _, err := f.rooms["a"].Resolve(t.Context(), room, d); err != nil {
						t.Fatal(err)
					}
					if got := f.rooms["a"].Stats().Crowded; got != uint64(i) {
						t.Errorf("%s: %d crowded, want %d", room, got, i)
					}
				}
			})
		})
	}
}
