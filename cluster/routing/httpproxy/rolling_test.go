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

// load is requests through a proxy while servers come and go.
type load struct {
	*fleet
	t      *testing.T
	proxy  string
	client *http.Client
	f      *routing.Client

	// phase is odd while members come and go, and even while the agents and the routing client have one table.
	phase   atomic.Int64
	pending sync.Map // *atomic.Int64 by the phase: requests that began then, and have no answer
	killed  atomic.Pointer[killing]

	asked, settled, broken, repeated atomic.Int64
}

// killing is the kill of a server: ended when the proxy has no connection to it any more.
type killing struct {
	addr  string
	ended atomic.Pointer[time.Time]
}

// hit reports whether a request may have been in progress there.
func (k *killing) hit(began time.Time, answer string) bool {
	if k == nil || strings.Contains(answer, "refused") || !strings.Contains(answer, k.addr+":") {
		return false
	}
	ended := k.ended.Load()
	return ended == nil || began.Before(*ended)
}

// Five servers with agents inside are restarted one after the other, one of them by a kill, under 200
// requests a second through a proxy. No request fails that may be sent again, which leaves POSTs that the
// killed server had, no POST runs twice, and while the table is known each request goes to the owner of its
// key, and only there.
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

// stops ends a server as a deploy does: its partitions move first, then the proxy learns it, then requests
// that were sent by the table of before end. A server that closed an idle connection earlier could lose a
// POST that is on its way.
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

// owners returns who owns a room, by the routing client.
func (x *load) owners() map[string]bool {
	owners := make(map[string]bool)
	for i := range rooms {
		if owner, err := x.f.Place(fmt.Sprint(i)); err == nil {
			owners[string(owner.ID)] = true
		}
	}
	return owners
}

// kills kills a server that has POSTs.
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

// settles waits until n members own rooms, all of them and the routing client have one table, and 50 requests
// have run since.
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

// run sends 200 requests a second. If the machine is late, it catches up, with as many at a time as a busy
// one answers well before RetryTimeout is over.
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

// one sends a request, and judges what has become of it.
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

// ask sends a request whose body, but for a GET, is its name, and comes back. It returns who served it.
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

// WebSockets through the proxy stay where they are when a member joins, also those whose keys move: their
// server decides what becomes of them. The load of TestRollingServers would take its CPU: no t.Parallel.
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
	// Messages pass while the keys move, and for longer than a request without an answer would have.
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
