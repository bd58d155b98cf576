//go:build linux

package browser

import (
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

// seat is an agent with a media server in Node.js next to it.
type seat struct {
	*agenttest.Agent
	server *agentproc.Process
	addr   string // of the server
}

// seats starts three seats with one Redis.
func seats(t *testing.T) (all []*seat) {
	t.Helper()
	inputs(t, "sidecar/server.mjs", "sidecar/agent.mjs", "sidecar/page.html")
	roost, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--redis", redistest.Start(t).URL(), "--heartbeat", "500ms", "--ttl", "3s", "--capacity", "1000", "--report-load"}
	var agents []*agenttest.Agent
	for _, id := range []string{"a", "b", "c"} {
		s := &seat{addr: fmt.Sprint("127.0.0.1:", redistest.FreePort(t))}
		s.Agent = agenttest.LaunchCommand(t, id, agentproc.Command(roost, id, append(args, "--api-addr", s.addr)...))
		s.Runs()
		if id == "a" {
			args = append(args, "--join", s.Gossip)
		}
		server := exec.Command("node", "../../../examples/sidecar/server.mjs")
		server.Env = append(agentproc.Environ(), "AGENT=http://"+s.Base, "LISTEN="+s.addr)
		s.server = agenttest.Start(t, server)
		all, agents = append(all, s), append(agents, s.Agent)
	}
	agenttest.Agree(t, agents...)
	return all
}

// caller is a page in a call, together with the servers that it knows.
type caller struct {
	*tab
	seats []*seat
	room  string
	moves int
}

// TestCall: a page is in a room on media servers in Node.js, and follows the room to other nodes with reconnect.mjs. If
// the room is moved or its node stops, the page follows without an interruption. If the node is killed, the page
// reconnects by itself.
func TestCall(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a browser")
	}
	c := &caller{seats: seats(t), room: "tenant/ö 1"}
	var servers []string
	for _, s := range c.seats {
		servers = append(servers, s.addr)
		redistest.Eventually(t, s.addr+" to listen", func() error { return exec.Command("curl", "-sf", "http://"+s.addr+"/").Run() })
	}
	query := url.Values{"room": {c.room}, "servers": {strings.Join(servers, ",")}}
	c.tab = open(t, "http://"+servers[0]+"/?"+query.Encode(), 800, 900)
	c.text("#status", "In the call.")
	eval[any](c.tab, record)
	alone := c.carries(t, "a room of one", func(load int64) bool { return load > 0 })
	home := c.home(t)
	second, err := http.Get("http://" + home.addr + "/call/" + url.PathEscape(c.room))
	if err != nil {
		t.Fatal(err)
	}
	c.carries(t, "a room of two", func(load int64) bool { return load > alone })
	_ = second.Body.Close()
	c.carries(t, "a room of one again", func(load int64) bool { return load == alone })

	target := c.seats[0]
	if target == home {
		target = c.seats[1]
	}
	c.follows(t, "a move", home, func() {
		if _, err := home.MoveRoom(t.Context(), c.room, target.ID); err != nil {
			t.Fatal(err)
		}
	})
	if now := c.home(t); now != target {
		t.Errorf("the room is at %s, moved to %s", now.ID, target.ID)
	}

	home = c.home(t)
	c.follows(t, "SIGTERM to the server", home, func() {
		if err := home.server.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	})
	<-home.server.Done()
	if code := home.server.State().ExitCode(); code != 0 {
		t.Errorf("the server of %s exits with %d", home.ID, code)
	}

	home = c.home(t)
	before := at(t, home, c.room).Epoch
	c.moved(t, "kill -9 of agent and server", home, func() {
		_ = home.server.Kill()
		_ = home.Kill()
	})
	if text := c.log(); !strings.Contains(text, home.ID+": lost") {
		t.Errorf("the page lost no stream: %s", text)
	}
	if now := at(t, c.home(t), c.room); now.Epoch <= before {
		t.Errorf("epoch %d follows %d", now.Epoch, before)
	}

	// A room without participants ends, unless its participants are counted elsewhere.
	last := c.home(t)
	kept, err := http.Get("http://" + last.addr + "/join/kept?size=1")
	if err != nil || kept.StatusCode != http.StatusOK {
		t.Fatalf("join: %v, %v", kept, err)
	}
	_ = kept.Body.Close()
	c.do(press("#leave"))
	redistest.Eventually(t, "the room to end", func() error {
		if r := at(t, last, c.room); r.Pinned {
			return fmt.Errorf("still pinned: %+v", r.RoomAssignment)
		}
		return nil
	})
	if r := at(t, last, "kept"); !r.Pinned {
		t.Error("the room of a join has ended")
	}
}

// record makes the page record the first tick and the end of each stream, except the first tick of a stream that is
// already open.
const record = `window.streams = [];
	const note = (what, stream) => { streams.push(what + " " + new URL(stream.url).host); };
	const close = EventSource.prototype.close;
	EventSource.prototype.close = function () {
		if (this.readyState !== EventSource.CLOSED) note("end", this);
		close.call(this);
	};
	window.EventSource = class extends EventSource {
		constructor(url) {
			super(url);
			this.addEventListener("tick", () => note("tick", this), { once: true });
		}
	}; 1`

// follows is like moved, but also checks that there is no interruption: the page gets a tick from the new node before
// the stream from the old node ends.
func (c *caller) follows(t *testing.T, what string, from *seat, move func()) {
	t.Helper()
	eval[any](c.tab, "streams.length = 0; 1")
	c.moved(t, what, from, move)
	want := []string{"tick " + c.home(t).addr, "end " + from.addr}
	if got := eval[[]string](c.tab, "streams"); !slices.Equal(got, want) {
		t.Errorf("%s: the page saw %q, want %q", what, got, want)
	}
}

// moved waits until the page has moved away from a node, and continues on another node.
func (c *caller) moved(t *testing.T, what string, from *seat, move func()) {
	t.Helper()
	eval[any](c.tab, `document.getElementById("log").replaceChildren(); document.getElementById("reset").click()`)
	c.moves++
	move()
	c.until("a move because of "+what, fmt.Sprintf(`document.getElementById("moves").textContent === "%d"`, c.moves))
	c.text("#status", "In the call.")
	if now := c.home(t); now == from {
		t.Errorf("after %s the page is still at %s", what, from.ID)
	}
	ticks := eval[string](c.tab, `document.getElementById("ticks").textContent`)
	c.until("further ticks", fmt.Sprintf(`Number(document.getElementById("ticks").textContent) > %s + 5`, ticks))
	t.Logf("%s: the longest gap between two ticks is %s ms", what, eval[string](c.tab, `document.getElementById("gap").textContent`))
}

// log returns what the page has logged about its streams since the latest move began.
func (c *caller) log() string { return eval[string](c.tab, `document.getElementById("log").innerText`) }

// home returns the node that sends ticks to the page.
func (c *caller) home(t *testing.T) *seat {
	t.Helper()
	id := eval[string](c.tab, `document.getElementById("node").textContent`)
	for _, s := range c.seats {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("the page is at %q", id)
	return nil
}

// at returns where a room lives, according to a node.
func at(t *testing.T, s *seat, room string) clusterhttp.RoomDetail {
	t.Helper()
	r, err := s.Room(t.Context(), room, affinity.Demand{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// carries waits until the node of the page reports the wanted load, which depends on the size of the room.
func (c *caller) carries(t *testing.T, what string, want func(load int64) bool) (load int64) {
	t.Helper()
	home := c.home(t)
	redistest.Eventually(t, what, func() error {
		m, err := home.Members(t.Context())
		for _, m := range m.Members {
			if string(m.ID) == home.ID {
				load = m.Load
			}
		}
		if err == nil && !want(load) {
			err = fmt.Errorf("%s has the load %d", home.ID, load)
		}
		return err
	})
	return load
}
