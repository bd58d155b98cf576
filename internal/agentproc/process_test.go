package agentproc

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// actVar is the environment variable with the name of an act. If it is set, this binary plays that act instead of
// running tests.
const actVar = "AGENTPROC_TEST_ACT"

func TestMain(m *testing.M) {
	if act := os.Getenv(actVar); act != "" {
		os.Exit(play(act))
	}
	os.Exit(m.Run())
}

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
	case "held": // ignores SIGTERM, and ends with its standard input
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

// actor starts this binary as an agent that plays an act.
func actor(t *testing.T, act string, args ...string) *Process {
	t.Helper()
	t.Setenv(actVar, act)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise the race detector delays the exit by a second
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(Command(exe, "node-1", args...), &Log{Tail: 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	return p
}

func TestCommand(t *testing.T) {
	t.Setenv("ROOST_JOIN", "192.0.2.1:7946")
	p := actor(t, "environment", "--http", "127.0.0.1:0")
	if _, err := p.Await(t.Context()); err == nil {
		t.Error("an agent that ended counts as running")
	}
	args, env, _ := strings.Cut(p.Log.String(), "\n")
	if want := `["agent" "--id" "node-1" "--log-format" "json" "--exit-on-stdin-close" "--http" "127.0.0.1:0"]`; args != want {
		t.Errorf("arguments %s, want %s", args, want)
	}
	if strings.Contains(env, "ROOST_JOIN") || !strings.Contains(env, actVar) {
		t.Errorf("the child must inherit the environment without settings of agents; it has %s", env)
	}
}

func TestAwait(t *testing.T) {
	p := actor(t, "polite")
	a, err := p.Await(t.Context())
	if err != nil || a.Gossip != "127.0.0.1:1" || a.HTTP != "127.0.0.1:2" || p.Ended() || p.State() != nil {
		t.Errorf("got %+v, %v; ended: %v, %v", a, err, p.Ended(), p.State())
	}
	p = actor(t, "refuse")
	if _, err := p.Await(t.Context()); err == nil || !strings.Contains(err.Error(), "ended by itself: exit status 1") {
		t.Errorf("an agent that fails: %v", err)
	}
	if !strings.Contains(p.Log.String(), "the port is taken") {
		t.Errorf("the log is lost: %s", p.Log)
	}
}

func TestStop(t *testing.T) {
	polite, held, deaf := actor(t, "polite"), actor(t, "held"), actor(t, "deaf")
	all := []*Process{polite, held, deaf}
	for _, p := range all {
		if _, err := p.Await(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if forced := StopAll(ctx, all); !slices.Equal(forced, all[1:]) {
		t.Errorf("SIGTERM was not enough for %d of three processes, want the two that ignore it", len(forced))
	}
	for p, success := range map[*Process]bool{polite: true, held: true, deaf: false} {
		if !p.Ended() || p.State().Success() != success {
			t.Errorf("process %d: %s, want success: %v", p.PID(), p.State(), success)
		}
	}
	if forced := StopAll(ctx, all); len(forced) != 0 {
		t.Error("StopAll forced processes that had ended")
	}
}

func TestLogOfAPanic(t *testing.T) {
	p := actor(t, "crash")
	<-p.Done()
	if got, want := p.Log.String(), "panic: out of cheese\n"+strings.Repeat("frame\n", 19); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLog writes the same text in pieces of different sizes.
func TestLog(t *testing.T) {
	text := strings.Repeat("x", 3*maxLine) + "\n\n"
	for i := range 30 {
		text += fmt.Sprintf("line %d\n", i)
	}
	text += "no end"
	_, tail, _ := strings.Cut(text, "line 9\n")
	for keep, want := range map[int]string{0: text, 20: tail} {
		l := &Log{Tail: keep}
		for b := range slices.Chunk([]byte(text), 7) {
			if n, err := l.Write(b); n != len(b) || err != nil {
				t.Fatal(n, err)
			}
		}
		if got := l.String(); got != want {
			t.Errorf("of %d lines: %q", keep, got)
		}
	}
	l := &Log{Tail: 2}
	_, _ = l.Write([]byte(text[:3*maxLine]))
	if got := len(l.String()); got != 2*maxLine {
		t.Errorf("%d bytes of an endless line are kept", got)
	}
}
