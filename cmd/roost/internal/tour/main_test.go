package tour

import (
	"errors"
	"os"
	"testing"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	agenttest.Overlap()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		agenttest.Remove()
		os.Exit(code)
	}))
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	redistest.Eventually(t, what, func() error {
		if !condition() {
			return errors.New("not yet")
		}
		return nil
	})
}
