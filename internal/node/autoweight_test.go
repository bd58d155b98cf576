package node

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

// A step goes toward the mean, by a quarter at most, and stays within half of the base and twice the base. Small
// differences cause no step.
func TestNextWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Uint32Range(1, lease.MaxWeight).Draw(t, "base")
		was := rapid.Uint32Range((base+1)/2, min(2*base, lease.MaxWeight)).Draw(t, "was")
		ratio := rapid.Float64Range(0.01, 1000).Draw(t, "ratio")
		w := nextWeight(base, was, ratio)
		switch {
		case 2*uint64(w) < uint64(base) || uint64(w) > 2*uint64(base) || w > lease.MaxWeight:
			t.Fatalf("weight %d is out of range", w)
		case ratio >= 0.9 && ratio <= 1.1 && w != was:
			t.Fatalf("weight %d for a ratio of %v", w, ratio)
		case ratio > 1.1 && w > was || ratio < 0.9 && w < was:
			t.Fatalf("weight %d goes away from the mean", w)
		case float64(w) > 1.25*float64(was)+1 || float64(w) < float64(was)/1.25-1:
			t.Fatalf("weight %d is a large step", w)
		}
	})
}
