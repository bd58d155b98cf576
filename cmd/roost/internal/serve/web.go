package serve

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterhttp/dashboard"
	"github.com/roost-cluster/roost/cluster/clusterprom"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
)

// web serves the HTTP API of an agent. The listener is opened before the agent starts, so that a port that is
// already in use is reported before the node joins. Until the agent runs, web responds to API requests with
// "not ready", and serves a dashboard that waits for the agent.
type web struct {
	addr    string // of the listener, or settings.Off
	options clusterhttp.Options
	server  *http.Server  // nil if off
	certs   *certificates // nil without TLS
	handler atomic.Pointer[http.Handler]
	metrics *prometheus.Registry
	joining prometheus.Collector // in metrics until there is a handler
	page    http.Handler         // until there is a handler
	ended   chan struct{}
	ending  atomic.Bool
	tokens  atomic.Pointer[tokens]

	waitsFor atomic.Pointer[string] // the latest warning with an error; nil = none
}

// tokens are the accepted tokens.
type tokens struct{ operate, read []string }

func (w *web) setTokens(a settings.Agent) { w.tokens.Store(&tokens{a.Tokens, a.ReadTokens}) }

func (w *web) currentTokens() (operate, read []string) {
	t := w.tokens.Load()
	return t.operate, t.read
}

func listenHTTP(ctx context.Context, a settings.Agent, log *slog.Logger) (*web, error) {
	w := &web{
		addr: settings.Off, options: clusterhttp.Options{
			TokenReads: a.TokenReads || len(a.ReadTokens) > 0, Hosts: a.Hosts, Log: log,
		},
		metrics: prometheus.NewRegistry(), joining: clusterprom.Joining(), ended: make(chan struct{}),
	}
	w.setTokens(a)
	if len(a.Tokens) > 0 {
		w.options.Tokens = w.currentTokens
	}
	c := a.Cluster.WithDefaults()
	w.page = dashboard.Handler(dashboard.Info{Cluster: c.Cluster, Rooms: a.Store != "", Metrics: true})
	w.options.Metrics = &scrapes{gather: promhttp.HandlerFor(w.metrics, promhttp.HandlerOpts{})}
	w.metrics.MustRegister(w.joining, collectors.NewBuildInfoCollector(), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if a.HTTP == settings.Off {
		close(w.ended)
		return w, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", a.HTTP)
	if err != nil {
		return nil, fmt.Errorf("--http %s: cannot listen%s: %w", a.HTTP, hint(err), err)
	}
	w.addr = listensAt(listener, a.HTTP)
	if a.TLS.Cert != "" {
		if w.certs, err = readCertificates(a.TLS, log); err != nil {
			return nil, errors.Join(fmt.Errorf("--http-tls-cert: %w", err), listener.Close())
		}
		listener = tls.NewListener(listener, w.certs.server())
	}
	w.server = clusterhttp.NewServer(w)
	w.server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	go func() {
		defer close(w.ended)
		if err := w.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("HTTP server failed", "addr", w.addr, "err", err)
		}
	}()
	return w, nil
}

// listensAt returns the address of a listener with the IPv6 zone of the configured address. Linux omits the zone from a
// listener's address, and a link-local address is useless without its zone.
func listensAt(l net.Listener, asked string) string {
	at, err := netip.ParseAddrPort(l.Addr().String())
	wanted, err2 := netip.ParseAddrPort(asked)
	if err != nil || err2 != nil || wanted.Addr().Zone() == "" {
		return l.Addr().String()
	}
	return netip.AddrPortFrom(at.Addr().WithZone(wanted.Addr().Zone()), at.Port()).String()
}

// listens returns the host:port of the listener, or "" if HTTP is off.
func (w *web) listens() string {
	if w.server == nil {
		return ""
	}
	return w.addr
}

// hint returns the likely reason why listening on an address failed. If the error needs no explanation, it
// returns "".
func hint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return " (is another agent running there?)"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return " (this machine has no such address)"
	}
	return ""
}

// show starts serving the API and the metrics of agent, and of its rooms if it has any.
func (w *web) show(agent *cluster.Agent, rooms *affinity.Resolver, hostFor time.Duration, reloads *reloader) {
	options := w.options // copied, because whileJoining may be reading w.options
	options.Rooms, options.HostFor = rooms, hostFor
	options.Sources, options.SaveKeys = reloads.report, reloads.saveKeys
	w.metrics.Unregister(w.joining)
	w.metrics.MustRegister(clusterprom.New(agent, rooms), clusterprom.Sources(func() bool {
		problem, _ := reloads.failing()
		return problem == ""
	}))
	h := clusterhttp.Handler(agent, options)
	w.handler.Store(&h)
}

// ServeHTTP implements http.Handler.
func (w *web) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	if w.ending.Load() {
		out.Header().Set("Connection", "close")
	}
	if p := w.certs.certified(in); p != nil {
		reject(out, *p)
		return
	}
	if h := w.handler.Load(); h != nil {
		(*h).ServeHTTP(out, in)
		return
	}
	w.whileJoining(out, in)
}

// whileJoining responds to requests until the agent runs. It rejects the requests that the agent's own handler would
// reject. All other requests get the page, the metrics, or the reason why the agent is still joining.
func (w *web) whileJoining(out http.ResponseWriter, in *http.Request) {
	if w.options.Reject(out, in) {
		return
	}
	switch {
	case in.URL.Path == "/metrics" && (in.Method == http.MethodGet || in.Method == http.MethodHead):
		w.options.Metrics.ServeHTTP(out, in) // metrics of the process, and one that says that the node is joining
	case in.URL.Path == "/" || strings.HasPrefix(in.URL.Path, "/dashboard/"):
		w.page.ServeHTTP(out, in)
	case in.URL.Path == "/healthz": // depends only on this process
		out.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(out, `{"status":"ok"}`+"\n")
	default:
		why := "no other node has accepted this node yet: see this agent's log"
		if latest := w.waitsFor.Load(); latest != nil {
			why = *latest
		}
		out.Header().Set("Retry-After", "1")
		reject(out, clusterhttp.Problem{
			Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeNotReady, State: "joining", Message: "joining: " + why,
		})
	}
}

func reject(out http.ResponseWriter, p clusterhttp.Problem) {
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(p.Status)
	_ = json.NewEncoder(out).Encode(p)
}

// turnAway closes each connection after its next response. Otherwise, clients would keep sending requests to a node
// that is gone.
func (w *web) turnAway() { w.ending.Store(true) }

// close waits up to a second for responses in progress.
func (w *web) close() {
	if w.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.server.Shutdown(ctx)
	_ = w.server.Close()
	<-w.ended
}
