package httpproxy_test

import (
	"context"
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
	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/cluster/routing/httpproxy"
	"github.com/roost-cluster/roost/internal/redistest"
)

// member is a server with an embedded agent and the agent's HTTP API.
type member struct {
	t     *testing.T
	id    string
	agent *cluster.Agent
	api   *httptest.Server
	app   *http.Server
	addr  string // address of app; the same after a restart
	at    string // address of the API; the same after a restart
	ended sync.WaitGroup
	gate  atomic.Pointer[gate]
	fleet *fleet
}

// gate delays responses to all requests except GETs.
type gate struct {
	held atomic.Int64
	open chan struct{}
}

// fleet counts what all servers have done.
type fleet struct {
	served, rejected atomic.Int64
	runs, strays     sync.Map // *atomic.Int64 by the header X-Request: how often a request was carried out, and how often it was rejected
	members          []*member
	conns            sync.Map // *atomic.Int64 by the address of a server: open connections of the proxy
}

// count adds n to a counter of a map and returns the new value.
func count(in *sync.Map, name string, n int64) int64 {
	counter, _ := in.LoadOrStore(name, new(atomic.Int64))
	return counter.(*atomic.Int64).Add(n) //nolint:forcetypeassert // the map contains no other type
}

// listen listens at *addr, which may be the address of a server that has stopped. If the port is 0, listen picks a free
// port and stores the address in *addr.
func (m *member) listen(addr *string) net.Listener {
	m.t.Helper()
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		m.t.Fatal(err)
	}
	*addr = l.Addr().String()
	return l
}

func (m *member) start() {
	m.t.Helper()
	l := m.listen(&m.addr)
	var join []string
	for _, other := range m.fleet.members {
		if other != m && other.agent != nil {
			join = append(join, other.agent.Addr())
		}
	}
	agent, err := cluster.Start(m.t.Context(), cluster.Config{
		ID:         m.id,
		Bind:       "127.0.0.1:0",
		APIAddr:    m.addr,
		Join:       join,
		Network:    cluster.Local,
		LeaseTTL:   30 * time.Second,
		Partitions: 64,
		Log:        quiet,
	})
	if err != nil {
		m.t.Fatal(err)
	}
	<-agent.Ready()
	m.agent = agent
	m.app = &http.Server{ReadHeaderTimeout: time.Minute, Handler: m.serve(agent)}
	m.ended.Go(func() { _ = m.app.Serve(l) })
	m.api = httptest.NewUnstartedServer(nil)
	_ = m.api.Listener.Close()
	m.api.Listener, m.api.Config = m.listen(&m.at), clusterhttp.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{Log: quiet}))
	m.api.Start()
}

// serve serves the rooms that this member owns.
func (m *member) serve(agent *cluster.Agent) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.Header.Get("X-Request")
		if key := strings.TrimPrefix(r.URL.Path, "/rooms/"); !agent.Arrived(key) {
			m.fleet.rejected.Add(1)
			count(&m.fleet.strays, name, 1)
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
		count(&m.fleet.runs, name, 1)
		if g := m.gate.Load(); g != nil && r.Method != http.MethodGet {
			g.held.Add(1)
			select {
			case <-g.open:
			case <-r.Context().Done():
			}
		}
		w.Header().Set("X-Served-By", m.id)
		_, _ = w.Write(body)
	}
}

// hold delays responses until release is called, and waits until some requests are in progress.
func (m *member) hold() (release func()) {
	m.t.Helper()
	g := &gate{open: make(chan struct{})}
	m.gate.Store(g)
	redistest.Until(m.t, "requests in progress", func() bool { return g.held.Load() >= 6 })
	return func() { m.gate.Store(nil); close(g.open) }
}

// stop stops a member that has drained.
func (m *member) stop() {
	m.t.Helper()
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

// kill stops the member immediately. Open connections break, and the ports refuse new connections.
func (m *member) kill() {
	_ = m.app.Close()
	_ = m.agent.Close()
	m.api.CloseClientConnections()
	m.api.Close()
	m.ended.Wait()
}

// dial counts the connections to each server.
func (x *fleet) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	count(&x.conns, addr, 1)
	return &counted{conn, sync.OnceFunc(func() { count(&x.conns, addr, -1) })}, nil
}

type counted struct {
	net.Conn
	end func()
}

func (c *counted) Close() error {
	defer c.end()
	return c.Conn.Close()
}

// behindProxy starts members and a proxy in front of them. The proxy's routing client knows the agents of the last
// three members. behindProxy returns the URL of the proxy.
func (x *fleet) behindProxy(t *testing.T, members int) (url string, f *routing.Client) {
	t.Helper()
	for i := range members {
		x.members = append(x.members, &member{t: t, id: fmt.Sprint("n", i), addr: "127.0.0.1:0", at: "127.0.0.1:0", fleet: x})
	}
	var apis []string
	for _, m := range x.members {
		m.start()
		apis = append(apis, m.at)
	}
	t.Cleanup(func() {
		for _, m := range x.members {
			m.kill()
		}
	})
	transport := &http.Transport{DialContext: x.dial}
	t.Cleanup(transport.CloseIdleConnections)
	f, err := routing.Start(t.Context(), routing.Config{Agents: apis[members-3:], HTTP: &http.Client{Transport: transport}, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	<-f.Ready()
	srv := httptest.NewServer(newProxy(t, httpproxy.FromClient(f), func(c *httpproxy.Config) { c.Transport = transport }))
	t.Cleanup(srv.Close)
	return srv.URL, f
}
