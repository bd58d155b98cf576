package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/fakeagent"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
)

// background runs a command until the test ends it.
type background struct {
	t            *testing.T
	out, problem *agentproc.Log
	code         chan int
	stop         context.CancelFunc
}

func inBackground(t *testing.T, env map[string]string, args ...string) *background {
	t.Helper()
	b := &background{t: t, out: new(agentproc.Log), problem: new(agentproc.Log), code: make(chan int, 1)}
	ctx, stop := context.WithCancel(t.Context())
	b.stop = stop
	t.Cleanup(stop)
	go func() {
		b.code <- run(ctx, args, func(name string) string { return env[name] }, nil, b.out, b.problem)
	}()
	return b
}

// ends ends the command.
func (b *background) ends() {
	b.t.Helper()
	b.stop()
	select {
	case code := <-b.code:
		if code != exitOK {
			b.t.Errorf("exits with %d: %s", code, b.problem)
		}
	case <-time.After(timeout):
		b.t.Fatal("does not end")
	}
}

// shows waits until the output contains the text.
func (b *background) shows(what fmt.Stringer, text string) {
	b.t.Helper()
	eventually(b.t, func() error {
		if !strings.Contains(what.String(), text) {
			return fmt.Errorf("no %q in %q (%q)", text, what, b.problem)
		}
		return nil
	})
}

// TestWatchAppends: without a terminal, the command prints only changes. Changes of ages and loads don't count. It
// mentions a missing agent once.
func TestWatchAppends(t *testing.T) {
	t.Parallel()
	f := fakeagent.New(t)
	calm := fakeagent.Healthy()["GET /v1/members"].(clusterhttp.Members)
	f.Set("GET /v1/members", func(n int) any {
		m := calm
		m.Members = append([]clusterhttp.Member{}, calm.Members...)
		m.Members[0].AgeMS, m.Members[0].Load, m.Members[0].ClockOffsetMS = int64(n), int64(n), int64(n)
		return m
	})
	asked := func(more int) {
		t.Helper()
		until := f.Times("GET /v1/members") + more
		eventually(t, func() error {
			if f.Times("GET /v1/members") < until {
				return errors.New("does not ask")
			}
			return nil
		})
	}
	b := inBackground(t, f.Env, "members", "--watch", "--every", "2ms")
	asked(5)
	if n := strings.Count(b.out.String(), "STATE"); n != 1 {
		t.Errorf("printed %d times although nothing changed:\n%s", n, b.out)
	}
	changed := calm
	changed.Members = append([]clusterhttp.Member{}, calm.Members...)
	changed.Members[2].State = lease.Draining
	f.Set("GET /v1/members", changed)
	b.shows(b.out, "draining")
	f.Set("GET /v1/members", clusterhttp.Problem{Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeClosed, Message: "it has left"})
	b.shows(b.problem, "roost: it has left\n")
	asked(5)
	f.Set("GET /v1/members", calm)
	b.shows(b.problem, "answers again\n")
	eventually(t, func() error {
		if n := strings.Count(b.out.String(), "STATE"); n != 3 {
			return fmt.Errorf("printed %d times, want 3", n)
		}
		return nil
	})
	b.ends()
	if n := strings.Count(b.problem.String(), "it has left"); n != 1 {
		t.Errorf("%d complaints that there is no answer", n)
	}
	if strings.Contains(b.out.String(), "\x1b") {
		t.Errorf("escape sequences where there is no terminal: %q", b.out)
	}
}

// TestWatchNews: after an event, the command asks the agent immediately.
func TestWatchNews(t *testing.T) {
	t.Parallel()
	for command, news := range map[string]any{"members": fakeagent.Batch(), "partitions": fakeagent.Batch(), "rooms": affinity.MovedBatch{}} {
		f := fakeagent.New(t)
		b := inBackground(t, f.Env, command, "--watch", "--every", "1h", "--output", "json")
		b.shows(b.out, "\n")
		m, p := fakeagent.Healthy()["GET /v1/members"].(clusterhttp.Members), fakeagent.Healthy()["GET /v1/partitions"].(clusterhttp.Partitions)
		m.Version, p.Version = 13, 13
		f.Set("GET /v1/members", m)
		f.Set("GET /v1/partitions", p)
		f.Set("GET /v1/rooms", clusterhttp.Rooms{Rooms: []clusterhttp.PinnedRoom{{Room: "new", Epoch: 13}}})
		f.Stream <- news
		b.shows(b.out, map[bool]string{true: `"epoch":13`, false: `"version":13`}[command == "rooms"])
		b.ends()
	}
}

// TestWatchComesBack: roost watch continues when the agent is back, and reports the gap once.
func TestWatchComesBack(t *testing.T) {
	t.Parallel()
	f := fakeagent.New(t)
	f.Env["ROOST_ADDR"] = "http://me:secret@" + f.Env["ROOST_ADDR"]
	b := inBackground(t, f.Env, "watch")
	f.Stream <- fakeagent.Batch()
	b.shows(b.out, "joined    node-d")
	f.Set("events", false)
	f.Stream <- nil // ends this stream
	b.shows(b.problem, "retrying\n")
	f.Set("events", true)
	later := fakeagent.Batch()
	later.Version = 99
	f.Stream <- later
	b.shows(b.out, "v99")
	b.ends()
	address := strings.Replace(f.Env["ROOST_ADDR"], "me:secret", "…", 1)
	want := "roost: the agent at " + address + " has stopped or is unreachable; retrying\n" +
		"roost: the agent at " + address + " answers again: the state at this time follows\n"
	if got := b.problem.String(); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
