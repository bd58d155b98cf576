//go:build !race

package affinity_test

import (
	"testing"
	"time"
)

// The host of so many rooms that it restores their pins for longer than a minute loses none
// to a node that knows none of them.
func TestRestoredForMinutes(t *testing.T) {
	inAMinute := restored(t, 9500, 60*time.Millisecond, time.Second, 150*time.Second) // 71 s for all
	if inAMinute > 9000 {
		t.Errorf("%d pins were restored within a minute; want it to take longer", inAMinute)
	}
}
