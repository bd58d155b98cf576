package latency

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHistogram(t *testing.T) {
	var h Histogram
	for _, took := range []time.Duration{
		-1, 0, time.Millisecond, time.Millisecond + 1, 150 * time.Millisecond, time.Second, time.Second + 1,
		time.Hour,
	} {
		h.Add(took)
	}
	const ms = time.Millisecond
	want := Counts{
		Calls: 8, Took: time.Hour + 2*time.Second + 152*ms + 1,
		Within: map[time.Duration]uint64{
			ms / 2:      2,
			ms:          3,
			2 * ms:      4,
			5 * ms:      4,
			10 * ms:     4,
			20 * ms:     4,
			50 * ms:     4,
			100 * ms:    4,
			200 * ms:    5,
			500 * ms:    5,
			time.Second: 6,
		},
	}
	if diff := cmp.Diff(want, h.Counts()); diff != "" {
		t.Error(diff)
	}
}

// While many goroutines add calls, no call is lost, and the numbers in each result are consistent.
func TestConcurrent(t *testing.T) {
	var h Histogram
	var adding sync.WaitGroup
	for range 4 {
		adding.Go(func() {
			for i := range 10_000 {
				h.Add(time.Duration(i) * 100 * time.Microsecond)
				if i%100 == 0 {
					c := h.Counts()
					for bound, n := range c.Within {
						if n > c.Calls {
							t.Errorf("%d calls, and %d within %v", c.Calls, n, bound)
						}
					}
				}
			}
		})
	}
	adding.Wait()
	if c := h.Counts(); c.Calls != 40_000 || c.Within[time.Second] != 40_000 || c.Within[100*time.Millisecond] != 4*1001 {
		t.Errorf("%+v", c)
	}
}
