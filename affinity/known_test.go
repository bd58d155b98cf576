package affinity

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/lease"
)

func pinAt(node lease.NodeID, epoch uint64) Pin {
	return Pin{lease.Incarnation{Node: node, Number: 1}, epoch, 2}
}

func TestKnown(t *testing.T) {
	now := time.Now()
	later := now.Add(time.Minute)
	fresh := func(k *known, room string) bool {
		m := k.get(room)
		return m != nil && k.isFresh(m, now)
	}
	one, two := pinAt("1", 1), pinAt("2", 2)
	for name, c := range map[string]struct {
		do    func(k *known)
		pin   Pin
		fresh bool
		lost  bool
	}{
		"an answer": {do: func(k *known) {
			k.learn("r", k.begin("r"), one, later)
		}, pin: one, fresh: true},
		"an answer that a notification overtook": {do: func(k *known) {
			asked := k.begin("r")
			k.doubt("r")
			k.learn("r", asked, one, later)
		}, pin: one},
		"a notification after the answer": {do: func(k *known) {
			k.learn("r", k.begin("r"), one, later)
			k.doubt("r")
		}, pin: one},
		"an answer of before the store was lost": {do: func(k *known) {
			asked := k.begin("r")
			k.doubtAll()
			k.learn("r", asked, one, later)
		}, pin: one, lost: true},
		"the store is lost": {do: func(k *known) {
			k.learn("r", k.begin("r"), one, later)
			k.doubtAll()
		}, pin: one, lost: true},
		"it is still lost while the store is asked": {do: func(k *known) {
			k.learn("r", k.begin("r"), one, later)
			k.doubtAll()
			k.begin("r")
		}, pin: one, lost: true},
		"and not after an answer": {do: func(k *known) {
			k.doubtAll()
			k.learn("r", k.begin("r"), one, later)
		}, pin: one, fresh: true},
		"no pin": {do: func(k *known) {
			k.learn("r", k.begin("r"), one, later)
			k.learn("r", k.begin("r"), Pin{}, later)
		}},
		"an older answer comes last": {do: func(k *known) {
			first := k.begin("r")
			k.learn("r", k.begin("r"), two, later)
			k.learn("r", first, one, later)
		}, pin: two, fresh: true},
		"a guess": {do: func(k *known) {
			k.assume("r", one)
		}, pin: one},
		"a guess against the store's word": {do: func(k *known) {
			k.learn("r", k.begin("r"), two, later)
			k.assume("r", one)
		}, pin: two, fresh: true},
		"made here": {do: func(k *known) {
			k.learn("r", k.begin("r"), one, later)
			k.set("r", two)
		}, pin: two},
		"made here, of a room that nobody asked for": {do: func(k *known) {
			k.set("r", two)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			k := &known{max: 10}
			c.do(k)
			var pin Pin
			m := k.get("r")
			if m != nil {
				pin = m.pin
			}
			if pin != c.pin || fresh(k, "r") != c.fresh || (m != nil && k.lost(m)) != c.lost {
				t.Errorf("%+v, fresh %v, lost %v; want %+v, %v, %v", pin, fresh(k, "r"), m != nil && k.lost(m), c.pin, c.fresh, c.lost)
			}
		})
	}
}

// Of all who come to know of a pin, one has the news.
func TestKnownNews(t *testing.T) {
	for range 200 {
		k := &known{max: 10}
		k.learn("r", k.begin("r"), pinAt("1", 1), time.Now())
		var mu sync.Mutex
		news := 0
		var wait sync.WaitGroup
		for i := range 4 {
			wait.Go(func() {
				var first bool
				switch asked := k.begin("r"); i {
				case 0, 1:
					first = k.learn("r", asked, pinAt("2", 2), time.Now())
				case 2:
					first = k.set("r", pinAt("2", 2))
				case 3:
					k.doubt("r")
				}
				mu.Lock()
				defer mu.Unlock()
				if first {
					news++
				}
			})
		}
		wait.Wait()
		if m := k.get("r"); news != 1 || m.pin.Epoch != 2 {
			t.Fatalf("%d had the news of %+v", news, m.pin)
		}
	}
}

func TestKnownIsBounded(t *testing.T) {
	k := &known{max: 100}
	for i := range 10_000 {
		room := fmt.Sprint("r-", i)
		k.learn(room, k.begin(room), pinAt("1", 1), time.Now())
	}
	n := 0
	k.rooms.Range(func(any, any) bool { n++; return true })
	if n > 100 || int64(n) != k.count.Load() {
		t.Errorf("%d rooms, counted %d, at most 100", n, k.count.Load())
	}
	for i := range 10_000 {
		room := fmt.Sprint("r-", i)
		k.learn(room, k.begin(room), Pin{}, time.Now())
	}
	if n := k.count.Load(); n != 0 {
		t.Errorf("%d rooms after all pins are gone", n)
	}
}

// A store that is used in batches, day after day, keeps no more than it holds.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		pins := make([]Pin, 1024)
		for range 500 {
			var ops []Op
			for i := range pins {
				ops = append(ops, Op{Room: fmt.Sprint("r-", i), If: pins[i], Set: Pin{Incarnation: lease.Incarnation{Node: "a", Number: 1}}, TTL: time.Hour})
			}
			for i, res := range m.Swap(t.Context(), ops...) {
				if !res.Done {
					t.Fatalf("%+v: %+v", ops[i], res)
				}
				pins[i] = res.Pin
			}
			time.Sleep(20 * time.Minute)
		}
		if n := len(m.due); n > 8*len(pins) {
			t.Errorf("%d dates for %d pins", n, len(pins))
		}
	})
}
