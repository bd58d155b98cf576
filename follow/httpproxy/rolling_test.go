package httpproxy_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	members          []*member
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
		m.fleet.served.Add(1)
		_, _ = fmt.Fprint(w, m.id)
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

// Five servers with agents inside are restarted one after the other, and one of them is killed, under
// 200 requests a second through a proxy. No request fails that may be sent again, and the only answers are those
// of owners (S7.2).
func TestRollingRestart(t *testing.T) {
	x := &fleet{}
	for i := range 5 {
		x.members = append(x.members, &member{t: t, id: fmt.Sprint("n", i), addr: "127.0.0.1:0", fleet: x})
	}
	for _, m := range x.members {
		m.start()
	}
	defer func() {
		for _, m := range x.members {
			m.kill()
		}
	}()
	var apis []string
	for _, m := range x.members[2:] {
		apis = append(apis, m.api.URL)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	f, err := follow.Start(t.Context(), follow.Config{Agents: apis, HTTP: &http.Client{Transport: transport}, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	<-f.Ready()
	proxy := proxyWith(t, httpproxy.Follower(f), transport)

	stop := make(chan struct{})
	var asking sync.WaitGroup
	var asked, failed atomic.Int64
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
				resp, err := client.Get(fmt.Sprint(proxy, "/rooms/", i%500))
				if err != nil {
					failed.Add(1)
					t.Error(err)
					return
				}
				defer func() { _ = resp.Body.Close() }()
				if resp.StatusCode != http.StatusOK {
					failed.Add(1)
					t.Errorf("%s", resp.Status)
				}
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
	if asked.Load() < 200 || x.served.Load() < asked.Load() {
		t.Errorf("%d requests, %d served", asked.Load(), x.served.Load())
	}
	t.Logf("%d requests, %d failed, %d rejected by servers and sent again", asked.Load(), failed.Load(), x.rejected.Load())
}

func proxyWith(t *testing.T, place httpproxy.Place, transport http.RoundTripper) string {
	t.Helper()
	p, err := httpproxy.New(httpproxy.Config{Place: place, Key: httpproxy.FromPath(2), Transport: transport, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	return srv.URL
}
