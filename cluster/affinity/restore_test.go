package affinity_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// The store loses its data, and is so slow that the host of many rooms needs seconds to
// restore their pins. A node that knows none of the rooms takes none of them.
func TestManyRoomsRestored(t *testing.T) {
	restored(t, 4000, 8*time.Millisecond, 50*time.Millisecond, 10*time.Second) // 4 s for all
}

// restored has a host restore the pins of some rooms in a store that takes its time for each
// batch, while another node resolves rooms at each interval. It returns how many pins
// were restored within a minute.
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

// The store loses its data, and the host of some rooms does not reach it for seconds, and slowly. A node that
// knows none of the rooms takes none of them.
func TestHostReachesStoreLater(t *testing.T) {
	hostReachesStoreLater(t, func(_ *fleet, data *replaced, host func()) {
		host()
		data.empty()
	})
}

// The same with an earlier copy of the data, in which the host says that it has restored its pins: after the
// connections were lost a moment ago.
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

// hostReachesStoreLater calls lose, which calls host and has the store lose the rooms.
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
			late.heartbeatPause.Store(int64(120 * time.Millisecond)) // others look in between
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

// A node that does not know a hosted room claims it just after the store has lost its data:
// the store notifies of the loss before it answers. The node takes its claim back, also if the
// host has seen the claim.
func TestClaimBeforeNewsOfLoss(t *testing.T) {
	for _, answers := range []time.Duration{0, 50 * time.Millisecond} {
		t.Run(answers.String(), func(t *testing.T) { claimBeforeNewsOfLoss(t, answers) })
	}
}

// claimBeforeNewsOfLoss has the store answer the claim some time after the news.
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
		time.Sleep(time.Second) // the keeper has looked at it
		data.mu.Lock()
		data.now = pinstore.NewMemory() // and no node has the news
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
