package affinity_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// The store loses its data, and is so slow that the host of many rooms needs seconds to restore their pins. A node that
// knows none of the rooms must not take any of them.
func TestManyRoomsRestored(t *testing.T) {
	restored(t, 4000, 8*time.Millisecond, 50*time.Millisecond, 10*time.Second) // 4 s for all
}

// restored makes a host restore the pins of its rooms in a slow store, while another node keeps resolving these rooms.
// It returns how many pins were restored within a minute.
func restored(t *testing.T, rooms int, pause, every, during time.Duration) (inAMinute uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		store := &faulty{Store: data}
		f := newFleet(t, store, affinity.Config{}, "a", "b")
		_ = f.Agent("b").SetWeight(0) // all rooms go to a
		time.Sleep(5 * time.Second)
		var hosted []*affinity.Hosting
		for _, room := range names(rooms) {
			h := f.hostAt("a", room, 1)
			hosted = append(hosted, h)
		}
		_ = f.Agent("b").SetWeight(200)
		time.Sleep(5 * time.Second)
		store.pause.Store(int64(pause))
		data.empty()
		for since := time.Now(); time.Since(since) < during; time.Sleep(every) {
			if time.Since(since) < 61*time.Second {
				inAMinute = f.rooms["a"].Stats().Repinned
			}
			for i := 0; i < len(hosted); i += 97 {
				f.resolve("b", hosted[i].Room(), 1)
			}
		}
		away := 0
		for _, h := range hosted {
			if lost(h) {
				away++
			}
		}
		if away > 0 {
			t.Errorf("%d of %d rooms lost their home", away, len(hosted))
		}
		if a := f.resolve("b", "new", 1); a.Source == affinity.Degraded {
			t.Errorf("new rooms still wait: %+v", a)
		}
	})
	return inAMinute
}

// The store loses its data. The host of some rooms cannot reach the store for seconds, and then its heartbeats are
// slow. A node that knows none of the rooms must not take any of them.
func TestHostReachesStoreLater(t *testing.T) {
	hostReachesStoreLater(t, func(_ *fleet, data *replaced, host func()) {
		host()
		data.empty()
	})
}

// The same must hold if the store goes back to an earlier copy of its data. In this copy, the host says that it has
// restored its pins, because the connections were lost shortly before.
func TestHostReachesEarlierCopyLater(t *testing.T) {
	hostReachesStoreLater(t, func(f *fleet, data *replaced, host func()) {
		data.restore(data.memory())
		time.Sleep(3 * time.Second)
		copied := data.memory().Copy()
		time.Sleep(100 * time.Millisecond)
		host()
		data.restore(copied)
	})
}

// hostReachesStoreLater calls lose, which calls host and makes the store lose the hosted rooms.
func hostReachesStoreLater(t *testing.T, lose func(f *fleet, data *replaced, host func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		late := &faulty{Store: data}
		f := newFleet(t, late, affinity.Config{}, "a")
		f.store = &faulty{Store: data}
		f.start("b")
		_ = f.Agent("b").SetWeight(0) // all rooms go to a
		time.Sleep(5 * time.Second)
		var hosted []*affinity.Hosting
		lose(f, data, func() {
			for _, room := range names(50) {
				hosted = append(hosted, f.host("a", room, 1))
			}
			late.fails.Store(true)
			late.heartbeatPause.Store(int64(120 * time.Millisecond)) // other nodes look in between
		})
		_ = f.Agent("b").SetWeight(200)
		for since := time.Now(); time.Since(since) < 10*time.Second; time.Sleep(50 * time.Millisecond) {
			late.fails.Store(time.Since(since) < 4*time.Second)
			for _, h := range hosted {
				f.resolve("b", h.Room(), 1)
			}
		}
		away := 0
		for _, h := range hosted {
			if lost(h) {
				away++
			}
		}
		if away > 0 {
			t.Errorf("%d of %d rooms lost their home", away, len(hosted))
		}
		if a := f.resolve("b", "new", 1); a.Source == affinity.Degraded {
			t.Errorf("new rooms still wait: %+v", a)
		}
	})
}

// The store loses its data, and a node that does not know a hosted room claims it. The store notifies the nodes of the
// loss before it answers the claim. The node must withdraw its claim, even if the host has seen it.
func TestClaimBeforeNewsOfLoss(t *testing.T) {
	for _, answers := range []time.Duration{0, 50 * time.Millisecond} {
		t.Run(answers.String(), func(t *testing.T) { claimBeforeNewsOfLoss(t, answers) })
	}
}

// claimBeforeNewsOfLoss makes the store answer the claim the given time after it has notified the nodes.
func claimBeforeNewsOfLoss(t *testing.T, answers time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		store := &faulty{Store: data}
		f := newFleet(t, store, affinity.Config{}, "a", "b", "c")
		owner := string(f.owner("r"))
		home := f.not(owner)
		f.resolve(home, "r", 2)
		f.move(home, home)
		h := f.hostAt(home, "r", 2)
		was := h.Epoch()
		time.Sleep(time.Second) // the keeper has checked the room
		data.mu.Lock()
		data.now = pinstore.NewMemory() // no node has been notified
		data.mu.Unlock()
		news := func() {
			data.restore(data.memory())
			time.Sleep(answers)
		}
		store.afterSwap.Store(&news)
		other := f.not(home, owner)
		if a := f.resolve(other, "r", 2); a.Source != affinity.Degraded {
			t.Errorf("%s has claimed it: %+v", other, a)
		}
		time.Sleep(5 * time.Second)
		if a := f.resolve(other, "r", 2); lost(h) || string(a.Node) != home || a.Epoch != h.Epoch() || a.Epoch <= was {
			t.Errorf("lost: %v; resolved to %+v, hosted with epoch %d after %d", h.Err(), a, h.Epoch(), was)
		}
	})
}
