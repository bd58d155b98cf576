package clusterhttp

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/signalling"
	"github.com/roost-cluster/roost/cluster/clusterhttp/dashboard"
	"github.com/roost-cluster/roost/lease"
)

// Options configure a [Handler]. The zero value serves every client without a token.
type Options struct {
	// Token, if set, is required by every request other than GET, HEAD and OPTIONS, as "Authorization: Bearer
	// <token>". The default is no token, which is safe only on loopback.
	Token string

	// With TokenReads, reads also require a token, except /healthz, /readyz and /reconnect.mjs. In a browser,
	// enter the token as the password with any user name.
	TokenReads bool

	// ReadToken, if set, is another token that is valid only for reads. ReadToken implies TokenReads.
	ReadToken string

	// Tokens, if set, returns the currently valid tokens: operate replaces Token, and read replaces
	// ReadToken. The handler calls Tokens for each request that shows or needs a token, from any goroutine.
	// Return both the old and the new token while a fleet changes its token. An event stream that was opened
	// with an old token remains open until the client or the server closes it. TokenReads and ReadToken still
	// decide whether reads need a token.
	Tokens func() (operate, read []string)

	// Hosts are additional host names under which clients can read over plain http without a token. Clients
	// can always use localhost, IP addresses, and names that do not exist in the public DNS, such as "node-a"
	// or "node-a.internal". Other names are rejected, because an attacker may have pointed them at this node.
	Hosts []string

	// Metrics, if set, serves GET /metrics. If reads need a token, Prometheus needs the token, too.
	Metrics http.Handler

	// Log receives a line for each requested change, rejected request and dropped stream. Default
	// slog.Default().
	Log *slog.Logger

	// KeepAlive is how long an event stream can be silent before the handler sends a comment. Comments make
	// proxies keep the stream open, and reveal dead clients. Default 15 s. A [Client] considers the agent
	// dead after 50 s of silence.
	KeepAlive time.Duration

	// MaxStreams is how many event streams are served at the same time. Further streams are rejected as busy.
	// A stream costs about 25 kB and two goroutines, or three goroutines with Rooms. If a token is set, a
	// quarter of the streams is reserved for clients with the token. At most MaxStreams + 1024 requests
	// without a token are served at the same time. Default 1024.
	MaxStreams int

	// Rooms pins rooms to nodes by capacity. Rooms must use the same agent, and the caller must close Rooms.
	// Without Rooms, calls about rooms respond with no_store.
	Rooms *affinity.Resolver

	// HostFor is how long this node hosts a room after the room's last resolve call. If your application
	// calls Resolver.Host itself, set a negative value. The resolve call then does not host rooms, so the
	// hostings of your application do not expire. Default 1 h, which is also the default of
	// affinity.Config.PinTTL.
	HostFor time.Duration

	// Sources, if set, returns the state of the files and variables from which the process reloads its
	// settings. GET /v1/doctor checks this state. Sources must not block, and must be safe for concurrent
	// use.
	Sources func() *Sources

	// SaveKeys, if set, saves the gossip keys of the agent ([cluster.Agent.Keys]) for its next start. The
	// handler calls SaveKeys after POST /v1/keys has changed the keys. SaveKeys must be safe for concurrent
	// use. If SaveKeys is nil or fails, the response says that a restart would undo the change.
	SaveKeys func() error
}

const (
	maxBody  = 64 << 10 // bytes of a request's body
	bodyTime = 10 * time.Second
	sendTime = 10 * time.Second // time to send an event, or a response after a wait
)

// api is the state that the endpoints share.
type api struct {
	agent *cluster.Agent
	self  lease.NodeID
	ttl   time.Duration
	log   *slog.Logger
	mux   *http.ServeMux

	guard    *guard
	refused  throttled // throttles log lines about rejected requests
	unread   throttled // throttles log lines about responses that were not read
	requests requests

	whole  *ring                     // ring of all members
	scopes scopes                    // rings of some members
	listed shared[*cluster.Snapshot] // the response to /v1/members

	streams chan struct{}
	strange chan struct{} // streams of clients without a token
	leaving sync.Once

	rooms   *affinity.Resolver // nil: there is no store
	hostFor time.Duration
	listing chan struct{} // full while a list of rooms is in progress

	sources  func() *Sources // may be nil
	saveKeys func() error    // may be nil

	since        time.Time    // when the handler was made
	examinations examinations // examinations of /v1/doctor

	evacuation evacuation

	keepAlive, bodyTime, sendTime time.Duration

	compressors chan *gzip.Writer // idle compressors
}

// Handler returns the HTTP API of agent. It serves the endpoints that the package comment lists. To mount the API under
// a prefix, use http.StripPrefix. A handler needs no Close, because event streams and evacuations end with the agent.
func Handler(agent *cluster.Agent, opts Options) http.Handler { return newAPI(agent, opts) }

func newAPI(agent *cluster.Agent, opts Options) *api {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.KeepAlive <= 0 {
		opts.KeepAlive = 15 * time.Second
	}
	if opts.MaxStreams <= 0 {
		opts.MaxStreams = 1024
	}
	if opts.HostFor == 0 {
		opts.HostFor = affinity.Config{}.WithDefaults().PinTTL
	}
	cfg := agent.Config()
	a := &api{
		agent:        agent,
		self:         lease.NodeID(cfg.ID),
		ttl:          cfg.LeaseTTL,
		log:          opts.Log,
		mux:          http.NewServeMux(),
		guard:        newGuard(opts),
		requests:     requests{most: opts.MaxStreams + maxCalls, mostWriting: maxWriting, mostHeld: maxHeld},
		streams:      make(chan struct{}, opts.MaxStreams),
		strange:      make(chan struct{}, placesWithoutToken(opts)),
		whole:        newRing(agent, agent),
		scopes:       scopes{rings: make(map[string]*ring)},
		rooms:        opts.Rooms,
		hostFor:      opts.HostFor,
		listing:      make(chan struct{}, 1),
		examinations: examinations{latest: make(map[time.Duration]*examination)},
		sources:      opts.Sources,
		saveKeys:     opts.SaveKeys,
		since:        time.Now(),
		keepAlive:    opts.KeepAlive,
		bodyTime:     bodyTime,
		sendTime:     sendTime,
		compressors:  newCompressors(),
	}
	a.route(dashboard.Handler(dashboard.Info{Cluster: cfg.Cluster, Rooms: opts.Rooms != nil, Metrics: opts.Metrics != nil}))
	if opts.Metrics != nil {
		a.mux.Handle("GET /metrics", opts.Metrics)
	}
	return a
}

func (a *api) route(page http.Handler) {
	a.mux.Handle("GET /{$}", page)
	a.mux.Handle("GET /dashboard/{file}", page)
	a.mux.Handle("/", http.HandlerFunc(a.unrouted))
	a.mux.HandleFunc("GET /healthz", a.healthz)
	a.mux.HandleFunc("GET /readyz", a.readyz)
	a.mux.HandleFunc("GET /v1/place", a.ofRing(a.place))
	a.mux.HandleFunc("GET /v1/owners", a.ofRing(a.owners))
	a.mux.HandleFunc("GET /v1/members", a.open(http.StatusOK, a.members))
	a.mux.HandleFunc("GET /v1/partitions", a.ofRing(a.partitions))
	a.mux.HandleFunc("GET /v1/owned", a.ofRing(a.owned))
	a.mux.HandleFunc("GET /v1/stats", a.open(http.StatusOK, a.stats))
	a.mux.HandleFunc("GET /v1/history", a.open(http.StatusOK, a.history))
	a.mux.HandleFunc("GET /v1/doctor", a.open(http.StatusOK, a.doctor))
	a.mux.HandleFunc("GET /v1/events", a.events)
	a.mux.HandleFunc("GET /v1/table", a.streamTable)
	a.mux.HandleFunc("GET /v1/openapi.json", a.describe)
	a.mux.HandleFunc("POST /v1/drain", a.open(http.StatusOK, a.drain))
	a.mux.HandleFunc("POST /v1/undrain", a.open(http.StatusOK, a.undrain))
	a.mux.HandleFunc("POST /v1/leave", a.open(http.StatusAccepted, a.leave))
	a.mux.HandleFunc("POST /v1/load", a.open(http.StatusOK, a.setLoad))
	a.mux.HandleFunc("POST /v1/weight", a.open(http.StatusOK, a.setWeight))
	a.mux.HandleFunc("POST /v1/health", a.open(http.StatusOK, a.report))
	a.mux.HandleFunc("POST /v1/cordon", a.open(http.StatusOK, a.cordon))
	a.mux.HandleFunc("DELETE /v1/cordon", a.open(http.StatusOK, a.uncordon))
	a.mux.HandleFunc("POST /v1/keys", a.open(http.StatusOK, a.changeKeys))
	a.mux.HandleFunc("GET /v1/rooms", a.open(http.StatusOK, a.listRooms))
	a.mux.HandleFunc("GET /v1/rooms/{room}", a.room(a.showRoom))
	a.mux.HandleFunc("GET /v1/rooms/{room}/relays", a.room(a.roomRelays))
	a.mux.HandleFunc("DELETE /v1/rooms/{room}", a.room(a.releaseRoom))
	a.mux.HandleFunc("POST /v1/rooms/{room}/resolve", a.room(a.resolveRoom))
	a.mux.HandleFunc("POST /v1/rooms/{room}/move", a.room(a.moveRoom))
	a.mux.HandleFunc("POST /v1/rooms/{room}/report", a.room(a.reportRoom))
	a.mux.HandleFunc("GET /v1/rooms/{room}/follow", a.followRoom)
	a.mux.HandleFunc("PUT /v1/rooms/{room}/reservation", a.room(a.reserveRoom))
	a.mux.HandleFunc("DELETE /v1/rooms/{room}/reservation", a.room(a.cancelReservation))
	a.mux.HandleFunc("GET /v1/reservations", a.open(http.StatusOK, a.listReservations))
	a.mux.Handle("GET /reconnect.mjs", signalling.JavaScript())
	a.mux.Handle("GET /routing.mjs", http.HandlerFunc(routingScript))
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	q, admitted := a.requests.enter(w, r.Header.Get("Authorization") != "" && a.guard.known(r), isProbe(r))
	if q == nil {
		panic(http.ErrAbortHandler) // even a response with an error might wait for the client
	}
	defer a.left(q, r)
	asked := r
	r = a.bound(w, r)
	w = q
	if !admitted {
		p := problem(http.StatusServiceUnavailable, CodeBusy,
			"the agent already has %d requests that wait or whose clients do not read; a request with a token is not limited",
			a.requests.most)
		a.refused.warn(a.log, "request rejected", r, p.Message)
		p.write(w)
		return
	}
	if p := a.guard.reject(w, r); p != nil {
		a.refused.warn(a.log, "request rejected", r, p.Message)
		return
	}
	// The mux would redirect an unclean path, and if the API is mounted under a prefix, the target would be
	// wrong. An escaped slash or dot is allowed, because it belongs to the name of a room.
	if escaped := r.URL.EscapedPath(); !strings.HasPrefix(escaped, "/") || path.Clean(escaped) != escaped {
		nothingAt(r).write(w)
		return
	}
	a.mux.ServeHTTP(w, r)
	asked.Pattern = r.Pattern // for middleware that measures or traces requests by route
}

// left ends a request, and logs a warning if the client did not read the response.
func (a *api) left(q *request, r *http.Request) {
	q.leave()
	if q.unread() {
		a.unread.warn(a.log, "answer cut off", r, "the client did not read it")
	}
}

// isProbe reports whether a request is a probe of an orchestrator or a scrape of Prometheus.
func isProbe(r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/readyz", "/metrics":
		return true
	}
	return false
}

// An endpoint returns the value to send as JSON, or a *body that is already encoded.
type endpoint func(http.ResponseWriter, *http.Request) (any, *Problem)

// open serves an endpoint that does not depend on scopes, while the agent runs.
func (a *api) open(status int, answer endpoint) http.HandlerFunc {
	return a.serve(status, func(w http.ResponseWriter, r *http.Request) (any, *Problem) {
		if p := scopeless(r); p != nil {
			return nil, p
		}
		return answer(w, r)
	})
}

// serve serves an endpoint while the agent runs. After the agent has closed, serve responds with an error,
// because the agent's last snapshot is out of date.
func (a *api) serve(status int, answer endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if a.closed() {
			a.problemOf(cluster.ErrClosed).write(w)
			return
		}
		v, p := answer(w, r)
		if p != nil {
			p.write(w)
			return
		}
		b, ok := v.(*body)
		if !ok {
			plain, err := encoded(v)
			if err != nil {
				internal(err).write(w)
				return
			}
			b = &body{plain: plain}
		}
		if q, ok := w.(*request); ok && !q.hold(b) {
			problem(http.StatusServiceUnavailable, CodeBusy,
				"clients have not read %d MB of answers; try again in a second", a.requests.mostHeld>>20).write(w)
			return
		}
		sent := b.plain
		if len(sent) >= compressFrom {
			w.Header().Set("Vary", "Accept-Encoding")
			if acceptsGzip(r.Header) {
				sent = a.compressed(w.Header(), b)
			}
		}
		writeBody(w, status, sent)
	}
}

func (a *api) closed() bool {
	select {
	case <-a.agent.Done():
		return true
	default:
		return false
	}
}

// writeJSON writes v uncompressed. Probes and problems use writeJSON, because they are small.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := encoded(v)
	if err != nil {
		status = http.StatusInternalServerError
		b, _ = encoded(internal(err))
	}
	writeBody(w, status, b)
}

func writeBody(w http.ResponseWriter, status int, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) //nolint:gosec // JSON, with its type and nosniff. An error means that the client disconnected.
}

// encoded returns v as a line of JSON. If encoded returns an error, this package has a bug.
func encoded(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return append(b, '\n'), err
}

// compressFrom is the minimum size, in bytes, of a response that is compressed. A smaller response fits into
// one packet without compression.
const compressFrom = 1400

// newCompressors returns a pool with all compressors that can run at the same time. Each compressor allocates
// 1 MB of tables on its first use.
func newCompressors() chan *gzip.Writer {
	free := make(chan *gzip.Writer, 2)
	for range cap(free) {
		w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails only for unknown levels
		free <- w
	}
	return free
}

// compressed returns a response in gzip. If all compressors are busy, compressed returns the response
// uncompressed. Under load, CPU time and memory matter more than bandwidth.
func (a *api) compressed(h http.Header, b *body) []byte {
	b.mu.Lock() // other requests for the same response wait here
	defer b.mu.Unlock()
	if b.gzip == nil {
		select {
		case w := <-a.compressors:
			defer func() { a.compressors <- w }()
			var out bytes.Buffer
			w.Reset(&out)
			_, _ = w.Write(b.plain) // a buffer does not fail
			_ = w.Close()
			b.gzip = out.Bytes()
		default:
			return b.plain
		}
	}
	h.Set("Content-Encoding", "gzip")
	return b.gzip
}

// acceptsGzip reports whether a client accepts gzip (RFC 9110, section 12.5.3).
func acceptsGzip(h http.Header) bool {
	for accepted := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		coding, weight, _ := strings.Cut(accepted, ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			_, q, stated := strings.Cut(weight, "=")
			value, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
			return !stated || err == nil && value > 0
		}
	}
	return false
}

// unrouted responds to a request that no endpoint matches. The status is 405 if the path exists with another
// method, and 404 otherwise.
func (a *api) unrouted(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut} {
		other := *r
		other.Method = method
		if _, pattern := a.mux.Handler(&other); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	p := nothingAt(r)
	if len(allowed) > 0 {
		allow := strings.Join(allowed, ", ")
		w.Header().Set("Allow", allow)
		p.Status, p.Code = http.StatusMethodNotAllowed, CodeMethod
		p.Message = fmt.Sprintf("%.80s accepts %s, not %.20q", r.URL.Path, allow, r.Method)
	}
	p.write(w)
}

func nothingAt(r *http.Request) *Problem {
	return problem(http.StatusNotFound, CodeNotFound, "there is nothing at %.80q", r.URL.Path)
}
