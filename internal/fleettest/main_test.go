package fleettest

import (
	"flag"
	"os"
	"testing"

	"github.com/roost-cluster/roost/internal/leak"
)

// TestMain runs the tests, or a node in a process that startProcess has started.
func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(nodeEnv); ok {
		serveNode(text)
		return
	}
	// Parallel tests mostly wait, so run more of them than the default, which is one for each processor.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	leak.Main(m)
}
