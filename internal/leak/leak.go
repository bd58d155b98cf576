// Package leak fails the tests of a package if goroutines are still running after the last test.
package leak

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// timeout is how long goroutines have to finish after the last test. Probes of memberlist continue after
// Shutdown for up to one probe interval, or for up to eight on a busy machine.
const timeout = 15 * time.Second

// Main is for TestMain. It runs the tests of a package and exits.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := wait(timeout); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines still run:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func wait(most time.Duration) error {
	deadline := time.Now().Add(most)
	for {
		err := goleak.Find()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
