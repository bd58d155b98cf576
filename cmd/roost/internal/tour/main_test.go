package tour

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
	"go.uber.org/goleak"
)

// exeVar has the roost binary for a tour that this binary walks instead of running tests.
const exeVar = "TOUR_TEST_EXE"

func TestMain(m *testing.M) {
	if exe := os.Getenv(exeVar); exe != "" {
		fmt.Println(Run(context.Background(), Options{Exe: exe, Once: true, Out: os.Stdout}))
		return
	}
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
