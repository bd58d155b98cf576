package redistest

import (
	"errors"
	"testing"
	"time"
)

// timeout is the time limit for a condition. It is far longer than a condition should take, because a long
// limit only delays the failure of a test.
const timeout = 3 * time.Minute

// Eventually polls until f returns nil, and fails the test after a time limit. Between two calls of f, it
// pauses for four times the duration of f, but for at least 5 ms and at most 100 ms. The pause leaves CPU
// time for the cluster, for example if f queries all agents.
func Eventually(tb testing.TB, what string, f func() error) {
	tb.Helper()
	const least, most = 5 * time.Millisecond, 100 * time.Millisecond
	for deadline := time.Now().Add(timeout); ; {
		began := time.Now()
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("waited %v for %s: %v", timeout, what, err)
		}
		<-time.After(min(max(least, 4*time.Since(began)), most))
	}
}

// Until waits until condition returns true, like Eventually.
func Until(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	Eventually(tb, what, func() error {
		if !condition() {
			return errors.New("not yet")
		}
		return nil
	})
}
