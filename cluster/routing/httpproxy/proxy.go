package httpproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/routing"
)

// Place returns the address of the server that owns a key, as host:port or as a URL without a path. here is
// true if that server is this process. If Place fails, the proxy responds with a 503 and the text of the
// error.
type Place func(key string) (addr string, here bool, err error)

// FromClient returns a Place that looks keys up in a routing client. FromClient never reports this process as
// the owner.
func FromClient(c *routing.Client) Place {
	return func(key string) (string, bool, error) {
		m, err := c.Place(key)
		if err != nil {
			return "", false, err
		}
		return m.APIAddr, false, nil
	}
}

// Config configures a Proxy. Place and Key are required.
type Config struct {
	// Place finds the owner of a key. While a request that may run twice waits for its response, the proxy
	// calls Place again five times a second, in another goroutine.
	Place Place
	Key   Key

	// Local serves requests for keys that this process owns. Default: none. Without Local, Place must never
	// return true for here.
	Local http.Handler

	// Redirect makes the proxy respond with a 307 to the address of the owner, instead of sending the request
	// there. Clients must be able to reach the servers.
	Redirect bool

	// Scheme is the scheme of addresses that have none: http or https. Default http.
	Scheme string

	// Transport sends the requests. Default NewTransport().
	Transport http.RoundTripper

	// RetryTimeout is how long the proxy keeps sending a request again after its first failure. The time
	// restarts when the request moves to the next owner because its server has not responded. Default 5 s;
	// negative: no retries.
	RetryTimeout time.Duration

	// ReplayBytes is the maximum size of a body that the proxy keeps to send it again. Default 64 kB;
	// negative: none.
	ReplayBytes int64

	// CloseMoved makes the proxy close a WebSocket with status 1012 (Service Restart) within about two seconds
	// after its key has moved to another server. Clients that reconnect then reach that server. The proxy calls
	// Place once a second for each WebSocket.
	CloseMoved bool

	// Hops is how often all proxies together may forward a request before a server responds with 421. Default
	// 3.
	Hops int

	// Log receives the log. Default slog.Default().
	Log *slog.Logger
}

const (
	// hopsHeader counts how often a request was forwarded.
	hopsHeader = "Roost-Hops"

	// leastPause and longestPause limit the pause between two attempts.
	leastPause   = 10 * time.Millisecond
	longestPause = 200 * time.Millisecond

	// pingTime is how long an HTTP/2 connection may be silent before the proxy sends a ping, and how long the
	// proxy waits for the answer.
	pingTime = 3 * time.Second
)

// Proxy is an http.Handler that is safe for concurrent use.
type Proxy struct {
	cfg   Config
	proxy *httputil.ReverseProxy
}

// New returns a Proxy, or an error if cfg is invalid.
func New(cfg Config) (*Proxy, error) {
	switch {
	case cfg.Place == nil || cfg.Key == nil:
		return nil, errors.New("httpproxy: Place and Key are required")
	case cfg.Scheme != "" && cfg.Scheme != "http" && cfg.Scheme != "https":
		return nil, fmt.Errorf("httpproxy: Scheme is %q; it must be http or https", cfg.Scheme)
	case cfg.Hops < 0:
		return nil, fmt.Errorf("httpproxy: Hops is %d; it must not be negative", cfg.Hops)
	}
	cfg.Scheme = cmp.Or(cfg.Scheme, "http")
	cfg.RetryTimeout = cmp.Or(cfg.RetryTimeout, 5*time.Second)
	cfg.ReplayBytes = cmp.Or(cfg.ReplayBytes, 64<<10)
	cfg.Hops = cmp.Or(cfg.Hops, 3)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Transport == nil {
		cfg.Transport = NewTransport()
	}
	p := &Proxy{cfg: cfg}
	p.proxy = &httputil.ReverseProxy{
		Transport:    &router{p},
		ErrorLog:     log.New(logWriter{cfg.Log}, "", 0),
		ErrorHandler: p.fail,
		Rewrite: func(r *httputil.ProxyRequest) {
			forwarded(r)
			r.Out.Header.Set(hopsHeader, strconv.Itoa(hopsOf(r.In)+1))
		},
	}
	return p, nil
}

// NewTransport returns the default of Config.Transport, for applications that need to set more of its fields,
// such as ResponseHeaderTimeout or TLSClientConfig. NewTransport clones http.DefaultTransport with these
// changes: it uses no proxy, stops connecting after a second, and keeps 100 idle connections to each server.
// If nothing arrives on an HTTP/2 connection for 3 s, it sends a ping, and closes the connection if the
// answer does not arrive within 3 s.
func NewTransport() *http.Transport {
	t := &http.Transport{ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok { // the application may have replaced it, for example for tracing
		t = standard.Clone()
	}
	t.Proxy, t.MaxIdleConnsPerHost, t.MaxIdleConns = nil, 100, 0
	t.DialContext = (&net.Dialer{Timeout: time.Second}).DialContext
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingTime, PingTimeout: pingTime} // otherwise a hanging connection would get all requests
	return t
}

// forwarded adds the client to X-Forwarded-For. forwarded keeps X-Forwarded-Host and X-Forwarded-Proto,
// because the server in front of the proxy, which terminates TLS, knows the correct values.
func forwarded(r *httputil.ProxyRequest) {
	const hops, host, proto = "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"
	r.Out.Header[hops] = r.In.Header[hops]
	r.SetXForwarded()
	for _, name := range []string{host, proto} {
		if before, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = before
		}
	}
}

// logWriter receives the log lines of httputil. Most lines report that a copy failed because the client has
// gone.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.log.Debug(strings.TrimSpace(string(b)))
	return len(b), nil
}

// route is the destination of a request.
type route struct {
	key   string
	addr  string // address of the owner when the request arrived
	first bool   // no proxy has forwarded the request before

	socket *webSocket // nil unless CloseMoved applies to the request
}

type routeKey struct{}

// ServeHTTP passes the request to Local or sends it to the owner of its key.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, err := p.cfg.Key(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	addr, here, err := p.cfg.Place(key)
	switch {
	case err != nil:
		p.fail(w, r, &unavailableError{err})
	case here && p.cfg.Local != nil:
		r.Header.Del(hopsHeader) // a request that Local sends with these headers must start at 0; don't clone r, because net/http would not remove uploaded files of a clone
		p.cfg.Local.ServeHTTP(w, r)
	case p.cfg.Redirect:
		p.redirect(w, r, addr)
	case hopsOf(r) >= p.cfg.Hops:
		http.Error(w,
			fmt.Sprintf("the request was forwarded %d times: the servers disagree about the owner of its key; try again", hopsOf(r)),
			http.StatusMisdirectedRequest)
	case p.cfg.CloseMoved && upgrades(r):
		p.webSocket(w, r, route{key: key, addr: addr, first: hopsOf(r) == 0})
	default:
		way := route{key: key, addr: addr, first: hopsOf(r) == 0}
		p.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), routeKey{}, way)))
	}
}

func (p *Proxy) redirect(w http.ResponseWriter, r *http.Request, addr string) {
	to, err := p.target(addr)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	u := *r.URL
	u.Scheme, u.Host = to.Scheme, to.Host
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, u.String(), http.StatusTemporaryRedirect) //nolint:gosec // the host comes from Place
}

// hopsOf returns how often a request was forwarded. If the header is not a valid number, hopsOf returns a number that
// is so large that the request is rejected.
func hopsOf(r *http.Request) int {
	text := r.Header.Get(hopsHeader)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 1 << 16
	}
	return int(n)
}

// target parses an address that Place has returned.
func (p *Proxy) target(addr string) (*url.URL, error) {
	if addr == "" {
		return nil, &unavailableError{errors.New("the owner has no address: start its agent with --api-addr")}
	}
	if !strings.Contains(addr, "://") {
		addr = p.cfg.Scheme + "://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, &unavailableError{fmt.Errorf("the owner's address %q is neither host:port nor a URL", addr)}
	}
	return u, nil
}

// unavailableError is the error of a request that was not sent to a server, or that no server accepted.
type unavailableError struct{ error }

func (e *unavailableError) Unwrap() error { return e.error }

// fail responds to a request that no server has answered.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok { // the limit comes from a handler in front of the proxy
		http.Error(w, fmt.Sprintf("the body has more than %d bytes", large.Limit), http.StatusRequestEntityTooLarge)
		return
	}
	if errors.Is(r.Context().Err(), context.Canceled) || errors.Is(err, errBody) { // middleware that counts errors should not blame the servers
		p.cfg.Log.Debug("the client has disconnected", "path", r.URL.Path, "err", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if _, ok := errors.AsType[*unavailableError](err); ok {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "no server accepts the request now: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		p.cfg.Log.Warn("a server has not answered in time", "path", r.URL.Path, "err", err)
		http.Error(w, "the server has not answered in time, and may have carried out the request: "+err.Error(), http.StatusGatewayTimeout)
		return
	}
	p.cfg.Log.Warn("a server closed the connection", "path", r.URL.Path, "err", err)
	http.Error(w, "the server closed the connection, and may have carried out the request: "+err.Error(), http.StatusBadGateway)
}
