package httpproxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/follow"
	"github.com/roost-cluster/roost/follow/httpproxy"
)

// member is a server with an agent inside, and the API of the agent.
type member struct {
	t     *testing.T
	id    string
	agent *cluster.Agent
	api   *httptest.Server
	app   *http.Server
	addr  string // of app; the same after a restart
	ended sync.WaitGroup
	fleet *fleet
}

// fleet counts what all servers did.
type fleet struct {
	served, rejected atomic.Int64
	runs             sync.Map // *atomic.Int64 by the header X-Request: how often it was carried out
	members          []*member
}

// ran counts a run of a request, and returns how often it was carried out.
func (x *fleet) ran(request string, n int64) int64 {
	runs, _ := x.runs.LoadOrStore(request, new(atomic.Int64))
	return runs.(*atomic.Int64).Add(n) //nolint:forcetypeassert // nothing else is put there
}

func (m *member) start() {
	m.t.Helper()
	l, err := net.Listen("tcp", m.addr)
	if err != nil {
		m.t.Fatal(err)
	}
	m.addr = l.Addr().String()
	var join []string
	for _, other := range m.fleet.members {
		if other != m && other.agent != nil {
			join = append(join, other.agent.Addr())
		}
	}
	m.agent, err = cluster.Start(m.t.Context(), cluster.Config{
		ID: m.id, Bind: "127.0.0.1:0", APIAddr: m.addr, Join: join, Network: cluster.Local, LeaseTTL: 5 * time.Second, Partitions: 64, Log: quiet,
	})
	if err != nil {
		m.t.Fatal(err)
	}
	<-m.agent.Ready()
	agent := m.agent
	m.app = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key := strings.TrimPrefix(r.URL.Path, "/rooms/"); !agent.Arrived(key) {
			m.fleet.rejected.Add(1)
			http.Error(w, "not mine", http.StatusMisdirectedRequest)
			return
		}
		if r.Header.Get("Upgrade") != "" {
			websocket.Handler(func(conn *websocket.Conn) { _, _ = io.Copy(conn, conn) }).ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		m.fleet.served.Add(1)
		m.fleet.ran(r.Header.Get("X-Request"), 1)
		if r.Method != http.MethodGet { // some are in progress when a server is killed
			<-time.After(300 * time.Millisecond)
		}
		_, _ = w.Write(body)
	})}
	m.ended.Go(func() { _ = m.app.Serve(l) })
	m.api = httptest.NewServer(clusterhttp.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{Log: quiet})).Handler)
}

// stop ends the member as a deploy does: its partitions move first, then requests end.
func (m *member) stop() {
	m.t.Helper()
	if err := m.agent.Drain(m.t.Context()); err != nil {
		m.t.Error(err)
	}
	if err := m.app.Shutdown(m.t.Context()); err != nil {
		m.t.Error(err)
	}
	if err := m.agent.Leave(m.t.Context()); err != nil {
		m.t.Error(err)
	}
	m.api.CloseClientConnections()
	m.api.Close()
	m.ended.Wait()
}

// kill ends the member at once: open connections break, and nobody listens any more.
func (m *member) kill() {
	_ = m.app.Close()
	_ = m.agent.Close()
	m.api.CloseClientConnections()
	m.api.Close()
	m.ended.Wait()
}

// behindProxy starts members, and a proxy that follows the last three of them. It returns the URL of the proxy.
func (x *fleet) behindProxy(t *testing.T, members int) (url string, f *follow.Follower) {
	t.Helper()
	for i := range members {
		x.members = append(x.members, &member{t: t, id: fmt.Sprint("n", i), addr: "127.0.0.1:0", fleet: x})
	}
	var apis []string
	for _, m := range x.members {
		m.start()
		apis = append(apis, m.api.URL)
	}
	t.Cleanup(func() {
		for _, m := range x.members {
			m.kill()
		}
	})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	f, err := follow.Start(t.Context(), follow.Config{Agents: apis[members-3:], HTTP: &http.Client{Transport: transport}, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	<-f.Ready()
	p, err := httpproxy.New(httpproxy.Config{Place: httpproxy.Follower(f), Key: httpproxy.FromPath(2), Transport: transport, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	return srv.URL, f
}

// Five servers with agents inside are restarted one after the other, and one of them is killed, under
// 200 requests a second through a proxy. No request fails that may be sent again, no other one runs twice, and the only answers
// are those of owners (S7.2).
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	x := &fleet{}
	proxy, _ := x.behindProxy(t, 5)
	stop := make(chan struct{})
	var asking sync.WaitGroup
	var asked, broken, repeated atomic.Int64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	asking.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			asking.Go(func() {
				asked.Add(1)
				method := []string{http.MethodGet, http.MethodPut, http.MethodPost}[i%3]
				status, err := x.ask(t, client, method, fmt.Sprint(proxy, "/rooms/", i%500), fmt.Sprint(i))
				runs := x.ran(fmt.Sprint(i), 0)
				switch {
				case err == nil && status == http.StatusOK && (runs == 1 || runs > 1 && method != http.MethodPost):
				case err == nil && status == http.StatusBadGateway && method == http.MethodPost && runs <= 1:
					broken.Add(1)
				default:
					t.Errorf("%s: %d, %v, carried out %d times", method, status, err, runs)
				}
				repeated.Add(max(0, runs-1))
			})
		}
	})
	for i, m := range x.members[:4] {
		if i == 1 {
			m.kill()
		} else {
			m.stop()
		}
		time.Sleep(300 * time.Millisecond)
		m.start()
		if err := m.agent.WaitConverged(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
	}
	close(stop)
	asking.Wait()
	if asked.Load() < 200 || x.served.Load()+broken.Load() < asked.Load() {
		t.Errorf("%d requests, %d served", asked.Load(), x.served.Load())
	}
	t.Logf("%d requests, %d of them POSTs that broke off with their server, %d rejected by servers and sent again, %d carried out twice",
		asked.Load(), broken.Load(), x.rejected.Load(), repeated.Load())
}

// ask sends a request whose body, but for a GET, is its name, and comes back.
func (x *fleet) ask(t *testing.T, client *http.Client, method, url, name string) (status int, _ error) {
	body := map[bool]string{true: "", false: name}[method == http.MethodGet]
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("X-Request", name)
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if resp.StatusCode == http.StatusOK && string(got) != body {
		err = fmt.Errorf("the answer is %q: %w", got, err)
	}
	return resp.StatusCode, err
}

// WebSockets through the proxy stay where they are when a member joins, also those whose keys move: their server decides what
// becomes of them (S7.2).
func TestWebSocketsSurviveAJoin(t *testing.T) {
	t.Parallel()
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

	joins := &member{t: t, id: "joins", addr: "127.0.0.1:0", fleet: x}
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
