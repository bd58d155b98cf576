//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

const password = "correct-horse-battery"

// pair starts two agents that pin rooms in a Redis.
func pair(t *testing.T, redis *redistest.Server, args ...string) (a, b *proc) {
	t.Helper()
	args = append([]string{"--capacity", "1000", "--report-load", "--log-level", "debug"}, args...)
	a = agent(t, "a", append(args, "--redis-file", secretFile(t, redis.URL()+"\n"))...)
	b = agent(t, "b", append(args, "--redis", redis.URL(), "--join", a.Gossip)...)
	agree(t, a, b)
	return a, b
}

// roomCommands runs commands at an agent. Each command must succeed and print the text after its arrow.
func roomCommands(t *testing.T, p *proc, lines ...string) {
	t.Helper()
	for _, line := range lines {
		command, want, _ := strings.Cut(line, " -> ")
		if out := succeeds(t, append(strings.Fields(command), "--addr", p.Base)...); !strings.Contains(out, want) {
			t.Errorf("%s: %s\nwant %q", command, out, want)
		}
	}
}

// pinRoom resolves a room until it has a pin, because Redis can be slow on a busy machine.
func pinRoom(t *testing.T, p *proc, room string, size int) (at clusterhttp.RoomAssignment) {
	t.Helper()
	eventually(t, func() (err error) {
		at, err = p.ResolveRoom(t.Context(), room, affinity.Demand{Size: size})
		if err == nil && (at.Source == affinity.Degraded || at.Epoch == 0) {
			err = fmt.Errorf("%s says %+v", p.Base, at)
		}
		return err
	})
	return at
}

// TestDrainRooms checks what the command, the API, the metrics and Redis show while a node with rooms drains.
func TestDrainRooms(t *testing.T) {
	t.Parallel()
	const rooms = 400
	a, b := pair(t, redistest.Start(t), calm()...)
	for i := range rooms {
		pinRoom(t, a, fmt.Sprint("room-", i), 1)
	}
	succeeds(t, "drain", "--addr", b.Base, "--rooms", "--rate", "1000")
	succeeds(t, "undrain", "--addr", b.Base)
	code, _, problem := roost(t, "drain", "--addr", a.Base, "--rate", "5")
	if code != exitUsage || !strings.Contains(problem, "need --rooms") {
		t.Errorf("--rate alone: %d %q", code, problem)
	}
	pinned := func() (n float64) {
		eventually(t, func() error { // Redis can be slow on a busy machine
			list, err := b.Rooms(t.Context(), "a", rooms)
			n = float64(len(list.Rooms))
			return err
		})
		return n
	}
	const running, left, moved = "roost_rooms_evacuating", `roost_rooms_evacuation{state="left"}`, `roost_rooms_evacuation{state="moved"}`
	metrics := func(want map[string]float64) {
		t.Helper()
		got := values(t, metricsOf(t, a.Base))
		for name, value := range want {
			if n, ok := got[name]; !ok || n != value {
				t.Errorf("%s is %v, want %v", name, n, value)
			}
		}
	}
	if n := pinned(); n != rooms {
		t.Fatalf("%v rooms on a, want %d", n, rooms)
	}
	metrics(map[string]float64{running: 0, left: 0, moved: 0})

	if _, err := a.Evacuate(t.Context(), 100, 0); err != nil {
		t.Fatal(err)
	}
	partly := 0
	const abreast = 4            // the number of rooms that move at the same time
	eventually(t, func() error { // Redis has each move a moment before it is counted
		first := values(t, metricsOf(t, a.Base))
		stats, err := a.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		inRedis := pinned()
		last := values(t, metricsOf(t, a.Base))
		if first[running] == 1 && first[moved] > 0 {
			partly++
			if api := float64(stats.Evacuation.Left); first[left] < api || api < inRedis || inRedis < last[left]-abreast ||
				first[left]+first[moved] != rooms || stats.Evacuation.Left+stats.Evacuation.Moved != rooms {
				t.Errorf("left: %v by the metric, %+v by the API, %v in Redis, %v by the metric", first[left], stats.Evacuation, inRedis, last[left])
			}
		}
		if !stats.Evacuation.Over {
			return fmt.Errorf("%+v", stats.Evacuation)
		}
		return nil
	})
	if partly == 0 {
		t.Error("the test has not seen the evacuation run")
	}
	metrics(map[string]float64{running: 0, left: pinned(), moved: rooms, `roost_rooms_evacuation{state="failed"}`: 0})

	succeeds(t, "undrain", "--addr", a.Base)
	want := fmt.Sprintf("b is draining: 0 rooms are left, %d have moved, 0 have ended", rooms) + afterDrain + "\n"
	if out := succeeds(t, "drain", "--addr", b.Base, "--rooms", "--rate", "1000"); out != want {
		t.Errorf("%q, want %q", out, want)
	}
	if n := pinned(); n != rooms {
		t.Errorf("a has %v rooms, want all", n)
	}
}

// TestRooms: two agents that share a Redis agree on where each room lives, and the agent where it lives hosts it.
func TestRooms(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", password)
	a, b := pair(t, redis, calm()...)
	homes := make(map[lease.NodeID]string) // a room on each node
	for i := range 40 {
		room := fmt.Sprintf("room/%d", i)
		first, second := pinRoom(t, a, room, 3), pinRoom(t, b, room, 3)
		if second.Node.ID != first.Node.ID || second.Epoch != first.Epoch {
			t.Fatalf("a says %+v\nb says %+v", first, second)
		}
		if first.Hosted != (first.Node.ID == "a") || second.Hosted != (second.Node.ID == "b") {
			t.Fatalf("hosted by a: %v, by b: %v; it lives on %s", first.Hosted, second.Hosted, first.Node.ID)
		}
		homes[first.Node.ID] = room
	}

	// A room moves away from its host. Then resolve at the former host names the other node.
	room := homes["a"]
	roomCommands(t, b, "room move "+room+" b -> "+room+" lives on b: moved on request\n")
	eventually(t, func() error {
		got, err := a.ResolveRoom(t.Context(), room, affinity.Demand{Size: 3})
		if err == nil && (got.Node.ID != "b" || got.Hosted) {
			err = fmt.Errorf("a says %+v", got)
		}
		return err
	})
	if got, err := b.ResolveRoom(t.Context(), room, affinity.Demand{Size: 3}); err != nil || !got.Hosted {
		t.Errorf("b says %+v, %v", got, err)
	}
	roomCommands(t, b,
		"room release "+room+" -> is no longer pinned",
		"room "+room+" --size 3 -> "+room+" is not pinned. With 3 participants it would go to a",
		"room resolve "+room+" -> "+room+" lives on a (partition ",
		"room show "+homes["b"]+" -> lives on b (partition ",
		"room relays "+homes["b"]+" -> relays of "+homes["b"]+", best first: a\n",
		"rooms --node b --limit 1 -> there are more rooms than these 1",
		"room resolve move -> move lives on ",
		"room show move -> move lives on ",
		"room reserve hall --units 100 --for 1h -> 100 units reserved for hall on ",
		"reservations -> hall  100 ",
		"room unreserve hall -> nothing is reserved for hall any more",
	)
	for command, want := range map[string]string{
		"room move nothing a":                    "the room is not pinned",
		"room move move nobody":                  "node accepts no rooms: nobody",
		"room release nothing":                   "the room is not pinned",
		"room unreserve nothing":                 "the room has no reservation",
		"room reserve all --units 5000 --for 1h": "no node has the capacity",
		"room resolve {17}":                      "room: invalid name",
		"room show *":                            "room: invalid name",
		"rooms --node b%20c":                     "node id",
		"room move move not-an:id*":              "node id",
	} {
		code, out, problem := roost(t, append(strings.Fields(command), "--addr", a.Base)...)
		if code != exitFailed || out != "" || !strings.Contains(problem, want) {
			t.Errorf("%s: %d %q %q", command, code, out, problem)
		}
	}
	hidden(t, a, b)
}

// TestRoomsOfTheLeaving: a node that leaves removes its heartbeat from Redis, so the other nodes need not wait until it
// expires.
func TestRoomsOfTheLeaving(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a, b := pair(t, redis, calm()...)
	signed := func() string { return redis.Do("ZRANGE", "roost:roost:lives", "0", "-1") }
	eventually(t, func() error {
		if s := signed(); !strings.Contains(s, "a|") || !strings.Contains(s, "b|") {
			return fmt.Errorf("signed: %q", s)
		}
		return nil
	})
	roomCommands(t, b, "leave -> b is leaving")
	b.Exits(0)
	if s := signed(); !strings.Contains(s, "a|") || strings.Contains(s, "b|") {
		t.Errorf("when b has left: %q", s)
	}
	a.Signal(syscall.SIGTERM)
	a.Exits(0)
	if s := signed(); strings.Contains(s, "a|") {
		t.Errorf("when a has left: %q", s)
	}
}

// TestRoomsWithoutRedis: agents start and answer without Redis. When Redis is back, they pin rooms.
func TestRoomsWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", password)
	redis.Kill()
	a, b := pair(t, redis, calm()...)
	a.Logs("Redis does not answer; starting without it")
	got, err := a.ResolveRoom(t.Context(), "room", affinity.Demand{Size: 2})
	if err != nil || got.Source != affinity.Degraded || got.Node.ID == "" {
		t.Errorf("%+v, %v", got, err)
	}
	var p *clusterhttp.Problem
	if _, err := a.Rooms(t.Context(), "", 0); !errors.As(err, &p) || p.Code != clusterhttp.CodeStore {
		t.Errorf("rooms: %v", err)
	}
	roomCommands(t, a, "room other -> probably lives on", "room other -> the store does not answer")
	redis.Restart()
	eventually(t, func() error {
		got, err := b.ResolveRoom(t.Context(), "room", affinity.Demand{Size: 2})
		if err == nil && got.Source == affinity.Degraded {
			err = errors.New("still degraded")
		}
		return err
	})
	a.Signal(syscall.SIGTERM)
	a.Exits(0, "leaving")
	hidden(t, a, b)
}

// TestRoomsWithoutStore: an agent without --redis says that it pins no rooms.
func TestRoomsWithoutStore(t *testing.T) {
	t.Parallel()
	p := agent(t, "a", append(calm(), "--pin-ttl", "5m")...)
	p.Logs(`--pin-ttl "5m" has no effect without --redis`)
	for _, command := range []string{"rooms", "room x", "room resolve x", "room relays x", "room move x a", "room release x"} {
		code, out, problem := roost(t, append(strings.Fields(command), "--addr", p.Base)...)
		if code != exitFailed || out != "" || !strings.Contains(problem, "started without --redis") {
			t.Errorf("%s: %d %q %q", command, code, out, problem)
		}
	}
}

// hidden fails the test if a log at level debug or an answer shows the password.
func hidden(t *testing.T, agents ...*proc) {
	t.Helper()
	for _, p := range agents {
		if strings.Contains(p.Log.String(), password) {
			t.Errorf("the log of %s shows the password", p.ID)
		}
		if m, err := p.Members(t.Context()); err == nil {
			if b, _ := json.Marshal(m); strings.Contains(string(b), password) {
				t.Errorf("%s sends the password to its peers", p.ID)
			}
		}
	}
}

// TestSettingsOnRedis: gossip does not reach an agent that uses the same Redis but another number of partitions. The
// agent exits, and its error names the setting.
func TestSettingsOnRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := agent(t, "a", append(brisk(), "--redis", redis.URL())...)
	agree(t, a)
	other := append(brisk(), "--redis", redis.URL(), "--partitions", "64")
	for range 2 {
		launch(t, "x", other...).Exits(exitFailed, "agent failed", "settings differ from other nodes",
			"partitions is 64 here and 1024 on a")
	}
	if _, err := a.ResolveRoom(t.Context(), "room", affinity.Demand{Size: 2}); err != nil {
		t.Error(err)
	}
	a.Signal(syscall.SIGTERM)
	a.Exits(exitOK)
	agent(t, "x", other...)
}

// TestForgottenJoin: two agents share a Redis, but neither was told to join the other. In its own view, each owns
// everything. Each agent leaves the other agent's rooms where they are, and names the other agent in its log, its
// metrics and its doctor.
func TestForgottenJoin(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var agents []*proc
	for _, id := range []string{"a", "b"} {
		agents = append(agents, agent(t, id, "--heartbeat", "1s", "--ttl", "5s", "--redis", redis.URL(), "--capacity", "1000"))
		agree(t, agents[len(agents)-1])
	}
	a, b := agents[0], agents[1]
	pinRoom(t, a, "room", 2)
	at, err := b.ResolveRoom(t.Context(), "room", affinity.Demand{Size: 2})
	if err == nil && at.Source != affinity.Degraded && at.Node.ID != "a" {
		t.Errorf("b gives the room of a another home: %+v", at)
	}
	eventually(t, func() error {
		_, _ = b.ResolveRoom(t.Context(), "room", affinity.Demand{Size: 2}) // Redis may have been too slow for the call above
		s, err := b.Stats(t.Context())
		if err == nil && !slices.Equal(s.Rooms.CutOff, []lease.NodeID{"a"}) {
			err = fmt.Errorf("cut off are %q", s.Rooms.CutOff)
		}
		return err
	})
	b.Logs("nodes of this store not reached by gossip")
	code, out, _ := roost(t, "doctor", "--over", "1ms", "--addr", b.Base)
	if code != exitBroken || !strings.Contains(out, "1 node with heartbeats in Redis, but out of reach of gossip: a") {
		t.Errorf("doctor: %d\n%s", code, out)
	}
	if n := values(t, metricsOf(t, b.Base))["roost_rooms_nodes_cut_off"]; n != 1 {
		t.Errorf("%v nodes cut off by the metric", n)
	}
	a.Signal(syscall.SIGTERM)
	a.Exits(exitOK)
	b.Logs("all nodes of this store reached again")
}

// TestOtherClusterOnRedis: two clusters with different keys use the same name and the same Redis by mistake. The second
// cluster places no rooms, and says why, until the first cluster is gone. The first cluster is not affected.
func TestOtherClusterOnRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var agents []*proc
	for _, id := range []string{"a", "x"} {
		_, key := newKey(t)
		agents = append(agents, agent(t, id, "--heartbeat", "1s", "--ttl", "5s", "--redis", redis.URL(), "--capacity", "1000", "--key-file", key))
		agree(t, agents[len(agents)-1])
	}
	a, x := agents[0], agents[1]
	x.Logs("settings differ between nodes; placing no rooms", "gossip key (by its fingerprint) is ",
		" on a; ", "if this is another cluster, give it another name")
	_, err := x.ResolveRoom(t.Context(), "room", affinity.Demand{Size: 2})
	if !errors.Is(err, affinity.ErrSettings) || !strings.Contains(err.Error(), "settings differ") {
		t.Errorf("the second cluster places a room: %v", err)
	}
	if s, err := x.Stats(t.Context()); err != nil || !strings.Contains(s.Rooms.Refused, "settings differ") {
		t.Errorf("%v, statistics of rooms: %+v", err, s.Rooms)
	}
	if _, err := a.ResolveRoom(t.Context(), "room", affinity.Demand{Size: 2}); err != nil {
		t.Error(err)
	}
	a.Signal(syscall.SIGTERM)
	a.Exits(exitOK)
	x.Logs("settings agree between nodes again")
}

// webSocket opens a WebSocket to a room through a proxy. The server first sends its name.
func webSocket(t *testing.T, proxy, room, server string) *websocket.Conn {
	t.Helper()
	conn, err := websocket.Dial("ws://"+proxy+"/rooms/"+room, "", "http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(agenttest.Timeout))
	name := make([]byte, 1)
	if _, err := io.ReadFull(conn, name); err != nil || server != "" && string(name) != server {
		t.Fatalf("%s is at %q, want %q; %v", room, name, server, err)
	}
	return conn
}

// TestProxyRooms: a proxy sends requests to the node to which a room is pinned. If the room moves, the proxy follows
// it, and closes only the WebSockets of that room. It keeps working while no agent answers. Without --rooms, it uses
// the table.
func TestProxyRooms(t *testing.T) {
	t.Parallel()
	app := func(name string) string {
		greet := websocket.Handler(func(conn *websocket.Conn) {
			_, _ = conn.Write([]byte(name))
			_, _ = io.Copy(conn, conn)
		})
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				greet.ServeHTTP(w, r)
				return
			}
			_, _ = fmt.Fprint(w, name)
		}))
		t.Cleanup(srv.Close)
		return strings.TrimPrefix(srv.URL, "http://")
	}
	redis := redistest.Start(t)
	args := append(calm(), "--redis", redis.URL())
	apps := map[string]string{"a": app("a"), "b": app("b")}
	a := agent(t, "a", append(args, "--api-addr", apps["a"])...)
	b := agent(t, "b", append(args, "--api-addr", apps["b"], "--join", a.Gossip)...)
	agree(t, a, b)
	proxy := func(args ...string) string {
		cmd := exec.Command(agenttest.Binary(t),
			append([]string{"proxy", "--key-from", "path:2", "--listen", "127.0.0.1:0", "--agents", a.Addrs.HTTP + "," + b.Addrs.HTTP}, args...)...)
		cmd.Env = agentproc.Environ()
		p := agenttest.Start(t, cmd)
		var addr string
		eventually(t, func() error {
			if found := regexp.MustCompile(`msg="proxy running" listen=(\S+)`).FindStringSubmatch(p.Log.String()); found != nil {
				addr = found[1]
				return nil
			}
			return errors.New(p.Log.String())
		})
		return addr
	}
	pins, table := proxy("--rooms", "--close-moved"), proxy()
	answers := func(proxy, room, want string) {
		t.Helper()
		eventually(t, func() error {
			resp, err := http.Get("http://" + proxy + "/rooms/" + room)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			if err == nil && (resp.StatusCode != http.StatusOK || want != "" && string(body) != want) {
				err = fmt.Errorf("%s answers %s %q, want %q", room, resp.Status, body, want)
			}
			return err
		})
	}
	placed, err := a.Place(t.Context(), "standup")
	if err != nil {
		t.Fatal(err)
	}
	owner, other := string(placed.Owner.ID), "a"
	if owner == "a" {
		other = "b"
	}
	pinRoom(t, a, "standup", 2)
	if _, err := a.MoveRoom(t.Context(), "standup", other); err != nil {
		t.Fatal(err)
	}
	answers(pins, "standup", other)
	answers(table, "standup", owner)
	if _, err := a.MoveRoom(t.Context(), "standup", owner); err != nil {
		t.Fatal(err)
	}
	answers(pins, "standup", owner)
	answers(pins, "new", func() string { at := pinRoom(t, b, "new", 2); return string(at.Node.ID) }())
	closes, keeps := webSocket(t, pins, "standup", owner), webSocket(t, pins, "new", "")
	if _, err := b.MoveRoom(t.Context(), "standup", other); err != nil {
		t.Fatal(err)
	}
	if _, err := closes.Read(make([]byte, 1)); !errors.Is(err, io.EOF) { // a close frame
		t.Errorf("the WebSocket of a room that has moved: %v", err)
	}
	_ = webSocket(t, pins, "standup", other)
	answers(pins, "standup", other)
	hosted := func() (n int) {
		for _, p := range []*proc{a, b} {
			stats, err := p.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			n += stats.Rooms.Hosted
		}
		return n
	}
	before := hosted()
	for i := range 12 {
		answers(pins, fmt.Sprint("probe-", i), "")
	}
	if n := hosted(); n > before {
		t.Errorf("requests through the proxy made agents host %d rooms", n-before)
	}
	for _, p := range []*proc{a, b} { // no agent answers: the room stays
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	answers(pins, "standup", other)
	resp, err := http.Get("http://" + pins + "/rooms/unknown")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a room that the proxy does not know, without an agent: %s", resp.Status)
	}

	for range 2 {
		if _, err := keeps.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if _, err := keeps.Read(make([]byte, 1)); err != nil {
			t.Errorf("the WebSocket of a room that has not moved: %v", err)
		}
	}

	// The restarted agents have no store, so they choose a node by the hash. The proxy still knows where the room is,
	// until that node is gone.
	redis.Kill()
	again := func(id string, of *proc, join ...string) *proc {
		return agent(t, id, append(append(args, "--api-addr", apps[id], "--http", of.Addrs.HTTP, "--bind", of.Gossip), join...)...)
	}
	of := map[string]*proc{"a": a, "b": b}
	stays := again(owner, of[owner])
	goes := again(other, of[other], "--join", stays.Gossip)
	agree(t, stays, goes)
	for _, p := range []*proc{stays, goes} {
		eventually(t, func() error {
			at, err := p.ResolveRoom(t.Context(), "standup", affinity.Demand{})
			if err != nil || at.Source != affinity.Degraded || string(at.Node.ID) != owner {
				return fmt.Errorf("%s says %+v, want a guess: %w", p.Base, at, err)
			}
			return nil
		})
	}
	for range 2 { // the proxy must not remember a guess
		answers(pins, "standup", other)
		answers(pins, "unknown", "")
	}
	if err := goes.Kill(); err != nil {
		t.Fatal(err)
	}
	answers(pins, "standup", owner)
}
