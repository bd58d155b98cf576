package tour

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
)

// node is an agent as the tour sees it.
type node struct {
	*agentproc.Process
	agentproc.Addrs // once it runs
	id              lease.NodeID
	client          *clusterhttp.Client
	state           lease.State // as all members should see it
	paused          bool        // its process is stopped
	note            string      // on what happened to it
}

// live returns the nodes that should be members, in the order of their start.
func (t *tour) live() []*node {
	return slices.DeleteFunc(slices.Clone(t.nodes), func(n *node) bool { return n.state == lease.Left })
}

// each calls f for all nodes at once.
func each(nodes []*node, f func(i int, n *node) error) error {
	errs := make([]error, len(nodes))
	var wait sync.WaitGroup
	for i, n := range nodes {
		wait.Go(func() { errs[i] = f(i, n) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// pick returns a node for the next event: an active node with pinned rooms, but not the
// first node, by which others join.
func (t *tour) pick() *node {
	streams := streamsOf(t.seen[0].pins)
	active := slices.DeleteFunc(t.live()[1:], func(n *node) bool { return n.state != lease.Active })
	busy := slices.DeleteFunc(slices.Clone(active), func(n *node) bool { return streams[n.id] == 0 })
	if len(busy) > 0 {
		active = busy
	}
	return active[t.rng.IntN(len(active))]
}

// owners returns the nodes that should own partitions now.
func (t *tour) owners() []lease.NodeID {
	var ids []lease.NodeID
	for _, n := range t.live() {
		if n.state == lease.Active {
			ids = append(ids, n.id)
		}
	}
	return ids
}

// spawn starts one more agent. stop ends it.
func (t *tour) spawn(args ...string) (*node, error) {
	id := t.nextID()
	cmd := agentproc.Command(t.exe, string(id), append([]string{
		"--cluster", t.cluster, "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--capacity", strconv.Itoa(capacity), "--report-load",
	}, args...)...)
	// All users of this machine can read the arguments.
	cmd.Env = append(cmd.Env, "ROOST_REDIS="+t.redis)
	p, err := agentproc.Start(cmd, &agentproc.Log{Tail: 20})
	if err != nil {
		return nil, fmt.Errorf("tour: start %s: %w", id, err)
	}
	n := &node{Process: p, id: id, state: lease.Active}
	t.nodes = append(t.nodes, n)
	return n, nil
}

func (t *tour) nextID() lease.NodeID { return lease.NodeID(fmt.Sprintf("node-%d", len(t.nodes)+1)) }

// ready waits until the agent logs its addresses.
func (t *tour) ready(ctx context.Context, n *node) error {
	at, err := n.Await(ctx)
	n.reach(at, t.web)
	return n.problem(string(n.id), err)
}

// agentError is a failure that the log of an agent may explain.
type agentError struct {
	error
	node *node
}

func (e *agentError) Unwrap() error { return e.error }

// problem adds the agent to err, which is nil if what was tried succeeded.
func (n *node) problem(what string, err error) error {
	if err == nil {
		return nil
	}
	return &agentError{fmt.Errorf("tour: %s: %w", what, err), n}
}

// reach notes the addresses of the agent.
func (n *node) reach(at agentproc.Addrs, web *http.Client) {
	n.Addrs = at
	n.client = &clusterhttp.Client{Base: at.HTTP, HTTP: web}
}

// missing returns an error if a process ended that should run.
func (t *tour) missing() error {
	for _, n := range t.live() {
		if n.Ended() {
			return n.problem(string(n.id), n.Died())
		}
	}
	return nil
}

// ended checks that the process of a node ends well after it was asked to leave.
func (n *node) ended(ctx context.Context, asked error) check {
	c := check{what: fmt.Sprintf("the process of %s ended by itself, without an error", n.id)}
	late := time.NewTimer(stopTime)
	defer late.Stop()
	select {
	case <-n.Done():
		if !n.State().Success() {
			c.problem = n.State().String()
		}
	case <-late.C:
		c.problem = fmt.Sprintf("it still runs after %v", stopTime)
	case <-ctx.Done():
		c.problem = "interrupted"
	}
	if c.problem != "" && asked != nil {
		c.problem += fmt.Sprintf("; the request to leave: %v", asked)
	}
	return c
}

// stop ends all running agents. After Ctrl-C it is in a hurry: a node that has just
// crashed can delay the leave message of the others.
func (t *tour) stop(ctx context.Context) {
	running := make(map[*agentproc.Process]lease.NodeID)
	for _, n := range t.nodes {
		if !n.Ended() {
			running[n.Process] = n.id
		}
	}
	if !t.o.Once || ctx.Err() != nil { // otherwise the verdict is the last line
		t.out.line("Stopping.")
	}
	t.release(ctx)
	limit, cancel := grace(ctx)
	defer cancel()
	for _, p := range agentproc.StopAll(limit, slices.Collect(maps.Keys(running))) {
		if ctx.Err() == nil {
			t.out.line("%s did not end within %s.", running[p], whole(stopTime))
		}
	}
}

// grace returns a context that ends after stopTime, and soon after ctx.
func grace(ctx context.Context) (context.Context, context.CancelFunc) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	context.AfterFunc(ctx, func() { time.AfterFunc(hurryTime, cancel) })
	return limit, cancel
}
