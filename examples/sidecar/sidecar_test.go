//go:build linux

package sidecar

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// TestSidecar: all participants of a room meet on the same server, whichever server they ask, even after a server was
// killed or stopped.
func TestSidecar(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes take seconds")
	}
	// Read these files so that go test does not use a cached result after they have changed.
	for _, file := range []string{"server.mjs", "agent.mjs", "server.py", "agent.py"} {
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range []server{{"node", "server.mjs"}, {"python3", "server.py"}} {
		if _, err := exec.LookPath(s.program); err != nil {
			t.Fatalf("%v; scripts/deps.sh installs it", err)
		}
		t.Run(s.program, func(t *testing.T) { testServer(t, s, secret) })
	}
}

func testServer(t *testing.T, s server, secret string) {
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		redis := redistest.Start(t)
		f := newFleet(t, s, "--http-token-file", secret, "--http-token-reads", "--redis", redis.URL())
		homes := f.meet(t)
		f.move(t, homes)
		f.kill(t, homes)
		f.stop(t)
	})
	t.Run("Hash", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, s, "--http-token-file", secret)
		homes := f.meet(t)
		if s.program == "python3" {
			f.report(t, homes)
		}
		f.drain(t, homes)
		f.kill(t, homes)
		f.stop(t)
	})
	t.Run("Touch", func(t *testing.T) {
		t.Parallel()
		redis := redistest.Start(t)
		n := startNode(t, s, "a", "--http-token-file", secret, "--redis", redis.URL(), "--pin-ttl", "3s")
		f := &fleet{[]*node{n}}
		f.meet(t)
		f.keep(t)
	})
}

type fleet struct{ nodes []*node }

func newFleet(t *testing.T, s server, args ...string) *fleet {
	t.Helper()
	f := &fleet{[]*node{startNode(t, s, "a", args...)}}
	args = append(args, "--join", f.nodes[0].Gossip)
	f.nodes = append(f.nodes, startNode(t, s, "b", args...), startNode(t, s, "c", args...))
	agenttest.Agree(t, f.nodes[0].Agent, f.nodes[1].Agent, f.nodes[2].Agent)
	return f
}

const many = 40

// names returns room names that must be escaped in URLs, so that a missing escape makes the test fail.
func names() (rooms []string) {
	for i := range many {
		rooms = append(rooms, fmt.Sprintf("tenant/ö %d", i))
	}
	return rooms
}

// meet joins all rooms. It waits until, for each room, all servers redirect to the same server, and only that server
// serves the room. It returns the nodes by room.
func (f *fleet) meet(t *testing.T) (homes map[string]*node) {
	t.Helper()
	redistest.Eventually(t, "participants to meet", func() (err error) {
		homes, err = f.tryMeet()
		return err
	})
	return homes
}

func (f *fleet) tryMeet() (map[string]*node, error) {
	homes := make(map[string]*node)
	for i, room := range names() {
		for k := range f.nodes {
			asked := f.nodes[(i+k)%len(f.nodes)] // so that each server is the first to be asked for some rooms
			n, err := f.join(asked, room)
			if err != nil {
				return nil, err
			}
			if first := homes[room]; first != nil && first != n {
				return nil, fmt.Errorf("%s is on %s, but by %s's answer on %s", room, first.ID, asked.ID, n.ID)
			}
			homes[room] = n
		}
	}
	for _, n := range f.nodes {
		served, err := n.rooms()
		if err != nil {
			return nil, err
		}
		if want := of(homes, n); !slices.Equal(served, want) {
			return nil, fmt.Errorf("%s serves %q, want %q", n.ID, served, want)
		}
	}
	return homes, nil
}

// join asks a server for a room, follows the redirects, and returns the node that answered.
func (f *fleet) join(asked *node, room string) (*node, error) {
	var answer struct{ Room, Node string }
	by, err := get(asked.addr, "/join/"+url.PathEscape(room)+"?size=2", &answer)
	if err != nil {
		return nil, fmt.Errorf("join %s at %s: %w", room, asked.ID, err)
	}
	for _, n := range f.nodes {
		if n.addr == by.Host && n.ID == answer.Node && answer.Room == room {
			return n, nil
		}
	}
	return nil, fmt.Errorf("join %s at %s: %+v by %s", room, asked.ID, answer, by)
}

// rooms returns the rooms that the node's server serves, sorted.
func (n *node) rooms() ([]string, error) {
	var answer struct{ Rooms []string }
	_, err := get(n.addr, "/rooms", &answer)
	slices.Sort(answer.Rooms)
	return answer.Rooms, err
}

// get follows redirects, decodes the answer, and returns the URL that answered.
func get(addr, path string, into any) (*url.URL, error) {
	resp, err := http.Get("http://" + addr + path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	if err != nil {
		return nil, err
	}
	return resp.Request.URL, json.Unmarshal(body, into)
}

// of returns the rooms on n, sorted.
func of(homes map[string]*node, n *node) (rooms []string) {
	for _, room := range slices.Sorted(maps.Keys(homes)) {
		if homes[room] == n {
			rooms = append(rooms, room)
		}
	}
	return rooms
}

// move moves a room. The event must make its former server release it.
func (f *fleet) move(t *testing.T, homes map[string]*node) {
	t.Helper()
	from, to := f.nodes[0], f.nodes[1]
	room := of(homes, from)[0]
	if _, err := to.MoveRoom(t.Context(), room, to.ID); err != nil {
		t.Fatal(err)
	}
	homes[room] = to
	waitServes(t, from, of(homes, from))
	if now := f.meet(t); !maps.Equal(now, homes) {
		t.Errorf("after %s was moved to %s, rooms live on %v, want %v", room, to.ID, now, homes)
	}
}

// report waits until each server has reported the number of its participants as its load.
func (f *fleet) report(t *testing.T, homes map[string]*node) {
	t.Helper()
	redistest.Eventually(t, "the loads", func() error {
		m, err := f.nodes[0].Members(t.Context())
		if err != nil {
			return err
		}
		for i, n := range f.nodes {
			if got, want := m.Members[i].Load, int64(2*len(of(homes, n))); got != want {
				return fmt.Errorf("the load of %s is %d, want %d", n.ID, got, want)
			}
		}
		return nil
	})
}

// drain drains a node. The events must make its server release all rooms.
func (f *fleet) drain(t *testing.T, homes map[string]*node) {
	t.Helper()
	n := f.nodes[0]
	if _, err := n.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitServes(t, n, nil)
	if _, err := n.Undrain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := f.meet(t); !maps.Equal(now, homes) {
		t.Errorf("after %s was drained and undrained, rooms live on %v, want %v", n.ID, now, homes)
	}
}

func waitServes(t *testing.T, n *node, want []string) {
	t.Helper()
	redistest.Eventually(t, n.ID+" to let go", func() error {
		served, err := n.rooms()
		if err == nil && !slices.Equal(served, want) {
			err = fmt.Errorf("it serves %q, want %q", served, want)
		}
		return err
	})
}

// kill kills the last node without a leave message. The other nodes take over its rooms, and no other room moves.
func (f *fleet) kill(t *testing.T, homes map[string]*node) {
	t.Helper()
	dead := f.nodes[2]
	if len(of(homes, dead)) == 0 {
		t.Fatalf("%s had no rooms", dead.ID)
	}
	_ = dead.Kill()
	_ = dead.server.Kill()
	f.nodes = f.nodes[:2]
	for room, n := range f.meet(t) {
		if was := homes[room]; was != dead && was != n {
			t.Errorf("%s moved from %s, which lives, to %s", room, was.ID, n.ID)
		}
	}
}

// keep waits until the pin of an abandoned room has expired. Meanwhile, the pins of the served rooms must not change.
func (f *fleet) keep(t *testing.T) {
	t.Helper()
	a := f.nodes[0]
	before, err := a.Rooms(t.Context(), "", 0)
	if err != nil || len(before.Rooms) != many {
		t.Fatalf("%d rooms are pinned, %v", len(before.Rooms), err)
	}
	at, err := a.ResolveRoom(t.Context(), "abandoned", affinity.Demand{Size: 2})
	if err != nil || !at.Hosted {
		t.Fatalf("%+v, %v", at, err)
	}
	redistest.Eventually(t, "the pin to run out", func() error {
		r, err := a.Room(t.Context(), "abandoned", affinity.Demand{Size: 2})
		if err == nil && (r.Pinned || r.Source == affinity.Degraded) {
			err = fmt.Errorf("still pinned, or the store was not asked: %+v", r.RoomAssignment)
		}
		return err
	})
	after, err := a.Rooms(t.Context(), "", 0)
	if err != nil || !slices.Equal(after.Rooms, before.Rooms) {
		t.Errorf("the pins were %+v\nand are %+v, %v", before.Rooms, after.Rooms, err)
	}
}

// stop stops a server. It must release its rooms, and the remaining server must then have all rooms.
func (f *fleet) stop(t *testing.T) {
	t.Helper()
	gone := f.nodes[1]
	if err := gone.server.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-gone.server.Done()
	if code := gone.server.State().ExitCode(); code != 0 {
		t.Errorf("the server of %s exits with %d", gone.ID, code)
	}
	f.nodes = f.nodes[:1]
	f.meet(t)
	m, err := gone.Members(t.Context())
	if err != nil || m.Members[1].ID != "b" || m.Members[1].State != lease.Draining {
		t.Errorf("the agent of %s runs on and is drained, but says %+v, %v", gone.ID, m, err)
	}
}
