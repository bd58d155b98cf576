package node

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

// A caller that asks again whenever a step is due gets ten weights. Each weight is a tenth of the full weight above the
// previous weight, and the last weight comes after SlowStart. A caller that asks late gets the same weights.
func TestSlowStartWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		full := rapid.Uint32Range(2, lease.MaxWeight).Draw(t, "full")
		slowStart := time.Duration(rapid.Int64Range(int64(10*time.Millisecond), int64(24*time.Hour)).Draw(t, "slowStart"))
		at := time.Duration(0)
		for step := uint32(1); step <= 10; step++ {
			weight, next := slowStartWeight(full, at, slowStart)
			if want := max(1, full/10*step+full%10*step/10); weight != want {
				t.Fatalf("step %d after %v weighs %d, want %d of %d", step, at, weight, want, full)
			}
			if step == 10 {
				if next != 0 || at > slowStart || at < slowStart-10 {
					t.Fatalf("the last of %v comes after %v, and one more after %v", slowStart, at, next)
				}
				break
			}
			late := time.Duration(rapid.Int64Range(int64(at), int64(next-1)).Draw(t, "late"))
			if w, n := slowStartWeight(full, late, slowStart); w != weight || n != next {
				t.Fatalf("after %v: %d until %v, and after %v: %d until %v", at, weight, next, late, w, n)
			}
			at = next
		}
		over := time.Duration(rapid.Int64Range(int64(slowStart), int64(1000*24*time.Hour)).Draw(t, "over"))
		if w, n := slowStartWeight(full, over, slowStart); w != full || n != 0 {
			t.Fatalf("after %v of %v: %d of %d, until %v", over, slowStart, w, full, n)
		}
	})
}
