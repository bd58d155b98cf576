package redistest

import (
	"errors"
	"testing"
	"time"
)

// timeout is the time limit of a condition. It is far longer than any condition takes, because a longer limit
// only delays a failure.
const timeout = 3 * time.Minute

// Eventually polls until f returns nil, and fails the test after a time limit. It spends at most a fifth of
// the time in f, because if f is expensive and asks all agents of a cluster, for example, the cluster needs
// the rest.
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

// Until is Eventually for a condition.
func Until(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	Eventually(tb, what, func() error {
		if !condition() {
			return errors.New("not yet")
		}
		return nil
	})
}
