// Package leak fails a package's tests if they leave goroutines behind.
package leak

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is for how long goroutines may take to end after the last test.
// memberlist's probes outlive its Shutdown by up to a probe interval, times
// eight when the machine is busy.
const patience = 15 * time.Second

// Main is for TestMain.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := wait(patience); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func wait(patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		err := goleak.Find()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
