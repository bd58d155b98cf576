// Package leak fails a package's tests if goroutines outlive them.
package leak

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// timeout is how long goroutines have to end after the last test. Probes of memberlist outlive its Shutdown
// by up to a probe interval, and by eight on a busy machine.
const timeout = 15 * time.Second

// Main is for TestMain.
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
