//go:build unix

package tour

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// walk is a tour that runs in the background.
type walk struct {
	*agentproc.Log
	ended chan error
	stop  context.CancelFunc
}

func startWalk(t *testing.T, o Options) walk {
	t.Helper()
	o.Exe = agenttest.Binary(t)
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	w := walk{new(agentproc.Log), make(chan error, 1), stop}
	o.Out = w
	go func() { w.ended <- Run(ctx, o) }()
	return w
}

// startDemo starts a tour as a user does, in a process without the race detector. With the race detector, the stand-in
// for Redis would be too slow for the agents on a starved machine.
func startDemo(t *testing.T, args ...string) walk {
	t.Helper()
	cmd := exec.Command(agenttest.Binary(t), append([]string{"demo"}, args...)...)
	cmd.Env = agentproc.Environ()
	t.Parallel()
	p := agenttest.Start(t, cmd)
	w := walk{p.Log, make(chan error, 1), func() { _ = p.Signal(os.Interrupt) }}
	go func() {
		<-p.Done()
		if p.State().Success() {
			w.ended <- nil
		} else {
			w.ended <- errors.New(p.State().String())
		}
	}()
	return w
}

// shows waits until the tour prints a text. It keeps waiting as long as the tour prints anything.
func (w walk) shows(t *testing.T, text string) {
	t.Helper()
	for seen := 0; !strings.Contains(w.String(), text); {
		redistest.Until(t, text, func() bool {
			if len(w.ended) > 0 && !strings.Contains(w.String(), text) {
				t.Fatalf("the tour has ended: %v\n%s", <-w.ended, w)
			}
			return len(w.String()) > seen
		})
		seen = len(w.String())
	}
}

// TestOnce runs the whole tour as a user sees it, with real processes and a real Redis. The output must not contain the
// password of Redis.
func TestOnce(t *testing.T) {
	redis := redistest.Start(t, "--requirepass", "open-sesame")
	redis.Do("SET", "roost:roost:{1}:r:lobby", "of another cluster")
	w := startDemo(t, "--once", "--seed", "7", "--redis", redis.URL())
	if err := <-w.ended; err != nil {
		t.Fatalf("%v\n%s", err, w)
	}
	for _, want := range []string{
		"5 agents start", "5,000 times", "node-6 joins", "is killed", "drains", "leaves",
		"1/6 = 16.7 %", "1/5 = 20.0 %", "People join 203 rooms", "A 50-person room overrides the hash",
		"the owner of its partition has no headroom", "expected: none", "re-pinned after", "begins again on another node",
		"All 59 checks held",
	} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("nothing is said of %q", want)
		}
	}
	for _, unwanted := range []string{"BROKEN", "\x1b", "sesame"} {
		if strings.Contains(w.String(), unwanted) {
			t.Errorf("the output has %q", unwanted)
		}
	}
	t.Log(w)
	for key := range strings.FieldsSeq(redis.Do("KEYS", "*:r:*")) {
		if key != "roost:roost:{1}:r:lobby" {
			t.Errorf("%s stays behind", key)
		}
	}
	if redis.Do("GET", "roost:roost:{1}:r:lobby") != "of another cluster" {
		t.Error("a pin of another cluster is gone")
	}
}

// TestNoRedis: the tour does not start if its Redis does not answer.
func TestNoRedis(t *testing.T) {
	w := startWalk(t, Options{Nodes: 2, Once: true, Redis: "redis://:open-sesame@127.0.0.1:1"})
	err := <-w.ended
	if err == nil || !strings.HasPrefix(err.Error(), "--redis: ") || !strings.Contains(err.Error(), "store") ||
		strings.Contains(fmt.Sprint(err, w), "sesame") {
		t.Errorf("%v\n%s", err, w)
	}
}

// TestStay runs the whole tour without a Redis. Without --once, the cluster then stays up at the given address until
// the process ends.
func TestStay(t *testing.T) {
	w := startDemo(t, "--nodes", "2", "--http", "127.0.0.1:0")
	w.shows(t, "roost room all-hands --addr ")
	if !strings.Contains(w.String(), "which this process imitates") {
		t.Error("the store is not mentioned")
	}
	addr := regexp.MustCompile(`Watch it at http://(\S+)/`).FindStringSubmatch(w.String())[1]
	client := &clusterhttp.Client{Base: addr, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	if m, err := client.Members(t.Context()); err != nil || len(m.Members) != 1 || m.Members[0].ID != "node-1" {
		t.Errorf("members %+v, %v", m, err)
	}
	if a, err := client.Room(t.Context(), bigRoom, affinity.Demand{Size: bigSize}); err != nil || !a.Pinned || a.Node.ID != "node-1" {
		t.Errorf("the big room %+v, %v", a, err)
	}
	useButtons(t, client)
	if first, err := strconv.Atoi(pids(w.String())[0]); err != nil || syscall.Kill(first, syscall.SIGKILL) != nil {
		t.Fatal("node-1 cannot be killed", err)
	}
	w.shows(t, "ended: signal: killed")
	w.stop()
	if err := <-w.ended; err != nil {
		t.Errorf("%v\n%s", err, w)
	}
	expectEnded(t, w.String(), 3)
}

// useButtons presses the buttons of a demo in which only node-1 is left.
func useButtons(t *testing.T, client *clusterhttp.Client) {
	t.Helper()
	press := func(status int, action, body string) string {
		t.Helper()
		r, err := client.HTTP.Post("http://"+client.Base+"/demo/"+action, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		answer, _ := io.ReadAll(r.Body)
		if r.StatusCode != status {
			t.Errorf("%s %s: %d %s", action, body, r.StatusCode, answer)
		}
		return string(answer)
	}
	seen := func(what string, ok func(clusterhttp.Members) bool) {
		t.Helper()
		redistest.Until(t, what, func() bool {
			m, err := client.Members(t.Context())
			return err == nil && ok(m)
		})
	}
	press(200, "add", "{}")
	seen("node-4 has joined", func(m clusterhttp.Members) bool { return len(m.Members) == 2 && m.Members[1].ID == "node-4" })
	redistest.Until(t, "the demo knows it", func() bool {
		return strings.Contains(press(200, "resume", `{"id":"node-1"}`), `{"id":"node-4","state":"running"}`)
	})
	press(200, "drain", `{"id":"node-4"}`)
	seen("it drains", func(m clusterhttp.Members) bool { return m.Members[1].State == lease.Draining })
	press(200, "undrain", `{"id":"node-4"}`)

	// Another agent answers while the first is paused.
	press(200, "pause", `{"id":"node-1"}`)
	seen("node-4 answers, and node-1 is gone", func(m clusterhttp.Members) bool { return m.Self == "node-4" && len(m.Members) == 1 })
	press(409, "drain", `{"id":"node-1"}`)
	press(200, "resume", `{"id":"node-1"}`)
	seen("node-1 is back", func(m clusterhttp.Members) bool { return m.Self == "node-1" && len(m.Members) == 2 })
	press(200, "pause", `{"id":"node-4"}`) // a paused process must end with the demo, too
	press(404, "kill", `{"id":"node-2"}`)
	press(409, "dance", `{"id":"node-1"}`)
}

// TestInterrupted presses Ctrl-C in the middle of the tour. The tour runs in this process, so the race detector checks
// its first half.
func TestInterrupted(t *testing.T) {
	w := startWalk(t, Options{Once: true, Nodes: 2, Redis: redistest.Start(t).URL()})
	w.shows(t, "is killed")
	w.stop()
	if err := <-w.ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("got %v", err)
	}
	if strings.Contains(w.String(), "BROKEN") {
		t.Errorf("an interruption breaks nothing:\n%s", w)
	}
	expectEnded(t, w.String(), 2)
}

// TestHangup: the demo shuts down cleanly when its terminal closes.
func TestHangup(t *testing.T) {
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP) // under nohup the demo would ignore it
	defer signal.Stop(handled)
	cmd := exec.Command(agenttest.Binary(t), "demo", "--once", "--nodes", "2")
	cmd.Env = agentproc.Environ()
	t.Parallel()
	demo := agenttest.Start(t, cmd)
	redistest.Until(t, "agents start", func() bool { return strings.Contains(demo.Log.String(), "agents start") })
	if err := demo.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, "it stops", func() bool { return strings.Contains(demo.Log.String(), "Stopping.") })
	_ = demo.Signal(syscall.SIGHUP) // a terminal that closes sends two signals; the demo may have ended by then
	<-demo.Done()
	if got := demo.State().ExitCode(); got != 130 || !strings.Contains(demo.Log.String(), "Stopping.") {
		t.Errorf("%s:\n%s", demo.State(), demo.Log)
	}
}

// TestAgentThatFails: if an agent does not start, the tour ends and shows the agent's log.
func TestAgentThatFails(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "roost")
	if err := os.WriteFile(exe, []byte("#!/bin/sh\necho the port is taken >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	out := new(agentproc.Log)
	err := Run(t.Context(), Options{Nodes: 2, Exe: exe, Once: true, Out: out})
	if err == nil || !strings.Contains(err.Error(), "node-1") || !strings.Contains(out.String(), "the port is taken") {
		t.Errorf("%v\n%s", err, out)
	}
	err = Run(t.Context(), Options{Nodes: 2, Exe: exe + "er", Once: true, Out: out})
	if err == nil || !strings.Contains(err.Error(), "start node-1") {
		t.Errorf("no binary: %v", err)
	}
}

// TestNoOrphans: if the tour itself is killed with kill -9, no agent keeps running.
func TestNoOrphans(t *testing.T) {
	exe := agenttest.Binary(t)
	t.Parallel()
	cmd := exec.Command(exe, "demo", "--once", "--nodes", "2")
	cmd.Env = agentproc.Environ()
	tour := agenttest.Start(t, cmd)
	redistest.Until(t, "rooms are placed", func() bool { return strings.Contains(tour.Log.String(), "rooms are placed") })
	for _, pid := range pids(tour.Log.String()) {
		if ended(t, pid) {
			t.Errorf("agent %s is not even running", pid)
		}
	}
	if err := tour.Kill(); err != nil {
		t.Fatal(err)
	}
	expectEnded(t, tour.Log.String(), 2)
}

// pids returns the process ids of the agents that a tour started first, from its output.
func pids(output string) []string {
	var found []string
	for _, m := range regexp.MustCompile(`pid (\d+), 127`).FindAllStringSubmatch(output, -1) {
		found = append(found, m[1])
	}
	return found
}

// expectEnded checks that the tour first started n agents, and that all of them have ended.
func expectEnded(t *testing.T, output string, n int) {
	t.Helper()
	started := pids(output)
	if len(started) != n {
		t.Fatalf("%d agents were started, want %d:\n%s", len(started), n, output)
	}
	for _, pid := range started {
		redistest.Until(t, fmt.Sprintf("agent %s ends", pid), func() bool { return ended(t, pid) })
	}
}

// ended reports whether a process has ended, even if its parent has not waited for it.
func ended(t *testing.T, pid string) bool {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if syscall.Kill(n, 0) == syscall.ESRCH {
		return true
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return err == nil && bytes.HasPrefix(state, []byte("Z"))
}
