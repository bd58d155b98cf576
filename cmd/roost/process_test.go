package main

import (
	"os"
	"path/filepath"
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
	agree  = agenttest.Agree
)

// succeeds runs a command and returns its output.
func succeeds(t *testing.T, args ...string) string {
	t.Helper()
	code, out, fault := roost(t, args...)
	if code != exitOK || fault != "" {
		t.Fatalf("roost %v: %d %q", args, code, fault)
	}
	return out
}

// secretFile returns the path of a file for one test that only its owner can read.
func secretFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// eventually waits until f returns nil.
func eventually(tb testing.TB, f func() error) {
	tb.Helper()
	redistest.Eventually(tb, "the condition", f)
}
