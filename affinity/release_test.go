package affinity_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// A node that does not reach the store for 40 s misses the release of its room, and hears of it later.
func TestReleaseMissed(t *testing.T) { // S6.2
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		mine := &faulty{Store: data}
		f := newFleet(t, data, affinity.Config{}, "b", "c")
		f.store = mine
		f.start("a")
		f.resolve("b", "r", 2)
		f.move("b", "a")
		h := f.hostAt("a", "r", 2)
		time.Sleep(5 * time.Second)
		mine.fails.Store(true)
		mine.disconnect()
		if err := f.rooms["b"].Release(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		mine.fails.Store(false)
		time.Sleep(20 * time.Second)
		if !lost(h) {
			t.Errorf("the room was released, and its host goes on; its pin: %v", pins(t, data)["r"])
		}
	})
}

// hooked calls a function once, before the next claim.
type hooked struct {
	pinstore.Store
	before atomic.Pointer[func()]
}

func (s *hooked) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	if ops[0].Set.Number != 0 && ops[0].If == (pinstore.Pin{}) {
		if f := s.before.Swap(nil); f != nil {
			(*f)()
		}
	}
	return s.Store.Swap(ctx, ops...)
}

// A hosting ends while its pin is confirmed, and the room comes back to this node. Its epoch stays: the greater one is
// that of the next tenure.
func TestEpochOfEndedHosting(t *testing.T) { // S6.2
	synctest.Test(t, func(t *testing.T) {
		store := &hooked{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		o := string(f.owner("r"))
		f.resolve(o, "r", 2)
		h := f.hostAt(o, "r", 2)
		time.Sleep(5 * time.Second)
		epoch, self := h.Epoch(), f.Agent(o).Snapshot().Self
		claim := pinstore.Op{Partition: f.Agent(o).Partition("r"), Room: "r", Set: pinstore.Pin{Size: 2}, TTL: time.Hour}
		claim.Set.Node, claim.Set.Number = self.ID, self.Incarnation
		next := func() {
			_ = h.Release(t.Context())
			time.Sleep(time.Millisecond)
			if !store.Store.Swap(t.Context(), claim)[0].Done {
				t.Error("no next tenure")
			}
		}
		store.before.Store(&next)
		f.rooms[o].Changed("") // as after a lost connection: the keeper claims the pin
		time.Sleep(3 * time.Second)
		if store.before.Load() != nil || !lost(h) || h.Epoch() != epoch {
			t.Errorf("claimed %t, lost %t, epoch %d after %d", store.before.Load() == nil, lost(h), h.Epoch(), epoch)
		}
	})
}

// tardy answers no deletion of a pin, and carries it out when the test says so.
type tardy struct {
	pinstore.Store
	deletions []pinstore.Op
}

func (s *tardy) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	if op := ops[0]; len(ops) == 1 && op.Set.Number == 0 && op.If != (pinstore.Pin{}) {
		s.deletions = append(s.deletions, op)
		<-ctx.Done()
		return []pinstore.Result{{Err: pinstore.ErrStore}}
	}
	return s.Store.Swap(ctx, ops...)
}

// A room ends, and Redis carries out the deletion of its pin when the node hosts the room again, as after a pause of Redis: the
// new hosting keeps its pin. It may have begun while Redis did not answer.
func TestTardyDeletion(t *testing.T) { // S6.2
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			data := &tardy{Store: pinstore.NewMemory()}
			store := &faulty{Store: data}
			f := newFleet(t, store, affinity.Config{}, "a", "b")
			o := string(f.owner("r"))
			f.resolve(o, "r", 2)
			first := f.hostAt(o, "r", 2)
			epoch := first.Epoch()
			if err := first.Release(t.Context()); err == nil || len(data.deletions) != 1 {
				t.Fatalf("%v, deletions %+v", err, data.deletions)
			}
			store.fails.Store(away)
			second := f.hostAt(o, "r", 2)
			store.fails.Store(false)
			if away {
				time.Sleep(2 * time.Second)
			}
			data.Store.Swap(t.Context(), data.deletions[0])
			if is := pins(t, data.Store)["r"]; is.Incarnation == (lease.Incarnation{}) || second.Epoch() <= epoch || is.Epoch != second.Epoch() {
				t.Errorf("away %t: epoch %d, then %d; its pin: %+v", away, epoch, second.Epoch(), is)
			}
		})
	}
}

// The release of a hosting that the store has not confirmed deletes no pin that it has not read.
func TestReleaseUnconfirmed(t *testing.T) { // S6.2
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: &tardy{Store: pinstore.NewMemory()}}
		f := newFleet(t, store, affinity.Config{}, "a")
		store.fails.Store(true)
		h := f.hostAt("a", "r", 2)
		if err := h.Release(t.Context()); h.Epoch() != 0 || err == nil {
			t.Fatalf("epoch %d, %v", h.Epoch(), err)
		}
		store.fails.Store(false)
		time.Sleep(10 * time.Second)
		if sent := store.Store.(*tardy).deletions; len(sent) > 0 {
			t.Errorf("deletions %+v", sent)
		}
	})
}
