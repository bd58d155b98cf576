package tour

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// What this binary plays when it is started with one of these, instead of
// running tests.
const (
	actVar = "TOUR_TEST_ACT"
	exeVar = "TOUR_TEST_EXE" // the roost binary, for a tour
)

func TestMain(m *testing.M) {
	switch act := os.Getenv(actVar); act {
	case "":
		goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
			_ = os.RemoveAll(buildDir) // does nothing if there is none
			os.Exit(code)
		}))
	case "tour":
		err := Run(context.Background(), Options{Exe: os.Getenv(exeVar), Once: true, Out: os.Stdout})
		fmt.Println(err)
	default:
		os.Exit(play(act))
	}
}

// play is an agent of some temper.
func play(act string) int {
	const running = `{"msg":"agent running","gossip":"127.0.0.1:1","http":"127.0.0.1:2"}`
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	switch act {
	case "refuse":
		fmt.Fprintln(os.Stderr, `{"msg":"agent failed","err":"the port is taken"}`)
		return 1
	case "crash":
		fmt.Fprintf(os.Stderr, "{\"msg\":\"before\"}\n%s\npanic: out of cheese\n%s", running, strings.Repeat("frame\n", 100))
		return 2
	case "polite":
		fmt.Fprintln(os.Stderr, running)
		<-term
	case "held": // ends only when its standard input does
		fmt.Fprintln(os.Stderr, running)
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "deaf":
		fmt.Fprintln(os.Stderr, running)
		select {}
	case "environment":
		fmt.Fprintf(os.Stderr, "%q\n%q\n", os.Args[1:], os.Environ())
	}
	return 0
}

// actor starts this binary as an agent of some temper.
func actor(t *testing.T, act string, args ...string) *child {
	t.Helper()
	t.Setenv(actVar, act)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else it takes a second to exit
	c, err := launch(self(t), "node-1", "redis://:secret@redis:1", args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.kill() })
	return c
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// binary returns the path of the roost that the tour is about.
func binary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs real agents for many seconds")
	}
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// build builds roost, once for all tests. TestMain removes it.
var build = sync.OnceValues(func() (string, error) {
	var err error
	if buildDir, err = os.MkdirTemp("", "roost-tour-"); err != nil {
		return "", err
	}
	path := filepath.Join(buildDir, "roost")
	out, err := exec.Command("go", "build", "-o", path, "github.com/roost-cluster/roost/cmd/roost").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

var buildDir string

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}
