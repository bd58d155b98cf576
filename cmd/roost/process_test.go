//go:build linux

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

// eventually waits until f returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	redistest.Eventually(t, "the condition", f)
}
