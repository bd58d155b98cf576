package node

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	s := schedule{renewEvery: 2 * time.Second, every: 200 * time.Millisecond, review: at(2000)}
	s.heartbeatSent(at(0), 0)
	if s.heartbeat != at(1800) || s.gossip != at(0) {
		t.Errorf("least jitter: heartbeat after %v, gossip after %v", s.heartbeat.Sub(epoch), s.gossip.Sub(epoch))
	}
	s.heartbeatSent(at(0), 0.5)
	if s.heartbeat != at(2000) {
		t.Errorf("mean jitter: heartbeat after %v", s.heartbeat.Sub(epoch))
	}
	s.gossip = at(200)
	s.urge(at(100))
	if s.gossip != at(120) {
		t.Errorf("urgent news: gossip after %v", s.gossip.Sub(epoch))
	}
	s.urge(at(110))
	if s.gossip != at(120) {
		t.Errorf("more urgent news puts gossip off to %v", s.gossip.Sub(epoch))
	}
	for _, want := range []int{160, 200, 400, 600} {
		if s.gossiped(s.gossip); s.gossip != at(want) {
			t.Errorf("a round after urgent news is after %v, want %d ms", s.gossip.Sub(epoch), want)
		}
	}
	s.publishBy(at(250))
	s.publishBy(at(300))
	if s.publish != at(250) {
		t.Errorf("a later change puts publication off to %v", s.publish.Sub(epoch))
	}
	s.publishBy(at(200))
	if s.publish != at(200) {
		t.Errorf("an urgent change waits until %v", s.publish.Sub(epoch))
	}
}

// The next turn comes at the earliest deadline. Deadlines that have passed or are not set are skipped.
func TestNext(t *testing.T) {
	for name, tt := range map[string]struct {
		deadlines []time.Time
		want      time.Time
	}{
		"one":             {[]time.Time{at(200)}, at(200)},
		"an earlier one":  {[]time.Time{at(200), at(150)}, at(150)},
		"a later one":     {[]time.Time{at(200), at(400)}, at(200)},
		"the past":        {[]time.Time{at(50), at(100), at(200), at(90)}, at(200)},
		"unplanned":       {[]time.Time{{}, at(200), {}}, at(200)},
		"none is to come": {[]time.Time{at(50), {}}, time.Time{}},
		"none has a time": {nil, time.Time{}},
	} {
		duties := []duty{{}} // a duty without a deadline
		for _, d := range tt.deadlines {
			duties = append(duties, duty{deadline: func() time.Time { return d }})
		}
		if got := next(at(100), duties); got != tt.want {
			t.Errorf("%s: next after %v, want %v", name, got.Sub(epoch), tt.want.Sub(epoch))
		}
	}
}

// Each address is picked about equally often, and the picks do not depend on the order of the addresses.
func TestPick(t *testing.T) {
	var all []string
	for i := range 20 {
		all = append(all, fmt.Sprintf("10.0.0.%d:7946", i))
	}
	a, b := &Node{core: core{rng: rand.New(rand.NewPCG(1, 0))}}, &Node{core: core{rng: rand.New(rand.NewPCG(1, 0))}}
	counts := make(map[string]int)
	for range 10_000 {
		got := a.pick(all, 3)
		slices.Reverse(all)
		if again := b.pick(all, 3); !slices.Equal(got, again) {
			t.Fatalf("picked %v, and %v in another order", got, again)
		}
		if len(got) != 3 || got[0] == got[1] || got[1] == got[2] || got[0] == got[2] {
			t.Fatalf("picked %v", got)
		}
		for _, addr := range got {
			counts[addr]++
		}
	}
	for _, addr := range all {
		if n := counts[addr]; n < 1300 || n > 1700 {
			t.Errorf("%s was picked %d times of 1500", addr, n)
		}
	}
	if got := a.pick(all[:2], 3); len(got) != 2 {
		t.Errorf("picked %v of two", got)
	}
}

// In each round, a deck draws the same addresses as pick, in the same order.
func TestDeck(t *testing.T) {
	for size := 1; size < 20; size++ {
		var all []string
		for i := range size {
			all = append(all, fmt.Sprint(i))
		}
		n := &Node{core: core{rng: rand.New(rand.NewPCG(uint64(size), 0))}}
		rng := rand.New(rand.NewPCG(uint64(size), 0))
		d := deck{size: size, card: func(i int) string { return fmt.Sprint(i) }}
		for round := range 4 {
			for i, want := range n.pick(all, min(size, 5)) {
				if got := d.draw(rng, i); got != want {
					t.Fatalf("of %d, in round %d: the draw %d is %s, want %s", size, round, i, got, want)
				}
			}
		}
	}
}
