package tour

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
)

// mostNodes is how many nodes the demo runs at a time.
const mostNodes = 20

// stage is the answer to GET /demo.
type stage struct {
	Touring bool     `json:"touring"` // the tour has not ended, and takes no orders yet
	Most    int      `json:"most"`    // nodes at a time
	Nodes   []staged `json:"nodes"`
}

// staged is a node. State is the state of its process: starting, running or paused. The
// members know whether it drains.
type staged struct {
	ID    lease.NodeID `json:"id"`
	State string       `json:"state"`
}

// stay keeps the cluster up until ctx ends, carries out the orders of the dashboard's
// buttons, and prints which agents end.
func (t *tour) stay(ctx context.Context) {
	t.farewell()
	defer t.resumeAll() // a paused agent cannot leave
	happened := make(chan func())
	report := func(f func()) {
		select {
		case happened <- f:
		case <-ctx.Done():
		}
	}
	reportEnd := func(n *node) {
		select {
		case <-n.Done():
		case <-ctx.Done():
			return
		}
		report(func() {
			t.out.line("%s (pid %d) ended: %s", n.id, n.PID(), n.State())
			n.state = lease.Left
		})
	}
	reportStart := func(n *node) {
		at, err := n.Await(ctx)
		if err != nil {
			return // reportEnd reports it
		}
		report(func() {
			n.reach(at, t.web)
			t.out.line("%s joins (pid %d, %s)", n.id, n.PID(), n.HTTP)
		})
	}
	for _, n := range t.live() {
		go reportEnd(n)
	}
	t.front.staying.Store(true)
	for {
		t.front.aim(t.running())
		select {
		case f := <-happened:
			f()
		case o := <-t.front.orders:
			done := t.obey(ctx, o)
			if n, ok := done.answer.(*node); ok { // it was added
				go reportEnd(n)
				go reportStart(n)
				done.answer = t.stage()
			}
			o.done <- done
		case <-ctx.Done():
			return
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

// obey carries out an order. The answer is the stage, the node that was added, or a
// fault.
func (t *tour) obey(ctx context.Context, o order) result {
	var err error
	switch o.action {
	case "":
	case "add":
		return t.add()
	default:
		i := slices.IndexFunc(t.live(), func(n *node) bool { return n.id == o.ID })
		if i < 0 {
			return refuse(http.StatusNotFound, clusterhttp.CodeNotFound, fmt.Sprintf("there is no node %.80q", o.ID))
		}
		err = t.act(ctx, t.live()[i], o.action)
	}
	if err != nil {
		return refuse(http.StatusConflict, clusterhttp.CodeBadRequest, err.Error())
	}
	return result{http.StatusOK, t.stage()}
}

func (t *tour) add() result {
	seed := t.running()
	if seed == nil || len(t.live()) >= mostNodes {
		return refuse(http.StatusConflict, clusterhttp.CodeBadRequest, fmt.Sprintf("another node needs one to join by, and the demo runs at most %d", mostNodes))
	}
	n, err := t.spawn("--join", seed.Gossip)
	if err != nil {
		return refuse(http.StatusInternalServerError, clusterhttp.CodeInternal, err.Error())
	}
	return result{http.StatusOK, n}
}

// act changes a node.
func (t *tour) act(ctx context.Context, n *node, action string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // the page shows what takes longer
	defer cancel()
	switch {
	case action == "kill":
		n.state = lease.Left
		return n.Kill()
	case action == "pause":
		n.paused = true
		return n.Pause()
	case action == "resume":
		n.paused = false
		return n.Resume()
	case n.client == nil || n.paused:
		return fmt.Errorf("%s does not answer: it is starting or paused", n.id)
	case action == "drain":
		_, err := n.client.Drain(ctx)
		return err
	case action == "undrain":
		_, err := n.client.Undrain(ctx)
		return err
	}
	return fmt.Errorf("%.80q is no action", action)
}

func (t *tour) resumeAll() {
	for _, n := range t.live() {
		if n.paused {
			_ = n.Resume()
		}
	}
}

func refuse(status int, code, why string) result {
	return result{status, clusterhttp.Problem{Message: why, Code: code}}
}

// farewell suggests what to try after the tour.
func (t *tour) farewell() {
	live := t.live()
	last := live[len(live)-1]
	roost := t.o.Exe
	if own, err := os.Executable(); err == nil && own == roost {
		roost = os.Args[0] // as it was typed
	}
	t.out.line("")
	t.out.line("The %d agents stay up until Ctrl-C. Add, kill, pause and drain nodes at", len(live))
	t.out.line("")
	t.out.line("   http://%s/", t.front.addr)
	t.out.line("")
	t.out.line("or, in another terminal, try:")
	t.out.line("")
	for _, command := range []string{
		fmt.Sprintf("%s members --addr %s", roost, t.front.addr),
		fmt.Sprintf("%s place %s --addr %s", roost, t.rooms[0], t.front.addr),
		fmt.Sprintf("curl -s 'http://%s/v1/place?key=%s'", last.HTTP, t.rooms[0]),
		fmt.Sprintf("%s rooms --addr %s", roost, t.front.addr),
		fmt.Sprintf("%s room %s --addr %s", roost, bigRoom, t.front.addr),
		fmt.Sprintf("%s watch --addr %s", roost, t.front.addr),
		fmt.Sprintf("kill -9 %d    # %s; then look again", last.PID(), last.id),
	} {
		t.out.line("   %s", command)
	}
	t.out.line("")
}
