package fleettest

import (
	"flag"
	"os"
	"testing"

	"github.com/roost-cluster/roost/internal/leak"
)

// TestMain runs the tests, or in a process that startProcess has started, a node.
func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(nodeEnv); ok {
		serveNode(text)
		return
	}
	// Those that are parallel mostly wait. By default there are as many as processors.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	leak.Main(m)
}
