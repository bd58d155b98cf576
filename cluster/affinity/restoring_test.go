//go:build !race

package affinity_test

import (
	"testing"
	"time"
)

// A host has so many rooms that it needs more than a minute to restore their pins. It must not lose a room to a node
// that does not know the rooms.
func TestRestoredForMinutes(t *testing.T) {
	inAMinute := restored(t, 9500, 60*time.Millisecond, time.Second, 150*time.Second) // 71 s for all
	if inAMinute > 9000 {
		t.Errorf("%d pins were restored within a minute; want it to take longer", inAMinute)
	}
}
