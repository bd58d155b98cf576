// Package agentproc runs `roost agent` as a child process: it starts the process, waits until the agent runs,
// sends signals, ends it, and keeps its output. The demo and all tests of real processes use it. Package
// agenttest has what only tests need.
package agentproc

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
)

// Process is a child process.
type Process struct {
	Log   *Log           // standard error, and standard output unless the caller uses it
	Stdin io.WriteCloser // an agent with --exit-on-stdin-close ends when this is closed

	cmd     *exec.Cmd
	done    chan struct{} // closed at the end of the process
	running chan struct{} // closed when addrs is set
	addrs   Addrs
}

// Addrs are the addresses that an agent logs when it runs.
type Addrs struct {
	Gossip string
	HTTP   string // host:port, or "off"
}

// Command returns the command that runs an agent with the binary exe. The agent ends when its standard input
// closes, so that it does not outlive its parent, except while it is paused.
func Command(exe, id string, args ...string) *exec.Cmd {
	own := []string{"agent", "--id", id, "--log-format", "json", "--exit-on-stdin-close"}
	cmd := exec.Command(exe, append(own, args...)...) //nolint:gosec // the caller names the program
	cmd.Env = Environ()
	return cmd
}

// Environ returns the environment of this process without the settings of roost, which are not for children.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ROOST_") })
}

// Start starts cmd in its own process group, which the terminal's Ctrl-C does not reach, and does not wait
// for the agent. log receives the output. Nil means a new Log.
func Start(cmd *exec.Cmd, log *Log) (*Process, error) {
	if log == nil {
		log = new(Log)
	}
	p := &Process{Log: log, cmd: cmd, done: make(chan struct{}), running: make(chan struct{})}
	out := &output{process: p}
	cmd.Stderr = out
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	ownGroup(cmd)
	var err error
	if p.Stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // State has the result
		close(p.done)
	}()
	return p, nil
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed at the end of the process.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// State returns how the process ended, or nil before its end.
func (p *Process) State() *os.ProcessState {
	if !p.Ended() {
		return nil
	}
	return p.cmd.ProcessState
}

// Died returns the error of a process that was not asked to end.
func (p *Process) Died() error {
	return fmt.Errorf("pid %d ended by itself: %s", p.PID(), p.State())
}

// Await waits until the agent logs that it runs, and returns its addresses.
func (p *Process) Await(ctx context.Context) (Addrs, error) {
	select {
	case <-p.running:
		return p.addrs, nil
	case <-p.done:
		return Addrs{}, p.Died()
	case <-ctx.Done():
		return Addrs{}, fmt.Errorf("pid %d does not log that it runs: %w", p.PID(), context.Cause(ctx))
	}
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process without a leave message, like a crash, and waits for the end.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill pid %d: %w", p.PID(), err)
	}
	<-p.done
	return nil
}

// Stop sends SIGTERM and reports whether the process ended within grace. If it did not, Stop closes its
// standard input, and kills it a second later.
func (p *Process) Stop(grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return p.stop(ctx)
}

// stop is Stop with a context that ends the grace.
func (p *Process) stop(ctx context.Context) bool {
	err := p.Signal(syscall.SIGTERM)
	unable := err != nil && !errors.Is(err, os.ErrProcessDone) // this system has no signals
	if !unable && p.EndsBefore(ctx) {
		return true
	}
	_ = p.Stdin.Close()
	late, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if !p.EndsBefore(late) {
		_ = p.Kill()
	}
	return false
}

// EndsBefore waits for the end of the process, and reports whether it came before the end of ctx.
func (p *Process) EndsBefore(ctx context.Context) bool {
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
		return p.Ended()
	}
}

// StopAll stops processes at the same time. Their grace ends with ctx. It returns the processes for which
// SIGTERM was not enough.
func StopAll(ctx context.Context, processes []*Process) (forced []*Process) {
	willing := make([]bool, len(processes))
	var wait sync.WaitGroup
	for i, p := range processes {
		wait.Go(func() { willing[i] = p.stop(ctx) })
	}
	wait.Wait()
	for i, p := range processes {
		if !willing[i] {
			forced = append(forced, p)
		}
	}
	return forced
}

// output passes what the process prints to the log, and looks for the line that names
// the agent's addresses. exec writes from one goroutine.
type output struct {
	process *Process
	part    []byte // part of a line that has no end yet
}

func (o *output) Write(b []byte) (int, error) {
	o.part = append(o.part, b...)
	for {
		line, rest, ok := bytes.Cut(o.part, []byte("\n"))
		if !ok {
			break
		}
		o.process.read(line)
		o.part = rest
	}
	o.part = o.part[max(0, len(o.part)-maxLine):]
	return o.process.Log.Write(b)
}

func (p *Process) read(line []byte) {
	var l struct{ Msg, Gossip, HTTP string }
	if p.addrs == (Addrs{}) && json.Unmarshal(line, &l) == nil && l.Msg == "agent running" {
		p.addrs = Addrs{Gossip: l.Gossip, HTTP: l.HTTP}
		close(p.running)
	}
}
