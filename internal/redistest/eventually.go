package redistest

import (
	"testing"
	"time"
)

// patience is the time limit of a condition. It is far longer than any condition takes: a
// longer limit only delays a failure.
const patience = 3 * time.Minute

// Eventually polls until f returns nil, and fails the test after a time limit.
func Eventually(tb testing.TB, what string, f func() error) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("waited %v for %s: %v", patience, what, err)
		}
	}
}
