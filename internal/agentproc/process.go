// Package agentproc runs `roost agent` as a child process: it starts the process, waits until the agent is
// running, sends signals, stops the process, and keeps its output. The demo and all tests of real processes
// use this package. Package agenttest contains the parts that only tests need.
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
	Log   *Log           // standard error, and also standard output unless the caller redirects it
	Stdin io.WriteCloser // closing it stops an agent that has --exit-on-stdin-close

	cmd     *exec.Cmd
	done    chan struct{} // closed when the process has exited
	running chan struct{} // closed when addrs is set
	addrs   Addrs
}

// Addrs contains the addresses that an agent logs once it is running.
type Addrs struct {
	Gossip string
	HTTP   string // host:port, or "off"
}

// Command returns a command that runs an agent with the binary exe. The agent exits when its standard input
// is closed, so it does not outlive its parent. A paused agent does not exit until it is resumed.
func Command(exe, id string, args ...string) *exec.Cmd {
	own := []string{"agent", "--id", id, "--log-format", "json", "--exit-on-stdin-close"}
	cmd := exec.Command(exe, append(own, args...)...) //nolint:gosec // the caller names the program
	cmd.Env = Environ()
	return cmd
}

// Environ returns the environment of this process without the ROOST_ variables, which child processes must
// not inherit, and without GOGC, which tests set for themselves.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "ROOST_") || strings.HasPrefix(v, "GOGC=") })
}

// Start starts cmd and does not wait until the agent is running. On Unix, the process has its own process
// group, so Ctrl-C in the terminal does not reach it. The output goes to log, or to a new Log if log is nil.
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
		_ = cmd.Wait() // State returns the result
		close(p.done)
	}()
	return p, nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether the process has exited.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// State returns the exit state of the process, or nil if the process has not exited.
func (p *Process) State() *os.ProcessState {
	if !p.Ended() {
		return nil
	}
	return p.cmd.ProcessState
}

// Died returns an error if the process exited although it was not stopped.
func (p *Process) Died() error {
	return fmt.Errorf("pid %d ended by itself: %s", p.PID(), p.State())
}

// Await waits until the agent logs that it is running, and returns the agent's addresses.
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

// Signal sends s to the process.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill kills the process and waits until it has exited. As in a crash, the agent sends no leave message.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill pid %d: %w", p.PID(), err)
	}
	<-p.done
	return nil
}

// Stop sends SIGTERM and reports whether the process exited within grace. If not, Stop closes the standard
// input of the process, and kills the process if it is still running a second later.
func (p *Process) Stop(grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return p.stop(ctx)
}

// stop is Stop with a context that limits the grace period.
func (p *Process) stop(ctx context.Context) bool {
	err := p.Signal(syscall.SIGTERM)
	unable := err != nil && !errors.Is(err, os.ErrProcessDone) // this system cannot send SIGTERM
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

// EndsBefore waits until the process exits or ctx is done. It reports whether the process has exited.
func (p *Process) EndsBefore(ctx context.Context) bool {
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
		return p.Ended()
	}
}

// StopAll stops all processes concurrently, as [Process.Stop] does. Their grace period lasts until ctx is
// done. StopAll returns the processes that did not exit after SIGTERM.
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

// output copies the output of a process to its Log, and looks for the line that contains the agent's
// addresses. It needs no lock, because package exec writes from a single goroutine.
type output struct {
	process *Process
	part    []byte // beginning of a line that is still incomplete
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
