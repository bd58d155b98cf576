//go:build race

package sim_test

import (
	"os"
	"testing"
)

// TestMain runs nothing under the race detector, which would take six times as long: a
// simulation has one goroutine. make test runs the package without it as well.
func TestMain(*testing.M) { os.Exit(0) }
