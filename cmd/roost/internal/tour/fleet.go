package tour

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/survey"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
)

const (
	pollEvery = 50 * time.Millisecond
	stepTime  = 2 * time.Minute
	callTime  = 5 * time.Second  // for one API call
	stopTime  = 20 * time.Second // for rooms to be released, and for an agent to leave and exit
	hurryTime = 3 * time.Second  // as stopTime, but after Ctrl-C
)

// node is an agent of the tour.
type node struct {
	*agentproc.Process
	agentproc.Addrs // set once the agent runs
	id              lease.NodeID
	client          *clusterhttp.Client // nil until the agent runs
	state           lease.State         // as all members should see it
	paused          bool                // the process is stopped by SIGSTOP
	note            string              // what happened to the node
}

// agentError is a failure that the agent's log may explain.
type agentError struct {
	error
	node *node
}

func (e *agentError) Unwrap() error { return e.error }

// problem wraps err in an agentError that names the agent. If err is nil, problem returns nil.
func (n *node) problem(what string, err error) error {
	if err == nil {
		return nil
	}
	return &agentError{fmt.Errorf("tour: %s: %w", what, err), n}
}

// spawn starts another agent, which runs until stop is called.
func (t *tour) spawn(args ...string) (*node, error) {
	id := t.nextID()
	cmd := agentproc.Command(t.exe, string(id), append([]string{
		"--cluster", t.cluster, "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--capacity", strconv.Itoa(capacity), "--report-load",
	}, args...)...)
	cmd.Env = append(cmd.Env, "ROOST_REDIS="+t.redis) // not an argument, because every user of this machine can read arguments
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
	n.reach(at, t)
	return n.problem(string(n.id), err)
}

func (n *node) reach(at agentproc.Addrs, t *tour) {
	n.Addrs = at
	n.client = &clusterhttp.Client{Base: at.HTTP, HTTP: t.web}
}

// live returns the nodes that should be members, oldest first.
func (t *tour) live() []*node {
	return slices.DeleteFunc(slices.Clone(t.nodes), func(n *node) bool { return n.state == lease.Left })
}

// owners returns the nodes that should own partitions, sorted.
func (t *tour) owners() (ids []lease.NodeID) {
	for _, n := range t.live() {
		if n.state == lease.Active {
			ids = append(ids, n.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// pick returns a random node for the next event. If possible, it returns an active node with pinned rooms. It never
// returns the first node, because other nodes join through the first node.
func (t *tour) pick() *node {
	streams := streamsOf(t.seen[0].pins)
	active := slices.DeleteFunc(t.live()[1:], func(n *node) bool { return n.state != lease.Active })
	busy := slices.DeleteFunc(slices.Clone(active), func(n *node) bool { return streams[n.id] == 0 })
	if len(busy) > 0 {
		active = busy
	}
	return active[t.rng.IntN(len(active))]
}

// missing returns an error if the process of a live node has ended.
func (t *tour) missing() error {
	for _, n := range t.live() {
		if n.Ended() {
			return n.problem(string(n.id), n.Died())
		}
	}
	return nil
}

// poll calls look until it returns "", and returns the time since the given moment. look returns the progress
// to show, or "" when there is nothing left to wait for. poll fails when ctx ends or when the process of a
// live node ends.
func (t *tour) poll(ctx context.Context, since time.Time, look func() (progress string, err error)) (time.Duration, error) {
	defer t.out.waited()
	for {
		progress, err := look()
		took := time.Since(since)
		switch {
		case ctx.Err() != nil: // look was interrupted
			return took, context.Cause(ctx)
		case err != nil || progress == "":
			return took, err
		}
		if err := t.missing(); err != nil {
			return took, err
		}
		t.out.wait(progress, took)
		pause(ctx)
	}
}

// pollFor is like poll, but returns no error when the time limit is reached, because the checks that follow find out
// what is wrong.
func (t *tour) pollFor(
	ctx context.Context, limit time.Duration, since time.Time, look func(context.Context) (progress string, err error),
) (time.Duration, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	took, err := t.poll(limited, since, func() (string, error) { return look(limited) })
	if limited.Err() != nil {
		err = context.Cause(ctx)
	}
	return took, err
}

func pause(ctx context.Context) {
	select {
	case <-time.After(pollEvery):
	case <-ctx.Done():
	}
}

// agreed waits until every live agent sees exactly the live nodes as members, and until their common table
// assigns partitions to exactly the nodes that should own some. verb describes what the agents that agree
// have done, for the progress line.
func (t *tour) agreed(ctx context.Context, since time.Time, verb string) (time.Duration, error) {
	nodes := t.live()
	first := &session.Session{Client: nodes[0].client, Addr: nodes[0].HTTP, Timeout: callTime}
	behind, why := nodes[0], "no agent was asked"
	took, err := t.poll(ctx, since, func() (string, error) {
		// Read the table of the first agent before asking who has the same table. In the opposite order, the
		// first agent could replace its table between the two requests.
		calling, cancel := first.Bound(ctx)
		table, err := first.Partitions(calling)
		cancel()
		owners := slices.Compact(slices.Sorted(slices.Values(table.Owners)))
		agents, err2 := survey.Take(ctx, first, nil, nil)
		agreed := 0
		switch err := cmp.Or(err, err2); {
		case ctx.Err() != nil: // the requests failed because ctx ended, not because an agent is behind
			return "", nil
		case err != nil:
			behind, why = nodes[0], fmt.Sprintf("%s: %v", nodes[0].id, err)
		case !slices.Equal(owners, t.owners()):
			behind, why = nodes[0], fmt.Sprintf("by the table of %s partitions belong to %v, and not to %v", nodes[0].id, owners, t.owners())
		default:
			for _, n := range slices.Backward(nodes) {
				if lacks := t.lacks(n, agents); lacks != "" {
					behind, why = n, fmt.Sprintf("%s %s", n.id, lacks)
				} else if agreed++; agreed == len(nodes) {
					return "", nil
				}
			}
		}
		return fmt.Sprintf("%d of %d agents %s", agreed, len(nodes), verb), nil
	})
	if _, ended := errors.AsType[*agentError](err); ended {
		return took, err
	}
	return took, behind.problem("the agents do not agree: "+why, err)
}

// lacks returns why an agent does not agree with the other agents yet, or "" if it agrees. agents contains the answers
// of all agents.
func (t *tour) lacks(n *node, agents []survey.Agent) string {
	i := slices.IndexFunc(agents, func(a survey.Agent) bool { return a.ID == n.id })
	if i < 0 || agents[i].View == nil {
		return "does not answer"
	}
	view := agents[i].View
	for _, other := range t.nodes {
		switch sees := slices.Contains(view.Sees, other.id); {
		case sees && other.state == lease.Left:
			return fmt.Sprintf("still sees %s", other.id)
		case !sees && other.state != lease.Left:
			return fmt.Sprintf("does not see %s", other.id)
		}
	}
	if !view.InSync {
		return fmt.Sprintf("has a different table than %s", agents[0].ID)
	}
	return ""
}

// exits checks that the process of a node exits without an error after the node was asked to leave. asked is
// the error of that request.
func (n *node) exits(ctx context.Context, asked error) check {
	c := check{what: fmt.Sprintf("the process of %s exited by itself, without an error", n.id)}
	limit, cancel := context.WithTimeoutCause(ctx, stopTime, fmt.Errorf("it still runs after %v", stopTime))
	defer cancel()
	switch {
	case !n.EndsBefore(limit):
		c.problem = context.Cause(limit).Error()
	case !n.State().Success():
		c.problem = n.State().String()
	}
	if c.problem != "" && asked != nil {
		c.problem += fmt.Sprintf("; the request to leave: %v", asked)
	}
	return c
}

// stop ends all running agents. After Ctrl-C, it kills them sooner instead of waiting for their leave messages, which
// take longer if another node has crashed.
func (t *tour) stop(ctx context.Context) {
	var running []*agentproc.Process
	for _, n := range t.nodes {
		if !n.Ended() {
			running = append(running, n.Process)
		}
	}
	if !t.o.Once || ctx.Err() != nil { // otherwise, the verdict is the last line
		t.out.line("Stopping.")
	}
	t.release(ctx)
	limit, cancel := grace(ctx)
	defer cancel()
	forced := agentproc.StopAll(limit, running)
	for _, n := range t.nodes {
		if ctx.Err() == nil && slices.Contains(forced, n.Process) {
			t.out.line("%s did not end within %s.", n.id, whole(stopTime))
		}
	}
}

// grace returns a context that ends after stopTime, or hurryTime after ctx ends.
func grace(ctx context.Context) (context.Context, context.CancelFunc) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	context.AfterFunc(ctx, func() { time.AfterFunc(hurryTime, cancel) })
	return limit, cancel
}
