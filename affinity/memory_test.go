package affinity

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// A store that is used in batches for days keeps only its pins.
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
