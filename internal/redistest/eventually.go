package redistest

import (
	"testing"
	"time"
)

// patience is for how long a condition may take to come true. It is far more than
// any takes: all that a longer one costs is the time until a test has failed.
const patience = 60 * time.Second

// Eventually polls until f returns nil, and fails the test when that takes too long.
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
