package tour

import (
	"os"
	"testing"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	agenttest.Overlap()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		agenttest.Remove()
		os.Exit(code)
	}))
}
