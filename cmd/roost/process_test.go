package main

import (
	"testing"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

const patience = agenttest.Patience

func TestMain(m *testing.M) { agenttest.Main(m) }

type proc = agenttest.Agent

// Short names for what most tests here use.
var (
	launch = agenttest.Launch
	agent  = agenttest.Run
)

func agree(t *testing.T, agents ...*proc) {
	t.Helper()
	agenttest.Agree(t, agents...)
}

// succeeds runs a command and returns its output.
func succeeds(t *testing.T, args ...string) string {
	t.Helper()
	code, out, fault := roost(t, args...)
	if code != exitOK || fault != "" {
		t.Fatalf("roost %v: %d %q", args, code, fault)
	}
	return out
}

// eventually waits until f returns nil.
func eventually(tb testing.TB, f func() error) {
	tb.Helper()
	redistest.Eventually(tb, "the condition", f)
}
