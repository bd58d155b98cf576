package tour

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// child is an agent in a process of its own.
type child struct {
	id   lease.NodeID
	cmd  *exec.Cmd
	hold io.Closer // its standard input: it exits when this closes
	log  *tail
	done chan struct{} // closed when it has ended
}

// address is where a running agent is reached, as it logs it.
type address struct {
	Msg    string `json:"msg"`
	Gossip string `json:"gossip"`
	HTTP   string `json:"http"`
}

// launch starts `exe agent` as node id, with the URL of a Redis, which it is not
// told among its arguments: everybody on this machine can read those. launch does
// not wait until the agent runs.
func launch(exe string, id lease.NodeID, redis string, args ...string) (*child, error) {
	args = append([]string{"agent", "--id", string(id), "--log-format", "json", "--exit-on-stdin-close"}, args...)
	c := &child{id: id, cmd: exec.Command(exe, args...), done: make(chan struct{})}
	c.log = &tail{running: make(chan address, 1)}
	c.cmd.Stderr = c.log
	// Settings of the one who runs the demo are not meant for its agents.
	c.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ROOST_") })
	c.cmd.Env = append(c.cmd.Env, "ROOST_REDIS="+redis)
	// Ctrl-C is for the demo, which then stops its agents one and all.
	c.cmd.SysProcAttr = ownGroup()
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("tour: start %s: %w", id, err)
	}
	c.hold = stdin
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("tour: start %s: %w", id, err)
	}
	go func() {
		_ = c.cmd.Wait() // how it ended is in ProcessState
		close(c.done)
	}()
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// await returns where the agent is reached, as soon as it says so.
func (c *child) await(ctx context.Context) (address, error) {
	select {
	case a := <-c.log.running:
		return a, nil
	case <-c.done:
		return address{}, c.died()
	case <-ctx.Done():
		return address{}, fmt.Errorf("tour: %s does not say that it runs: %w", c.id, context.Cause(ctx))
	}
}

// gone reports whether the process has ended.
func (c *child) gone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// died describes the end of a child that was not asked to end.
func (c *child) died() error {
	return &agentError{c, fmt.Errorf("tour: %s (pid %d) ended by itself: %s", c.id, c.pid(), c.cmd.ProcessState)}
}

// kill ends the process as a crash does: it can say no farewell.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("tour: kill %s: %w", c.id, err)
	}
	<-c.done
	return nil
}

// stop asks the agent to leave and to end. If it has not done so in time, it is
// told to end at once, and killed if that does not help either. It reports
// whether the asking was enough.
func (c *child) stop(patience time.Duration) bool {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		patience = 0 // there are no signals on this system
	}
	if c.ends(patience) {
		return true
	}
	_ = c.hold.Close()
	if !c.ends(time.Second) {
		_ = c.kill()
	}
	return false
}

// ends waits until the process has ended, and reports whether it did so in time.
func (c *child) ends(patience time.Duration) bool {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-c.done:
		return true
	case <-late.C:
		return false
	}
}

// stopAll stops the children side by side and returns those for which asking was
// not enough.
func stopAll(children []*child, patience time.Duration) []*child {
	stubborn := make([]bool, len(children))
	var wait sync.WaitGroup
	for i, c := range children {
		wait.Go(func() { stubborn[i] = !c.stop(patience) })
	}
	wait.Wait()
	var forced []*child
	for i, c := range children {
		if stubborn[i] {
			forced = append(forced, c)
		}
	}
	return forced
}

// agentError is a failure that the log of an agent may explain.
type agentError struct {
	child *child
	err   error
}

func (e *agentError) Error() string { return e.err.Error() }
func (e *agentError) Unwrap() error { return e.err }

// How much is kept of what an agent logs.
const (
	tailLines     = 20
	tailLineBytes = 2 << 10
)

// tail keeps the last lines that are written to it, or the first ones of a
// panic, and looks for the one that says where the agent is reached.
type tail struct {
	running chan address

	mu    sync.Mutex
	kept  []string
	part  []byte // of a line that is not ended yet
	found bool
	panic bool
}

// Write takes a part of the log. It never fails and never blocks, or the agent
// would.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		t.part = append(t.part, line[:min(len(line), tailLineBytes-len(t.part))]...)
		if ended {
			t.end()
		}
		b = rest
	}
	return n, nil
}

func (t *tail) end() {
	line := bytes.TrimSpace(t.part)
	var a address
	if !t.found && json.Unmarshal(line, &a) == nil && a.Msg == "agent running" {
		t.found = true
		t.running <- a
	}
	if !t.panic && (bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: "))) {
		t.panic = true
		t.kept = nil
	}
	if len(line) > 0 && (!t.panic || len(t.kept) < tailLines) {
		t.kept = append(t.kept, string(line))
		t.kept = t.kept[max(0, len(t.kept)-tailLines):]
	}
	t.part = t.part[:0]
}

// lines returns what is kept, an unfinished last line included.
func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := slices.Clone(t.kept)
	if len(t.part) > 0 {
		lines = append(lines, string(t.part))
	}
	return lines
}
