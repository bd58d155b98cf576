package node

import (
	"testing"
	"time"
)

// Two returns in a row have no effect, and later returns have no effect if they are ten TTLs apart. A hold lasts
// between 2 and 30 TTLs, regardless of the number of returns and of what an earlier record says.
func TestDampingOfReturns(t *testing.T) {
	const ttl = 6 * time.Second
	for name, tt := range map[string]struct {
		inherited int   // TTLs for which earlier returns still count at the start
		returns   []int // TTLs after the start
		holds     []int // length of the hold after each return, in TTLs; 0 = none
	}{
		"once":                    {0, []int{0}, []int{0}},
		"three in ten TTLs":       {0, []int{0, 4, 9}, []int{0, 0, 3}},
		"three in eleven":         {0, []int{0, 5, 11}, []int{0, 0, 0}},
		"at once":                 {0, []int{0, 0, 0, 0, 0, 0}, []int{0, 0, 12, 22, 30, 30}},
		"every ten TTLs":          {0, []int{0, 10, 20, 30, 40, 50}, []int{0, 0, 0, 0, 0, 0}},
		"every two TTLs":          {0, []int{0, 2, 4, 6, 8, 10}, []int{0, 0, 8, 16, 24, 30}},
		"after it has stayed":     {0, []int{0, 0, 0, 22, 32}, []int{0, 0, 12, 0, 0}},
		"after half of that time": {0, []int{0, 0, 0, 15}, []int{0, 0, 12, 7}},
		"an earlier process":      {20, []int{0, 100}, []int{12, 0}},
		"a forged record":         {1 << 20, []int{0, 49}, []int{30, 0}},
	} {
		d := damping{ttl: ttl}
		d.inherit(at(0), at(0).Add(time.Duration(tt.inherited)*ttl))
		for i, r := range tt.returns {
			now := at(0).Add(time.Duration(r) * ttl)
			if due(now, d.until) {
				d.until = time.Time{}
			}
			hold := time.Duration(0)
			if d.returned(now) {
				hold = d.until.Sub(now)
			}
			if want := time.Duration(tt.holds[i]) * ttl; hold != want {
				t.Errorf("%s: flapping for %v after return %d, want %v", name, hold, i+1, want)
			}
		}
	}
	d := damping{ttl: ttl}
	for range 9 {
		d.returned(at(0))
	}
	d.forgive(at(0))
	if flapping := !d.until.IsZero(); flapping || !d.returned(at(0)) || !d.until.Equal(at(0).Add(12*ttl)) {
		t.Errorf("flapping after a pardon: %v; after the next return until %v", flapping, d.until)
	}
}
