package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/lease"
)

// muffled is an agent with a pipe as standard error. The test reads it, or stops reading.
type muffled struct {
	clusterhttp.Client
	cmd    *exec.Cmd
	gossip string
	stderr *os.File
	lines  *bufio.Scanner
	ended  chan error
}

// muffle starts an agent, and reads its log until it runs.
func muffle(t *testing.T, args ...string) *muffled {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--bind", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "debug"}, args...)
	m := &muffled{cmd: logsTo(t, w, "b", args...), stderr: r, lines: bufio.NewScanner(r), ended: make(chan error, 1)}
	_ = w.Close()
	go func() { m.ended <- m.cmd.Wait() }()
	t.Cleanup(func() { _ = r.Close() })
	var line struct{ Msg, Gossip, HTTP string }
	m.reads(t, "agent running", &line)
	m.gossip, m.Base = line.Gossip, line.HTTP
	return m
}

// logsTo starts an agent that uses the given file as standard error.
func logsTo(t *testing.T, stderr *os.File, id string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := agentproc.Command(agenttest.Binary(t), id, args...)
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// reads reads the log up to and including a message.
func (m *muffled) reads(t *testing.T, msg string, to any) {
	t.Helper()
	_ = m.stderr.SetReadDeadline(time.Now().Add(timeout))
	for m.lines.Scan() {
		if strings.Contains(m.lines.Text(), `"msg":"`+msg+`"`) {
			if err := json.Unmarshal(m.lines.Bytes(), to); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("the log ends without %q: %v", msg, m.lines.Err())
}

// chatter makes an agent at --log-level debug log a line for each of n packets.
func chatter(t *testing.T, gossip string, n int) {
	t.Helper()
	conn, err := net.Dial("udp", gossip)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range n {
		_, _ = fmt.Fprintf(conn, "\xf4\x05roost\x08%cno message", 200)
		if i%10 == 0 {
			time.Sleep(time.Millisecond) // so that the socket's buffer does not overflow
		}
	}
}

// TestUnreadLog: an agent whose log nobody reads keeps its lease and answers. It drops log lines, logs as soon as it
// can how many it dropped, and exits in time.
func TestUnreadLog(t *testing.T) {
	t.Parallel()
	timings := []string{"--heartbeat", "500ms", "--ttl", "4s"}
	a := agent(t, "a", timings...)
	b := muffle(t, append(timings, "--join", a.Gossip)...)
	expired := func() uint64 {
		s, err := a.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Counts.Expired
	}
	eventually(t, func() error { return sees(t, a, "b") })
	before := expired()
	chatter(t, b.gossip, 10_000)
	for end := time.After(6 * time.Second); ; { // longer than a lease
		if err := sees(t, a, "b"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
			continue
		case <-end:
		}
		break
	}
	if expired() != before {
		t.Errorf("%d leases expired at a", expired()-before)
	}
	s, err := b.Stats(t.Context())
	if err != nil || s.Counts.LogDropped == 0 {
		t.Errorf("b answers %v, and counts %d lines", err, s.Counts.LogDropped)
	}
	var missing struct{ Lines uint64 }
	b.reads(t, "log lines dropped", &missing)
	if missing.Lines == 0 {
		t.Error("the log does not say how many lines are missing")
	}

	chatter(t, b.gossip, 10_000)
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-b.ended:
		if err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	case <-time.After(timeout):
		t.Error("it does not end with an unread log")
	}
}

// TestFullDisk: an agent that cannot write its log keeps running, and leaves cleanly.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	a := agent(t, "a", brisk()...)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd := logsTo(t, full, "c", append(brisk(), "--bind", "127.0.0.1:0", "--http", "off", "--join", a.Gossip)...)
	eventually(t, func() error { return sees(t, a, "c") })
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if sees(t, a, "c") == nil {
		t.Error("c did not leave")
	}
}

// TestLostLog: an agent continues when the reader of its log exits.
func TestLostLog(t *testing.T) {
	t.Parallel()
	a := agent(t, "a", brisk()...)
	b := muffle(t, append(brisk(), "--join", a.Gossip)...)
	eventually(t, func() error { return sees(t, a, "b") })
	_ = b.stderr.Close()
	chatter(t, b.gossip, 100)
	eventually(t, func() error {
		s, err := b.Stats(t.Context())
		if err == nil && s.Counts.LogDropped == 0 {
			err = errors.New("no line counts as dropped")
		}
		return err
	})
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	if err := <-b.ended; err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// TestProxyLostLog: a proxy also continues when the reader of its log exits.
func TestProxyLostLog(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(agenttest.Binary(t), "proxy", "--key-from", "path:1", "--listen", "127.0.0.1:0", "--agents", "127.0.0.1:1")
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = agentproc.Environ(), w, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() && !strings.Contains(lines.Text(), "proxy running") {
	}
	_ = r.Close()
	_ = cmd.Process.Signal(syscall.SIGTERM) // the proxy tries to log that it ends
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// sees returns an error unless an agent considers a node alive.
func sees(t *testing.T, a *proc, id lease.NodeID) error {
	t.Helper()
	m, err := a.Members(t.Context())
	if err == nil && !slices.ContainsFunc(m.Members, func(m clusterhttp.Member) bool { return m.ID == id }) {
		err = fmt.Errorf("%s does not see %s", a.ID, id)
	}
	return err
}
