package httpproxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/internal/redistest"
)

const rooms = 500

// load sends requests through a proxy while servers stop and start.
type load struct {
	*fleet
	t      *testing.T
	proxy  string
	client *http.Client
	f      *routing.Client

	// phase is odd while members stop and start, and even while the agents and the routing client have the same table.
	phase   atomic.Int64
	pending sync.Map // *atomic.Int64 by phase: requests that began in this phase and have no response yet
	killed  atomic.Pointer[killing]

	asked, settled, broken, repeated atomic.Int64
}

// killing records the kill of a server. ended is set when the proxy has no connections to the server anymore.
type killing struct {
	addr  string
	ended atomic.Pointer[time.Time]
}

// hit reports whether a request may have been in progress at the killed server.
func (k *killing) hit(began time.Time, answer string) bool {
	if k == nil || strings.Contains(answer, "refused") || !strings.Contains(answer, k.addr+":") {
		return false
	}
	ended := k.ended.Load()
	return ended == nil || began.Before(*ended)
}

// A proxy forwards 200 requests per second to five servers with embedded agents. The servers are restarted one after
// the other, and one of them is killed. Only POSTs in progress at the killed server fail, and no POST runs twice. While
// all tables agree, each request goes only to the owner of its key.
func TestRollingServers(t *testing.T) {
	t.Parallel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	x := &load{fleet: &fleet{}, t: t, client: client}
	x.proxy, x.f = x.behindProxy(t, 5)
	x.phase.Store(1)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := time.Now()
	var asking sync.WaitGroup
	asking.Go(func() { x.run(ctx) })
	x.settles(len(x.members))
	for i, m := range x.members {
		x.phase.Add(1)
		if i == 1 {
			x.kills(m)
		} else {
			x.stops(m)
		}
		x.settles(len(x.members) - 1)
		x.phase.Add(1)
		m.start()
		x.settles(len(x.members))
	}
	stop()
	asking.Wait()
	if x.broken.Load() == 0 {
		t.Error("no POST was in progress at the server that was killed")
	}
	t.Logf("%d requests, %.0f a second, %d of them POSTs that broke off with their server, %d rejected by servers and sent again, %d carried out twice",
		x.asked.Load(), float64(x.asked.Load())/time.Since(began).Seconds(), x.broken.Load(), x.rejected.Load(), x.repeated.Load())
}

// stops stops a server in the same way as a deploy. The server drains, the proxy learns of it, and requests that were
// sent with the old table finish. If the server closed idle connections earlier, a POST could be lost on its way.
func (x *load) stops(m *member) {
	x.t.Helper()
	release := m.hold()
	if err := m.agent.Drain(x.t.Context()); err != nil {
		x.t.Error(err)
	}
	redistest.Until(x.t, "no rooms of "+m.id, func() bool { return !x.owners()[m.id] })
	release()
	now := x.phase.Add(2)
	redistest.Until(x.t, "the end of requests by the old table", func() bool {
		for before := range now {
			if count(&x.pending, fmt.Sprint(before), 0) > 0 {
				return false
			}
		}
		return true
	})
	m.stop()
}

// owners returns which members own a room, according to the routing client.
func (x *load) owners() map[string]bool {
	owners := make(map[string]bool)
	for i := range rooms {
		if owner, err := x.f.Place(fmt.Sprint(i)); err == nil {
			owners[string(owner.ID)] = true
		}
	}
	return owners
}

// kills kills a server while POSTs are in progress there.
func (x *load) kills(m *member) {
	x.t.Helper()
	m.hold()
	k := &killing{addr: m.addr}
	x.killed.Store(k)
	m.kill()
	redistest.Until(x.t, "the end of all connections to the killed server", func() bool { return count(&x.conns, m.addr, 0) == 0 })
	ended := time.Now()
	k.ended.Store(&ended)
	m.gate.Store(nil)
}

// settles waits until n members own rooms, these members and the routing client have the same table, and 50 more
// requests have finished.
func (x *load) settles(n int) {
	x.t.Helper()
	redistest.Until(x.t, fmt.Sprint("one table with ", n, " members that own rooms"), func() bool {
		owners := x.owners()
		for _, m := range x.members {
			if owners[m.id] && (!m.agent.Converged() || m.agent.Snapshot().Digest() != x.f.Table().Digest()) {
				return false
			}
		}
		return len(owners) == n && len(x.f.Members()) == n
	})
	x.phase.Add(1)
	before := x.settled.Load()
	redistest.Until(x.t, "50 more requests", func() bool { return x.settled.Load() >= before+50 })
}

// run sends 200 requests per second. If the machine is slow, run catches up later. The number of concurrent requests is
// limited, so that even a busy machine answers all of them well before RetryTimeout.
func (x *load) run(ctx context.Context) {
	const atOnce = 100
	var wait errgroup.Group
	wait.SetLimit(atOnce)
	defer func() { _ = wait.Wait() }()
	for i, next := 0, time.Now(); ; i, next = i+1, next.Add(5*time.Millisecond) {
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return
		}
		wait.Go(func() error {
			x.one(i)
			return nil
		})
	}
}

// one sends a request and checks its result.
func (x *load) one(i int) {
	method, key, name := []string{http.MethodGet, http.MethodPut, http.MethodPost}[i%3], fmt.Sprint(i%rooms), fmt.Sprint(i)
	phase, began := x.phase.Load(), time.Now()
	count(&x.pending, fmt.Sprint(phase), 1)
	defer count(&x.pending, fmt.Sprint(phase), -1)
	status, by, answer, err := x.ask(method, x.proxy+"/rooms/"+key, name)
	x.asked.Add(1)
	runs, strays := count(&x.runs, name, 0), count(&x.strays, name, 0)
	x.repeated.Add(max(0, runs-1))
	post := method == http.MethodPost
	switch {
	case err != nil:
		x.t.Errorf("%s: %v", method, err)
	case status == http.StatusOK && runs >= 1 && (runs == 1 || !post):
	case status == http.StatusBadGateway && post && runs <= 1 && x.killed.Load().hit(began, answer):
		x.broken.Add(1)
	default:
		x.t.Errorf("%s: %d %q, carried out %d times", method, status, answer, runs)
	}
	owner, errPlace := x.f.Place(key)
	if err != nil || errPlace != nil || phase%2 != 0 || x.phase.Load() != phase {
		return
	}
	x.settled.Add(1)
	if by != string(owner.ID) || strays > 0 || runs != 1 {
		x.t.Errorf("%s for a key of %s, known to all: served by %q, rejected %d times before, carried out %d times",
			method, owner.ID, by, strays, runs)
	}
}

// ask sends a request and checks that its body comes back. The body is the name of the request, or empty for a GET. ask
// returns which server served the request.
func (x *load) ask(method, url, name string) (status int, by, answer string, _ error) {
	body := map[bool]string{true: "", false: name}[method == http.MethodGet]
	r, err := http.NewRequestWithContext(x.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", "", err
	}
	r.Header.Set("X-Request", name)
	resp, err := x.client.Do(r)
	if err != nil {
		return 0, "", "", err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode == http.StatusOK && string(got) != body {
		err = fmt.Errorf("the answer is %q", got)
	}
	return resp.StatusCode, resp.Header.Get("X-Served-By"), string(got), err
}

// When a member joins, WebSockets through the proxy stay open, even if their keys move, because their server decides
// when to close them. The test does not call t.Parallel, because TestRollingServers needs much CPU time.
func TestWebSocketsSurviveAJoin(t *testing.T) {
	const sockets = 60
	x := &fleet{}
	proxy, f := x.behindProxy(t, 3)
	open := make(map[string]*websocket.Conn)
	dial := func(key string) *websocket.Conn {
		t.Helper()
		conn, err := websocket.Dial(strings.Replace(proxy, "http", "ws", 1)+"/rooms/"+key, "", proxy)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	echo := func(when, key string, conn *websocket.Conn) {
		t.Helper()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		var got string
		if err := errors.Join(websocket.Message.Send(conn, key), websocket.Message.Receive(conn, &got)); err != nil || got != key {
			t.Errorf("%s: %s echoes %q: %v", when, key, got, err)
		}
	}
	before := make(map[string]string)
	for i := range sockets {
		key := fmt.Sprint("room-", i)
		open[key] = dial(key)
		echo("before", key, open[key])
		m, err := f.Place(key)
		if err != nil {
			t.Fatal(err)
		}
		before[key] = m.APIAddr
	}

	joins := &member{t: t, id: "joins", addr: "127.0.0.1:0", at: "127.0.0.1:0", fleet: x}
	x.members = append(x.members, joins)
	joins.start()
	moved := func() (keys int) {
		for key := range open {
			if m, err := f.Place(key); err == nil && m.APIAddr != before[key] {
				keys++
			}
		}
		return keys
	}
	// Messages pass while the keys move, and for longer than the proxy would wait for a response to a request.
	for deadline, since := time.Now().Add(time.Minute), (time.Time{}); since.IsZero() || time.Since(since) < 2*time.Second; {
		if since.IsZero() && moved() > 0 {
			since = time.Now()
		}
		if time.Now().After(deadline) {
			t.Fatal("no key has moved")
		}
		for key, conn := range open {
			echo("after the join", key, conn)
		}
	}
	for key := range open {
		if m, err := f.Place(key); err == nil && m.APIAddr == joins.addr {
			echo("a new one", key, dial(key))
		}
	}
	t.Logf("%d of %d keys moved", moved(), sockets)
}
