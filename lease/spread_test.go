package lease

import (
	"math"
	"testing"
)

// Counts of copies stay counts, however often others confirm what they have: a negative one
// would be sent before all news, for good.
func TestConfirmedForYears(t *testing.T) {
	for _, sent := range []int32{0, 1 << 20, math.MaxInt32 - 1} {
		v := &vitals{rowsSent: sent, recordsSent: sent, inDigest: true}
		for range 1 << 20 {
			v.acknowledged()
		}
		if v.rowsSent < 1<<16 || v.recordsSent < 1<<16 {
			t.Errorf("from %d copies on: %d rows, %d records", sent, v.rowsSent, v.recordsSent)
		}
	}
}
