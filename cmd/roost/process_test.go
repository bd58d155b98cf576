//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/printed"
	"github.com/roost-cluster/roost/lease"
)

// patience bounds every wait. What these tests prove is never that something is
// quick, unless they say so: the machine may be busy with other things.
const patience = time.Minute

var buildDir string

// binary is the program as users get it, built when a test first needs it.
var binary = sync.OnceValues(func() (string, error) {
	var err error
	if buildDir, err = os.MkdirTemp("", "roost-test-"); err != nil {
		return "", err
	}
	path := filepath.Join(buildDir, "roost")
	if out, err := exec.Command("go", "build", "-race=false", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	os.Exit(code)
}

// proc is one `roost agent` in a process of its own.
type proc struct {
	t    *testing.T
	id   string
	cmd  *exec.Cmd
	hold io.Closer // its standard input
	log  *logBuffer
	done chan struct{} // closed when it has ended

	gossip, http string // once it runs
	clusterhttp.Client
}

// launch starts an agent and does not wait. Whatever becomes of this test, the
// agent ends: its standard input closes with the test's process, and should it be
// stopped then, the kernel kills it.
func launch(t *testing.T, id string, args ...string) *proc {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes take seconds")
	}
	exe, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return launchBy(t, id, &exec.Cmd{Path: exe, Args: append([]string{exe, "agent"}, args...)})
}

// launchBy is launch by a command that ends in "agent" and perhaps more arguments.
func launchBy(t *testing.T, id string, cmd *exec.Cmd) *proc {
	t.Helper()
	own := []string{"--id", id, "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "json", "--exit-on-stdin-close"}
	cmd.Args = slices.Insert(cmd.Args, 2, own...)
	p := &proc{t: t, id: id, cmd: cmd, log: new(logBuffer), done: make(chan struct{})}
	p.cmd.Stderr = p.log
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ROOST_") })
	if p.cmd.SysProcAttr == nil {
		p.cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	p.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	var err error
	if p.hold, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("log of %s:\n%s", id, p.log)
		}
	})
	return p
}

// agent starts an agent and waits until it says that it runs.
func agent(t *testing.T, id string, args ...string) *proc {
	t.Helper()
	p := launch(t, id, args...)
	p.running()
	return p
}

// running waits until the agent says where it is reached.
func (p *proc) running() {
	p.t.Helper()
	eventually(p.t, func() error {
		for line := range strings.Lines(p.log.String()) {
			var l struct{ Msg, Gossip, HTTP string }
			if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "agent running" {
				p.gossip, p.http = l.Gossip, l.HTTP
				p.Base = l.HTTP
				return nil
			}
		}
		select {
		case <-p.done:
			p.t.Fatalf("%s ended: %v\n%s", p.id, p.cmd.ProcessState, p.log)
		default:
		}
		return fmt.Errorf("%s does not run yet", p.id)
	})
}

func (p *proc) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	if s == syscall.SIGSTOP { // its threads may go on for a while
		eventually(p.t, p.stopped)
	}
}

// stopped returns nil once the process stands still.
func (p *proc) stopped() error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if os.IsNotExist(err) {
		return nil // nobody can tell
	}
	if _, after, ok := strings.Cut(string(stat), ") "); err == nil && (!ok || !strings.HasPrefix(after, "T")) {
		return fmt.Errorf("not stopped yet: %s", stat)
	}
	return err
}

// exits waits for the end of the process and checks its exit code. At the end its
// log has to speak of each of the given texts.
func (p *proc) exits(code int, says ...string) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%s still runs", p.id)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("%s exits with %d (%v), want %d", p.id, got, p.cmd.ProcessState, code)
	}
	p.says(says...)
}

// says waits until the log speaks of each of the texts.
func (p *proc) says(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		eventually(p.t, func() error {
			if !strings.Contains(p.log.text(), text) {
				return fmt.Errorf("%s does not say %q", p.id, text)
			}
			return nil
		})
	}
}

// state is the kernel's letter for the process: T if it is stopped.
func (p *proc) state() byte {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	return b[bytes.LastIndexByte(b, ')')+2]
}

// eventually waits until f returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	late := time.After(patience)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-late:
			t.Fatalf("after %v: %v", patience, err)
		case <-again.C:
		}
	}
}

// agree waits until the agents hold the same table, see exactly each other, and
// own each partition once, by what each says of itself.
func agree(t *testing.T, agents ...*proc) {
	t.Helper()
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var ids []lease.NodeID
		for _, p := range agents {
			ids = append(ids, lease.NodeID(p.id))
		}
		slices.Sort(ids)
		owned := 0
		first, err := agents[0].Partitions(ctx)
		if err != nil {
			return err
		}
		for _, p := range agents {
			m, err := p.Members(ctx)
			if err != nil {
				return err
			}
			var seen []lease.NodeID
			for _, n := range m.Members {
				seen = append(seen, n.ID)
			}
			if !slices.Equal(seen, ids) || !m.Converged || m.Digest != first.Digest {
				return fmt.Errorf("%s sees %v (converged: %v, table %s), want %v with table %s", p.id, seen, m.Converged, m.Digest, ids, first.Digest)
			}
			mine, err := p.Owned(ctx)
			if err != nil {
				return err
			}
			for _, part := range mine.Partitions {
				if owner := first.Owners[part]; string(owner) != p.id {
					return fmt.Errorf("%s owns partition %d, by %s's table it belongs to %s", p.id, part, agents[0].id, owner)
				}
			}
			owned += len(mine.Partitions)
		}
		if owned != first.Partitions {
			return fmt.Errorf("%d partitions of %d are owned", owned, first.Partitions)
		}
		return nil
	})
}

// logBuffer is what an agent has logged so far.
type logBuffer struct{ printed.Buffer }

// text returns the log without JSON's escapes.
func (l *logBuffer) text() string { return strings.ReplaceAll(l.String(), `\"`, `"`) }
