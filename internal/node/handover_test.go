package node

import (
	"slices"
	"testing"
	"time"
)

// The bound of a wait counts from the latest table that began it, also if the partition went
// to another node, and came back, between two turns of gossip.
func TestHandoverBound(t *testing.T) { // S5.3
	const bound = 2 * time.Second
	for _, comesBack := range []bool{false, true} {
		w := newNetwork(t, func(c *Config) { c.Handover = bound }, "a")
		without := w.nodes["a"].table
		w.add("b")
		b := w.nodes["b"]
		waits := func() bool { return slices.ContainsFunc(b.handing.kernel.Waiting(), b.handing.kernel.Waits) }
		for began := w.now; !waits(); {
			if w.run(10 * time.Millisecond); w.now.Sub(began) > 5*time.Second {
				t.Fatal("the new node waits for nothing")
			}
		}
		w.run(bound - 300*time.Millisecond) // node a never reports that its runs have returned
		if comesBack {
			v := b.set.View()
			b.followTable(w.now, v, without, false)
			b.followTable(w.now, v, b.table, false)
		}
		w.run(time.Second)
		if early := b.stats.HandoverOverruns > 0; early == comesBack {
			t.Errorf("comes back: %v, overdue: %v", comesBack, early)
		}
		w.run(bound)
		if b.stats.HandoverOverruns == 0 {
			t.Error("the wait has no end")
		}
	}
}
