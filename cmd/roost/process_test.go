package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

const timeout = agenttest.Timeout

func TestMain(m *testing.M) { agenttest.Main(m) }

type proc = agenttest.Agent

// These are short names for what most tests here use.
var (
	launch = agenttest.Launch
	agent  = agenttest.Run
	agree  = agenttest.Agree
)

// succeeds runs a command and returns its output.
func succeeds(t *testing.T, args ...string) string {
	t.Helper()
	code, out, problem := roost(t, args...)
	if code != exitOK || problem != "" {
		t.Fatalf("roost %v: %d %q", args, code, problem)
	}
	return out
}

// secretFile writes a file for one test that only its owner can read, and returns its path.
func secretFile(t *testing.T, content string) string {
	t.Helper()
	return replaceFile(t, filepath.Join(t.TempDir(), "file"), content)
}

// replaceFile atomically replaces a file. Only its owner can read the new file.
func replaceFile(t *testing.T, path, content string) string {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", []byte(content), 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	return path
}

// eventually waits until f returns nil.
func eventually(tb testing.TB, f func() error) {
	tb.Helper()
	redistest.Eventually(tb, "the condition", f)
}
