package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/cluster/routing/httpproxy"
)

// proxyGrace is how long a proxy waits for open requests when it shuts down.
const proxyGrace = 15 * time.Second

// Proxy configures a proxy and its routing client. Run sets Place and Transport.
type Proxy struct {
	httpproxy.Config

	Listen       string // address for requests
	Probe        string // address of /healthz and /readyz; "" = none
	Agents       routing.Config
	Rooms        bool          // keys are rooms, and requests go where they are pinned
	AnswerWithin time.Duration // for the headers of a response; 0 means no limit

	grace time.Duration // replaces proxyGrace in tests
}

// Run forwards each request to the owner of its key until ctx ends. After that, open requests have 15 s to
// finish.
func (p Proxy) Run(ctx context.Context) error {
	signal.Ignore(syscall.SIGPIPE) // the log may have lost its reader
	log := p.Log
	listener, err := listen(ctx, "--listen", p.Listen)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	following, stop := context.WithCancel(context.WithoutCancel(ctx)) // still routes the last requests
	defer stop()
	c, err := routing.Start(following, p.Agents)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	transport := httpproxy.NewTransport()
	transport.ResponseHeaderTimeout = p.AnswerWithin
	p.Place, p.Transport = p.placeBy(c), transport
	proxy, err := httpproxy.New(p.Config)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	if p.Probe != "" {
		probed, err := listen(ctx, "--probe", p.Probe)
		if err != nil {
			return err
		}
		probes := serverOf(probes(ctx, c), log)
		defer func() { _ = probes.Close() }()
		go func() { failed <- probes.Serve(probed) }()
		log.Info("probes served", "probe", listensAt(probed, p.Probe))
	}
	requests := &inProgress{Handler: proxy}
	srv := serverOf(requests, log)
	go func() { failed <- srv.Serve(listener) }()
	log.Info("proxy running", "listen", listensAt(listener, p.Listen))
	select {
	case err := <-failed:
		return fmt.Errorf("the proxy has stopped: %w", err)
	case <-ctx.Done():
	}
	p.end(following, srv, requests)
	return nil
}

// placeBy returns a Place that looks up pins if p.Rooms is set, and partition owners otherwise.
func (p Proxy) placeBy(c *routing.Client) httpproxy.Place {
	if p.Rooms {
		return (&pinnedRooms{client: c, log: p.Log}).place
	}
	return httpproxy.FromClient(c)
}

// end waits for open requests, and aborts them after the grace period.
func (p Proxy) end(ctx context.Context, srv *http.Server, requests *inProgress) {
	grace := cmp.Or(p.grace, proxyGrace)
	p.Log.Info("shutting down; finishing open requests", "for", grace)
	bounded, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := errors.Join(srv.Shutdown(bounded), requests.wait(bounded)); errors.Is(err, context.DeadlineExceeded) {
		p.Log.Warn("requests broken off", "after", grace)
		_ = srv.Close()
	}
}

// inProgress counts open requests. The count is needed because http.Server.Shutdown does not wait for
// hijacked connections such as WebSockets.
type inProgress struct {
	http.Handler

	requests sync.WaitGroup
}

func (h *inProgress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.requests.Add(1)
	defer h.requests.Done()
	h.Handler.ServeHTTP(w, r)
}

// wait waits until all requests have finished. When it is called, the server must no longer accept new
// requests.
func (h *inProgress) wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		h.requests.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s %s: cannot listen: %w", flag, addr, err)
	}
	return l, nil
}

func serverOf(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// probes serves /healthz and /readyz. The proxy is ready from the first table until ctx ends. The proxy also
// stays ready with an outdated table. If it did not, all proxies would become unready at the same time,
// although the last table is the best one available.
func probes(ctx context.Context, c *routing.Client) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"status":"ok"}`) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ctx.Err() != nil {
			http.Error(w, "the proxy ends", http.StatusServiceUnavailable)
			return
		}
		select {
		case <-c.Ready():
			_, _ = io.WriteString(w, `{"status":"ready"}`)
		default:
			http.Error(w, "no agent has sent a table yet", http.StatusServiceUnavailable)
		}
	})
	return mux
}
