package tour

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLaunch(t *testing.T) {
	t.Setenv("ROOST_JOIN", "192.0.2.1:7946")
	c := actor(t, "environment", "--http", "127.0.0.1:0")
	if _, err := c.await(t.Context()); err == nil {
		t.Error("an agent that ended counts as running")
	}
	lines := c.log.lines()
	if want := `["agent" "--id" "node-1" "--log-format" "json" "--exit-on-stdin-close" "--http" "127.0.0.1:0"]`; lines[0] != want {
		t.Errorf("arguments %s, want %s", lines[0], want)
	}
	env := lines[1]
	if strings.Contains(env, "ROOST_JOIN") || !strings.Contains(env, actVar) {
		t.Errorf("an agent must inherit the environment without the settings for agents; it has %s", env)
	}
	// Not among the arguments, which everybody can read.
	if !strings.Contains(env, `"ROOST_REDIS=redis://:secret@redis:1"`) {
		t.Errorf("an agent must be told of the Redis; it has %s", env)
	}
}

func TestAwait(t *testing.T) {
	c := actor(t, "polite")
	a, err := c.await(t.Context())
	if err != nil || a.Gossip != "127.0.0.1:1" || a.HTTP != "127.0.0.1:2" {
		t.Errorf("got %+v, %v", a, err)
	}
	if c.gone() {
		t.Error("it should still run")
	}
}

func TestAwaitOneThatFails(t *testing.T) {
	c := actor(t, "refuse")
	_, err := c.await(t.Context())
	var agent *agentError
	if !errors.As(err, &agent) || agent.child != c || !strings.Contains(err.Error(), "ended by itself: exit status 1") {
		t.Errorf("got %v", err)
	}
	if got := fmt.Sprint(c.log.lines()); !strings.Contains(got, "the port is taken") {
		t.Errorf("the log is lost: %s", got)
	}
}

func TestStop(t *testing.T) {
	polite, held, deaf := actor(t, "polite"), actor(t, "held"), actor(t, "deaf")
	all := []*child{polite, held, deaf}
	for _, c := range all {
		if _, err := c.await(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if forced := stopAll(all, time.Second); !slices.Equal(forced, all[1:]) {
		t.Errorf("asking was not enough for %d of three, want the two that ignore the signal", len(forced))
	}
	for _, c := range all {
		if !c.gone() {
			t.Fatalf("process %d still runs", c.pid())
		}
	}
	if !polite.cmd.ProcessState.Success() || !held.cmd.ProcessState.Success() {
		t.Errorf("killed although they do end: %s, %s", polite.cmd.ProcessState, held.cmd.ProcessState)
	}
	if deaf.cmd.ProcessState.Success() {
		t.Error("the one that never ends has ended by itself")
	}
	if forced := stopAll(all, time.Minute); len(forced) != 0 {
		t.Error("what had ended before was forced to")
	}
}

func TestChildEndsWithItsInput(t *testing.T) {
	c := actor(t, "held")
	if _, err := c.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = c.hold.Close()
	eventually(t, "the child ends when its input does", c.gone)
}

func TestLogOfAPanic(t *testing.T) {
	c := actor(t, "crash")
	<-c.done
	lines := c.log.lines()
	if len(lines) != tailLines || lines[0] != "panic: out of cheese" {
		t.Errorf("%d lines, the first is %q", len(lines), lines[0])
	}
}

func TestTail(t *testing.T) {
	log := &tail{running: make(chan address, 1)}
	text := strings.Repeat("x", 3*tailLineBytes) + "\n\n"
	for i := range 30 {
		text += fmt.Sprintf("line %d\n", i)
	}
	text += "no end"
	for b := range slices.Chunk([]byte(text), 7) { // lines come in any pieces
		if n, err := log.Write(b); n != len(b) || err != nil {
			t.Fatal(n, err)
		}
	}
	lines := log.lines()
	if len(lines) != tailLines+1 || lines[0] != "line 10" || lines[20] != "no end" {
		t.Errorf("%q", lines)
	}
	fresh := &tail{running: make(chan address, 1)}
	_, _ = fresh.Write([]byte(text[:2*tailLineBytes] + "\n"))
	if got := fresh.lines(); len(got) != 1 || len(got[0]) != tailLineBytes {
		t.Errorf("a long line was not cut: %d lines", len(got))
	}
	for range 2 { // an agent that says it twice must not block the writer
		_, _ = fresh.Write([]byte(`{"msg":"agent running","gossip":"a:1","http":"b:2"}` + "\n"))
	}
	if a := <-fresh.running; a.Gossip != "a:1" || a.HTTP != "b:2" {
		t.Errorf("%+v", a)
	}
}
