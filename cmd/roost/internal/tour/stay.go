package tour

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
)

// mostNodes is the maximum number of nodes that the demo runs.
const mostNodes = 20

// stage is the response to GET /demo.
type stage struct {
	Touring bool     `json:"touring"` // the tour has not ended, so no actions are accepted yet
	Most    int      `json:"most"`    // maximum number of nodes
	Nodes   []staged `json:"nodes"`
}

// staged is a node. State is the state of its process: starting, running or paused. Whether the node drains
// is in the list of members, not here.
type staged struct {
	ID    lease.NodeID `json:"id"`
	State string       `json:"state"`
}

// stay keeps the cluster running until ctx ends. Meanwhile it carries out the actions of the dashboard's
// buttons, and prints a line when an agent joins or ends.
func (t *tour) stay(ctx context.Context) {
	t.suggestNext()
	var mu sync.Mutex // held while the nodes are used from here on
	locked := func(f func()) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			f()
			t.front.aim(t.running())
		}
	}
	follow := func(n *node) {
		if at, err := n.Await(ctx); err == nil && n.client == nil {
			locked(func() {
				n.reach(at, t)
				t.out.line("%s joins (pid %d, %s)", n.id, n.PID(), n.HTTP)
			})
		}
		select {
		case <-n.Done():
		case <-ctx.Done():
			return
		}
		locked(func() {
			t.out.line("%s (pid %d) ended: %s", n.id, n.PID(), n.State())
			n.state = lease.Left
		})
	}
	obey := func(action string, id lease.NodeID) (s stage, problem *clusterhttp.Problem) {
		problem = &clusterhttp.Problem{Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeClosed, Message: "the demo ends"}
		locked(func() {
			known := len(t.nodes)
			if problem = t.obey(ctx, action, id); problem == nil {
				s = t.stage()
			}
			for _, n := range t.nodes[known:] { // the action added this node
				go follow(n)
			}
		})
		return s, problem
	}
	for _, n := range t.live() {
		go follow(n)
	}
	locked(func() { t.front.obey.Store(&obey) })
	<-ctx.Done()
	mu.Lock()
	defer mu.Unlock()
	for _, n := range t.live() {
		if n.paused { // a paused agent cannot leave
			_ = n.Resume()
		}
	}
}

// running returns the first node that can answer, or nil.
func (t *tour) running() *node {
	for _, n := range t.live() {
		if n.client != nil && !n.paused && !n.Ended() {
			return n
		}
	}
	return nil
}

func (t *tour) stage() stage {
	s := stage{Most: mostNodes, Nodes: []staged{}}
	for _, n := range t.live() {
		state := "running"
		switch {
		case n.paused:
			state = "paused"
		case n.client == nil:
			state = "starting"
		}
		s.Nodes = append(s.Nodes, staged{n.id, state})
	}
	return s
}

// obey carries out the action of a button.
func (t *tour) obey(ctx context.Context, action string, id lease.NodeID) *clusterhttp.Problem {
	refuse := func(status int, code, format string, args ...any) *clusterhttp.Problem {
		return &clusterhttp.Problem{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
	}
	live, seed := t.live(), t.running()
	i := slices.IndexFunc(live, func(n *node) bool { return n.id == id })
	switch {
	case action == "": // the request only asks for the nodes
	case action == "add" && len(live) >= mostNodes:
		return refuse(http.StatusConflict, clusterhttp.CodeBadRequest, "the demo runs at most %d nodes: kill a node first", mostNodes)
	case action == "add" && seed == nil:
		return refuse(http.StatusConflict, clusterhttp.CodeBadRequest, "no node answers, so a new node cannot join: resume a node first")
	case action == "add":
		if _, err := t.spawn("--join", seed.Gossip); err != nil {
			return refuse(http.StatusInternalServerError, clusterhttp.CodeInternal, "%v", err)
		}
	case i < 0:
		return refuse(http.StatusNotFound, clusterhttp.CodeNotFound, "there is no node %.80q", id)
	default:
		if err := t.act(ctx, live[i], action); err != nil {
			return refuse(http.StatusConflict, clusterhttp.CodeBadRequest, "%v", err)
		}
	}
	return nil
}

func (t *tour) act(ctx context.Context, n *node, action string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // the page shows the effect of slower actions
	defer cancel()
	switch {
	case action == "kill":
		n.state = lease.Left
		return n.Kill()
	case action == "pause":
		err = n.Pause()
		n.paused = n.paused || err == nil
		return err
	case action == "resume":
		err = n.Resume()
		n.paused = n.paused && err != nil
		return err
	case n.client == nil || n.paused:
		return fmt.Errorf("%s does not answer: it is starting or paused", n.id)
	case action == "drain":
		_, err = n.client.Drain(ctx)
	case action == "undrain":
		_, err = n.client.Undrain(ctx)
	default:
		return fmt.Errorf("%.80q is no action", action)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return err
}

// suggestNext prints what to try after the tour.
func (t *tour) suggestNext() {
	live := t.live()
	last := live[len(live)-1]
	roost := cmp.Or(t.o.Exe, os.Args[0]) // as the user typed it
	t.out.line("")
	t.out.line("The %d agents run until Ctrl-C. You can add, kill, pause and drain nodes at", len(live))
	t.out.line("")
	t.out.line("   http://%s/", t.front.addr)
	t.out.line("")
	t.out.line("Or try these commands in another terminal:")
	t.out.line("")
	for _, command := range []string{
		fmt.Sprintf("%s members --addr %s", roost, t.front.addr),
		fmt.Sprintf("%s place %s --addr %s", roost, t.rooms[0], t.front.addr),
		fmt.Sprintf("curl -s 'http://%s/v1/place?key=%s'", last.HTTP, t.rooms[0]),
		fmt.Sprintf("%s rooms --addr %s", roost, t.front.addr),
		fmt.Sprintf("%s room %s --addr %s", roost, bigRoom, t.front.addr),
		fmt.Sprintf("%s watch --addr %s", roost, t.front.addr),
		fmt.Sprintf("kill -9 %d    # kills %s; then look again", last.PID(), last.id),
	} {
		t.out.line("   %s", command)
	}
	t.out.line("")
	t.out.line("The people of the tour do not join again. If you kill a node, other nodes get the")
	t.out.line("pins of its rooms, but host a room, and count it as load, only when somebody joins")
	t.out.line("it again.")
	t.out.line("")
}
