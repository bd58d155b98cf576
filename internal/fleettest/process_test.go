package fleettest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/lease"
)

// nodeEnv is the environment variable with the setup of a node. If it is set, a process of this test binary is a node.
const nodeEnv = "ROOST_FLEETTEST_NODE"

// Remote provides the calls of a node in another process.
type Remote struct {
	n      *node
	mu     sync.Mutex
	hosted map[string]*affinity.Hosting
}

// Batch contains the rooms of a call.
type Batch struct{ Rooms []string }

// Answer is the result of a call for one room.
type Answer struct {
	lease.Incarnation
	Epoch uint64 // 0 if not from the store
	Lost  bool
	Err   string
}

func (a *Answer) fail(err error) {
	if err != nil {
		a.Err = err.Error()
	}
}

// Status is the state of a node.
type Status struct {
	lease.Incarnation
	affinity.Stats
	Addr      string
	Members   int
	Loads     bool // of all members are known
	Converged bool
}

// Status returns the state of the node.
func (r *Remote) Status(_ struct{}, out *Status) error {
	s := r.n.agent.Snapshot()
	*out = Status{
		Incarnation: r.n.incarnation(), Stats: r.n.rooms.Stats(), Addr: r.n.agent.Addr(),
		Members: len(s.Members), Converged: s.Converged(), Loads: true,
	}
	for _, m := range s.Members {
		out.Loads = out.Loads && m.Load != lease.NoLoad
	}
	return nil
}

// Resolve resolves rooms.
func (r *Remote) Resolve(in Batch, out *[]Answer) error {
	*out = make([]Answer, len(in.Rooms))
	each(32, in.Rooms, func(i int, room string) {
		a, err := r.n.rooms.Resolve(context.Background(), room, affinity.Demand{Size: size})
		(*out)[i] = Answer{Incarnation: a.Incarnation, Epoch: a.Epoch}
		(*out)[i].fail(err)
	})
	return nil
}

// Host hosts rooms.
func (r *Remote) Host(in Batch, out *[]Answer) error {
	*out = make([]Answer, len(in.Rooms))
	each(32, in.Rooms, func(i int, room string) {
		h, err := r.n.rooms.Host(context.Background(), room, affinity.Demand{Size: size})
		(*out)[i].fail(err)
		if err != nil {
			return
		}
		(*out)[i].Incarnation, (*out)[i].Epoch = r.n.incarnation(), h.Epoch()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hosted[room] = h
	})
	return nil
}

// Hosted returns the state of hosted rooms. A room that was never hosted counts as lost.
func (r *Remote) Hosted(in Batch, out *[]Answer) error {
	*out = make([]Answer, len(in.Rooms))
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, room := range in.Rooms {
		h := r.hosted[room]
		if h == nil {
			(*out)[i].Lost = true
			continue
		}
		(*out)[i] = Answer{Epoch: h.Epoch(), Lost: lost(h)}
		(*out)[i].fail(h.Err())
	}
	return nil
}

// History returns the history of the node's rooms.
func (r *Remote) History(_ struct{}, out *[]cluster.Event) error {
	*out = r.n.rooms.History()
	return nil
}

// serveNode runs a node until its parent process ends.
func serveNode(text string) {
	var s setup
	err := json.Unmarshal([]byte(text), &s)
	var n *node
	if err == nil {
		n, err = startNode(context.Background(), s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
	if err := rpc.Register(&Remote{n: n, hosted: make(map[string]*affinity.Hosting)}); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
	rpc.ServeConn(pipes{os.Stdin, os.Stdout})
	n.close()
}

// pipes form a connection from two files.
type pipes struct {
	io.ReadCloser
	w io.WriteCloser
}

func (p pipes) Write(b []byte) (int, error) { return p.w.Write(b) }

func (p pipes) Close() error { return errors.Join(p.ReadCloser.Close(), p.w.Close()) }

// process is a node in its own process.
type process struct {
	t           testing.TB
	id          lease.NodeID
	rpc         *rpc.Client
	incarnation lease.Incarnation
	addr        string
	*agentproc.Process
}

func startProcess(tb testing.TB, s setup) *process {
	tb.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		tb.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), nodeEnv+"="+string(text))
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	child := agenttest.Start(tb, cmd)
	p := &process{t: tb, id: lease.NodeID(s.ID), Process: child, rpc: rpc.NewClient(pipes{out, child.Stdin})}
	tb.Cleanup(p.kill)
	status := p.status()
	p.incarnation, p.addr = status.Incarnation, status.Addr
	return p
}

// kill is like kill -9. It returns after the process has ended.
func (p *process) kill() {
	_ = p.Kill()
	_ = p.rpc.Close()
}

func (p *process) call(method string, in, out any) {
	p.t.Helper()
	select {
	case done := <-p.rpc.Go("Remote."+method, in, out, make(chan *rpc.Call, 1)).Done:
		if done.Error != nil {
			p.t.Fatalf("%s of %s: %v", method, p.id, done.Error)
		}
	case <-time.After(timeout):
		p.t.Fatalf("%s of %s takes more than %v", method, p.id, timeout)
	}
}

func (p *process) status() (s Status) {
	p.t.Helper()
	p.call("Status", struct{}{}, &s)
	return s
}

func (p *process) history() (out []cluster.Event) {
	p.t.Helper()
	p.call("History", struct{}{}, &out)
	return out
}

// rooms calls Resolve, Host or Hosted.
func (p *process) rooms(method string, rooms []string) (out []Answer) {
	p.t.Helper()
	p.call(method, Batch{rooms}, &out)
	return out
}
