package node

import (
	"errors"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Any member evicts any other, until an end or a cancellation. Unknown nodes and the last
// candidate are refused.
func TestEvict(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c")
	evict := func(id lease.NodeID, d time.Duration, want error) {
		t.Helper()
		if err := w.nodes["a"].Evict(w.now, id, d, "slow disk"); !errors.Is(err, want) {
			t.Errorf("evict %s for %v: %v, want %v", id, d, err, want)
		}
	}
	owners := func(when string, want ...string) {
		t.Helper()
		for _, id := range w.ids {
			owns := w.owned(id) > 0
			wanted := false
			for _, o := range want {
				wanted = wanted || o == id
			}
			if owns != wanted {
				t.Errorf("%s: %s owns %d partitions", when, id, w.owned(id))
			}
		}
	}
	evict("nobody", time.Minute, ErrNotMember)
	evict("b", 10*time.Second, nil)
	w.run(time.Second)
	owners("b is evicted", "a", "c")
	evict("a", time.Minute, nil)
	w.run(time.Second)
	owners("a and b are", "c")
	evict("c", time.Minute, ErrLastCandidate)
	evict("b", time.Minute, nil) // c could do without
	evict("b", 10*time.Second, nil)
	w.nodes["c"].Drain(w.now)
	w.run(time.Second)
	owners("c drains: no candidate is left", "a", "b")
	if v := w.nodes["b"].View(); !v.Live.Spared || len(v.Live.Evicted) != 2 {
		t.Errorf("b spares %v, of %+v", v.Live.Spared, v.Live.Evicted)
	}
	w.nodes["c"].Undrain(w.now)
	w.run(time.Second)
	owners("c is back", "c")
	evict("a", 0, nil)
	w.run(time.Second)
	owners("a is back", "a", "c")
	w.run(10 * time.Second)
	owners("b is back", "a", "b", "c")
	for _, id := range w.ids {
		lines := make(map[string]int)
		for _, e := range w.last[id].Log {
			lines[e.Message]++
		}
		if lines["member evicted; it owns nothing"] < 3 || lines["eviction ended"] != 2 || lines["evictions have no effect: no other member could own anything"] != 1 {
			t.Errorf("%s logs %v", id, lines)
		}
	}
}
