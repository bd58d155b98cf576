package affinity

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

func pinAt(node lease.NodeID, epoch uint64) Pin {
	return Pin{lease.Incarnation{Node: node, Number: 1}, epoch, 2}
}

func TestPinCache(t *testing.T) {
	now := time.Now()
	later := now.Add(time.Minute)
	one, two := pinAt("1", 1), pinAt("2", 2)
	for name, c := range map[string]struct {
		do    func(c *pinCache, learn func(Pin))
		pin   Pin
		fresh bool
		lost  bool
	}{
		"answer": {do: func(_ *pinCache, learn func(Pin)) {
			learn(one)
		}, pin: one, fresh: true},
		"notification during the query": {do: func(c *pinCache, _ func(Pin)) {
			asked := c.begin("r", 0)
			c.invalidate("r")
			c.learn("r", asked, one, later)
		}, pin: one},
		"notification after the answer": {do: func(c *pinCache, learn func(Pin)) {
			learn(one)
			c.invalidate("r")
		}, pin: one},
		"store lost during the query": {do: func(c *pinCache, _ func(Pin)) {
			asked := c.begin("r", 0)
			c.invalidateAll()
			c.learn("r", asked, one, later)
		}, pin: one, lost: true},
		"store lost": {do: func(c *pinCache, learn func(Pin)) {
			learn(one)
			c.invalidateAll()
		}, pin: one, lost: true},
		"store lost, next query": {do: func(c *pinCache, learn func(Pin)) {
			learn(one)
			c.invalidateAll()
			c.begin("r", 0)
		}, pin: one, lost: true},
		"store lost before the query": {do: func(c *pinCache, learn func(Pin)) {
			c.invalidateAll()
			learn(one)
		}, pin: one, fresh: true},
		"no pin": {do: func(_ *pinCache, learn func(Pin)) {
			learn(one)
			learn(Pin{})
		}},
		"older answer comes last": {do: func(c *pinCache, learn func(Pin)) {
			first := c.begin("r", 0)
			learn(two)
			c.learn("r", first, one, later)
		}, pin: two, fresh: true},
		"guess": {do: func(c *pinCache, _ func(Pin)) {
			c.assume("r", one)
		}, pin: one},
		"guess after an answer": {do: func(c *pinCache, learn func(Pin)) {
			learn(two)
			c.assume("r", one)
		}, pin: two, fresh: true},
		"update": {do: func(c *pinCache, learn func(Pin)) {
			learn(one)
			c.update("r", two)
		}, pin: two},
		"update of a room without an entry": {do: func(c *pinCache, _ func(Pin)) {
			c.update("r", two)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cache := &pinCache{max: 10}
			c.do(cache, func(pin Pin) { cache.learn("r", cache.begin("r", 0), pin, later) })
			var pin Pin
			var fresh, lost bool
			if e := cache.get("r"); e != nil {
				pin, fresh, lost = e.pin, cache.isFresh(e, now), cache.lost(e)
			}
			if pin != c.pin || fresh != c.fresh || lost != c.lost {
				t.Errorf("%+v, fresh %v, lost %v; want %+v, %v, %v", pin, fresh, lost, c.pin, c.fresh, c.lost)
			}
		})
	}
}

// Of several callers that learn a pin, one gets the news.
func TestPinCacheNews(t *testing.T) {
	for range 200 {
		c := &pinCache{max: 10}
		c.learn("r", c.begin("r", 0), pinAt("1", 1), time.Now())
		var mu sync.Mutex
		news := 0
		var wait sync.WaitGroup
		for i := range 4 {
			wait.Go(func() {
				var first bool
				switch asked := c.begin("r", 0); i {
				case 0, 1:
					first = c.learn("r", asked, pinAt("2", 2), time.Now())
				case 2:
					first = c.update("r", pinAt("2", 2))
				case 3:
					c.invalidate("r")
				}
				mu.Lock()
				defer mu.Unlock()
				if first {
					news++
				}
			})
		}
		wait.Wait()
		if e := c.get("r"); news != 1 || e.pin.Epoch != 2 {
			t.Fatalf("%d callers got the news of %+v", news, e.pin)
		}
	}
}

func TestPinCacheIsBounded(t *testing.T) {
	c := &pinCache{max: 100}
	for i := range 10_000 {
		room := fmt.Sprint("r-", i)
		c.learn(room, c.begin(room, 0), pinAt("1", 1), time.Now())
	}
	if n := len(c.on(func(lease.Incarnation) bool { return true })); n > 100 || int64(n) != c.count.Load() {
		t.Errorf("%d rooms, counted %d, at most 100", n, c.count.Load())
	}
	for i := range 10_000 {
		room := fmt.Sprint("r-", i)
		c.learn(room, c.begin(room, 0), Pin{}, time.Now())
	}
	if n := c.count.Load(); n != 0 {
		t.Errorf("%d rooms after all pins are gone", n)
	}
}
