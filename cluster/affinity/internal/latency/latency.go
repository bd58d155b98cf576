// Package latency counts how long calls take.
package latency

import (
	"slices"
	"sync/atomic"
	"time"
)

// bounds are the upper bounds of the histogram's buckets. One more bucket counts all longer calls.
var bounds = [...]time.Duration{ //nolint:gochecknoglobals // constant
	500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond,
	20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second,
}

// Histogram counts calls by duration. Its zero value is ready to use. Histogram takes no lock and is safe for
// concurrent use.
type Histogram struct {
	ranges [len(bounds) + 1]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

// Add counts a call.
func (h *Histogram) Add(took time.Duration) {
	i, _ := slices.BinarySearch(bounds[:], took)
	h.ranges[i].Add(1)
	h.sum.Add(int64(took))
}

// Counts is a snapshot of a Histogram.
type Counts struct {
	Calls  uint64
	Took   time.Duration            // sum of all calls
	Within map[time.Duration]uint64 // number of calls that took at most the key
}

// Counts returns the current counts. A concurrent Add may be included in only some of the numbers. Calls is
// at least as large as each number in Within.
func (h *Histogram) Counts() Counts {
	c := Counts{Took: time.Duration(h.sum.Load()), Within: make(map[time.Duration]uint64, len(bounds))}
	for i, bound := range bounds {
		c.Calls += h.ranges[i].Load()
		c.Within[bound] = c.Calls
	}
	c.Calls += h.ranges[len(bounds)].Load()
	return c
}
