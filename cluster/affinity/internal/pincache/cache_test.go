package pincache

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

func pinAt(node lease.NodeID, epoch uint64) pinstore.Pin {
	return pinstore.Pin{Incarnation: lease.Incarnation{Node: node, Number: 1}, Epoch: epoch, Size: 2}
}

func TestPinCache(t *testing.T) {
	now := time.Now()
	later := now.Add(time.Minute)
	one, two := pinAt("1", 1), pinAt("2", 2)
	for name, c := range map[string]struct {
		do    func(c *Cache, learn func(pinstore.Pin))
		pin   pinstore.Pin
		fresh bool
		lost  bool
		least uint64 // 0 if the test does not check it
	}{
		"answer": {do: func(_ *Cache, learn func(pinstore.Pin)) {
			learn(one)
		}, pin: one, fresh: true},
		"notification during the query": {do: func(c *Cache, _ func(pinstore.Pin)) {
			asked := c.Begin("r", 0)
			c.Invalidate("r")
			c.Learn("r", asked, one, later)
		}, pin: one},
		"notification after the answer": {do: func(c *Cache, learn func(pinstore.Pin)) {
			learn(one)
			c.Invalidate("r")
		}, pin: one},
		"store lost during the query": {do: func(c *Cache, _ func(pinstore.Pin)) {
			asked := c.Begin("r", 0)
			c.InvalidateAll()
			c.Learn("r", asked, one, later)
		}, pin: one, lost: true},
		"store lost": {do: func(c *Cache, learn func(pinstore.Pin)) {
			learn(one)
			c.InvalidateAll()
		}, pin: one, lost: true},
		"store lost, next query": {do: func(c *Cache, learn func(pinstore.Pin)) {
			learn(one)
			c.InvalidateAll()
			c.Begin("r", 0)
		}, pin: one, lost: true},
		"store lost before the query": {do: func(c *Cache, learn func(pinstore.Pin)) {
			c.InvalidateAll()
			learn(one)
		}, pin: one, fresh: true},
		"no pin": {do: func(_ *Cache, learn func(pinstore.Pin)) {
			learn(one)
			learn(pinstore.Pin{})
		}},
		"older answer comes last": {do: func(c *Cache, learn func(pinstore.Pin)) {
			first := c.Begin("r", 0)
			learn(two)
			c.Learn("r", first, one, later)
		}, pin: two, fresh: true},
		"guess": {do: func(c *Cache, _ func(pinstore.Pin)) {
			c.Assume("r", one)
		}, pin: one},
		"guess after an answer": {do: func(c *Cache, learn func(pinstore.Pin)) {
			learn(two)
			c.Assume("r", one)
		}, pin: two, fresh: true},
		"a hosting has ended": {do: func(c *Cache, learn func(pinstore.Pin)) {
			learn(one)
			c.Void("r", one)
			learn(one) // the pin of the ended hosting, which is not deleted yet
		}, pin: one, least: 2},
		"the next hosting": {do: func(c *Cache, learn func(pinstore.Pin)) {
			c.Void("r", one)
			learn(two)
		}, pin: two, fresh: true, least: 2},
		"a hosting of before has ended": {do: func(c *Cache, learn func(pinstore.Pin)) {
			learn(two)
			c.Void("r", one)
		}, pin: two, fresh: true, least: 2},
		"the pin of a hosting that has ended is gone": {do: func(c *Cache, learn func(pinstore.Pin)) {
			c.Void("r", one)
			learn(pinstore.Pin{})
		}},
		"update": {do: func(c *Cache, learn func(pinstore.Pin)) {
			learn(one)
			c.Update("r", two)
		}, pin: two},
		"update of a room without an entry": {do: func(c *Cache, _ func(pinstore.Pin)) {
			c.Update("r", two)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cache := &Cache{max: 10}
			c.do(cache, func(pin pinstore.Pin) { cache.Learn("r", cache.Begin("r", 0), pin, later) })
			var pin pinstore.Pin
			var fresh, lost bool
			if e := cache.Get("r"); e != nil {
				pin, fresh, lost = e.Pin, cache.IsFresh(e), cache.Lost(e)
			}
			if least := cache.Least("r"); c.least != 0 && least != c.least {
				t.Errorf("the least epoch is %d, want %d", least, c.least)
			}
			if pin != c.pin || fresh != c.fresh || lost != c.lost {
				t.Errorf("%+v, fresh %v, lost %v; want %+v, %v, %v", pin, fresh, lost, c.pin, c.fresh, c.lost)
			}
		})
	}
}

// If several callers learn a pin at the same time, exactly one of them is told that the pin is new.
func TestPinCacheNews(t *testing.T) {
	for range 200 {
		c := &Cache{max: 10}
		c.Learn("r", c.Begin("r", 0), pinAt("1", 1), time.Now())
		var mu sync.Mutex
		news := 0
		var wait sync.WaitGroup
		for i := range 4 {
			wait.Go(func() {
				var first bool
				switch asked := c.Begin("r", 0); i {
				case 0, 1:
					first = c.Learn("r", asked, pinAt("2", 2), time.Now())
				case 2:
					first = c.Update("r", pinAt("2", 2))
				case 3:
					c.Invalidate("r")
				}
				mu.Lock()
				defer mu.Unlock()
				if first {
					news++
				}
			})
		}
		wait.Wait()
		if e := c.Get("r"); news != 1 || e.Pin.Epoch != 2 {
			t.Fatalf("%d callers got the news of %+v", news, e.Pin)
		}
	}
}

func TestPinCacheIsBounded(t *testing.T) {
	c := &Cache{max: 100}
	for i := range 10_000 {
		room := fmt.Sprint("r-", i)
		c.Learn(room, c.Begin(room, 0), pinAt("1", 1), time.Now())
	}
	if n := len(c.On(func(lease.Incarnation) bool { return true })); n > 100 || int64(n) != c.count.Load() {
		t.Errorf("%d rooms, counted %d, at most 100", n, c.count.Load())
	}
	for i := range 10_000 {
		room := fmt.Sprint("r-", i)
		c.Learn(room, c.Begin(room, 0), pinstore.Pin{}, time.Now())
	}
	if n := c.count.Load(); n != 0 {
		t.Errorf("%d rooms after all pins are gone", n)
	}
}
