package affinity_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// A fleet has restarted with its clocks an hour back: pins name later incarnations of its
// nodes, which are dead. The nodes host these rooms again.
func TestClockBack(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		pin := func(room string) pinstore.Pin {
			self := f.Agent(string(f.owner(room))).Snapshot().Self
			later := lease.Incarnation{Node: self.ID, Number: self.Incarnation + uint64(time.Hour)}
			return f.store.Swap(t.Context(), pinstore.Op{
				Partition: f.Agent("a").Partition(room), Room: room, TTL: 10 * time.Hour, Set: pinstore.Pin{Incarnation: later, Size: 2},
			})[0].Pin
		}
		before := make(map[string]pinstore.Pin)
		for _, room := range names(20) {
			before[room] = pin(room)
		}
		time.Sleep(2 * ttl)
		for room, was := range before {
			h := f.hostAt(string(was.Node), room, 2)
			if h.Epoch() <= was.Epoch {
				t.Errorf("%s: epoch %d after %d", room, h.Epoch(), was.Epoch)
			}
			if a := f.resolve("a", room, 2); a.Node != was.Node || a.Epoch != h.Epoch() {
				t.Errorf("resolved to %+v; hosted by %+v", a, was.Node)
			}
		}
	})
}

// The later incarnation runs and has not been met by gossip: the earlier one takes nothing
// from it.
func TestLaterProcessKeepsRooms(t *testing.T) {
	inFleet(t, "a", func(t *testing.T, f *fleet) {
		self := f.Agent("a").Snapshot().Self
		later := lease.Incarnation{Node: self.ID, Number: self.Incarnation + 1}
		pin := f.store.Swap(t.Context(), pinstore.Op{
			Partition: f.Agent("a").Partition("r"), Room: "r", TTL: time.Hour, Set: pinstore.Pin{Incarnation: later, Size: 2},
		})[0].Pin
		for range 60 {
			if _, err := f.store.Heartbeat(t.Context(), later, ttl, nil); err != nil {
				t.Fatal(err)
			}
			if h, err := f.rooms["a"].Host(t.Context(), "r", affinity.Demand{Size: 2}); err == nil {
				t.Fatalf("hosted: %+v", h)
			}
			time.Sleep(time.Second)
		}
		if is := pins(t, f.store)["r"]; is != pin {
			t.Errorf("the pin was %+v and is %+v", pin, is)
		}
	})
}
