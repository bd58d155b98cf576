package clusterhttp

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp/dashboard"
	"github.com/roost-cluster/roost/lease"
)

// Options shape a [Handler]. The zero value serves everybody who reaches it.
type Options struct {
	// Token, if it is set, has to accompany every request that is not a GET,
	// HEAD or OPTIONS, as "Authorization: Bearer <token>". Default: none, which
	// is for loopback only.
	Token string

	// Log receives changes asked for, requests refused and streams dropped.
	// Default slog.Default().
	Log *slog.Logger

	// KeepAlive is how long an event stream is silent before it sends a comment,
	// so that proxies keep it open and dead clients are found. Default 15 s; a
	// [Client] takes the agent for dead after 50 s of silence.
	KeepAlive time.Duration

	// MaxStreams is how many event streams are served at a time; more are turned
	// away as busy. Default 1024: each costs two goroutines, three with Rooms, and
	// some 25 kB.
	MaxStreams int

	// Rooms pins rooms to nodes by capacity. It has to run beside the same agent,
	// and is not closed here. Default: none; the calls about rooms answer no_store.
	Rooms *affinity.Resolver

	// HostFor is how long a room that a resolve call found to live on this node
	// stays hosted here unless resolve is called for it again. Default 1 h, the
	// default of affinity.Config.PinTTL. Negative: such a call does not host the
	// room; for programs that call Resolver.Host themselves, whose hostings would
	// lapse otherwise.
	HostFor time.Duration
}

const (
	maxBody  = 64 << 10 // bytes of a request's body
	bodyTime = 10 * time.Second
	sendTime = 10 * time.Second // for one event, or for one response after a wait
)

// api is what the endpoints share.
type api struct {
	agent *cluster.Agent
	self  lease.NodeID
	ttl   time.Duration
	log   *slog.Logger
	mux   *http.ServeMux

	origin  http.CrossOriginProtection
	locked  bool     // a token is needed
	token   [32]byte // its SHA-256
	refused refusals
	streams chan struct{}
	journal *journal // of what they tell
	leaving sync.Once

	rooms   *affinity.Resolver // nil: there is no store
	hostFor time.Duration
	listing chan struct{} // holds a token while the rooms are listed

	keepAlive, bodyTime, sendTime time.Duration
}

// Handler returns the HTTP API of agent: the endpoints that the package comment
// lists, at these paths. Mount it under a prefix with http.StripPrefix. It
// starts nothing and need not be closed; event streams end with the agent.
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
		agent: agent, self: lease.NodeID(cfg.ID), ttl: cfg.LeaseTTL, log: opts.Log, mux: http.NewServeMux(),
		locked: opts.Token != "", token: sha256.Sum256([]byte(opts.Token)),
		streams: make(chan struct{}, opts.MaxStreams), journal: newJournal(),
		rooms: opts.Rooms, hostFor: opts.HostFor, listing: make(chan struct{}, 1),
		keepAlive: opts.KeepAlive, bodyTime: bodyTime, sendTime: sendTime,
	}
	page := dashboard.Handler(dashboard.Info{Cluster: cfg.Cluster, LeaseTTL: cfg.LeaseTTL, Rooms: opts.Rooms != nil})
	a.mux.Handle("GET /{$}", page)
	a.mux.Handle("GET /dashboard/{file}", page)
	a.mux.Handle("/", http.HandlerFunc(a.unrouted))
	a.mux.HandleFunc("GET /healthz", a.healthz)
	a.mux.HandleFunc("GET /readyz", a.readyz)
	a.mux.HandleFunc("GET /v1/place", a.open(http.StatusOK, a.place))
	a.mux.HandleFunc("GET /v1/owners", a.open(http.StatusOK, a.owners))
	a.mux.HandleFunc("GET /v1/members", a.open(http.StatusOK, a.members))
	a.mux.HandleFunc("GET /v1/partitions", a.open(http.StatusOK, a.partitions))
	a.mux.HandleFunc("GET /v1/owned", a.open(http.StatusOK, a.owned))
	a.mux.HandleFunc("GET /v1/stats", a.open(http.StatusOK, a.stats))
	a.mux.HandleFunc("GET /v1/events", a.events)
	a.mux.HandleFunc("GET /v1/openapi.json", a.describe)
	a.mux.HandleFunc("POST /v1/drain", a.open(http.StatusOK, a.drain))
	a.mux.HandleFunc("POST /v1/undrain", a.open(http.StatusOK, a.undrain))
	a.mux.HandleFunc("POST /v1/leave", a.open(http.StatusAccepted, a.leave))
	a.mux.HandleFunc("POST /v1/load", a.open(http.StatusOK, a.setLoad))
	a.mux.HandleFunc("POST /v1/weight", a.open(http.StatusOK, a.setWeight))
	a.mux.HandleFunc("GET /v1/rooms", a.open(http.StatusOK, a.listRooms))
	a.mux.HandleFunc("GET /v1/rooms/{room}", a.open(http.StatusOK, a.showRoom))
	a.mux.HandleFunc("DELETE /v1/rooms/{room}", a.open(http.StatusOK, a.releaseRoom))
	a.mux.HandleFunc("POST /v1/rooms/{room}/resolve", a.open(http.StatusOK, a.resolveRoom))
	a.mux.HandleFunc("POST /v1/rooms/{room}/move", a.open(http.StatusOK, a.moveRoom))
	return a
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	asked := r
	r = a.bound(w, r)
	if p := a.admit(r); p != nil {
		a.refused.tell(a.log, r, p)
		p.write(w)
		return
	}
	// The mux would redirect from an unclean path, and to the wrong place below a
	// prefix. What is escaped in it belongs to the name of a room.
	if escaped := r.URL.EscapedPath(); !strings.HasPrefix(escaped, "/") || path.Clean(escaped) != escaped {
		nothingAt(r).write(w)
		return
	}
	a.mux.ServeHTTP(w, r)
	asked.Pattern = r.Pattern // for whoever measures or traces requests by their route, around this
}

// An endpoint answers a request with what is to be sent as JSON.
type endpoint func(http.ResponseWriter, *http.Request) (any, *Problem)

// open serves an endpoint while the agent runs. A snapshot of an agent that has
// ended is of no more use than no answer, and does more harm.
func (a *api) open(status int, answer endpoint) http.HandlerFunc {
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
		writeJSON(w, status, v)
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

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // only a fault in this package can do that
		status = http.StatusInternalServerError
		b, _ = json.Marshal(internal(err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that has gone needs no answer
}

// unrouted answers a request for which there is no endpoint, by asking the mux what
// else it has at this path.
func (a *api) unrouted(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPost} {
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
		p.Message = fmt.Sprintf("%.80s takes %s, not %.20q", r.URL.Path, allow, r.Method)
	}
	p.write(w)
}

func nothingAt(r *http.Request) *Problem {
	return &Problem{
		Status: http.StatusNotFound, Code: CodeNotFound,
		Message: fmt.Sprintf("there is nothing at %.80q", r.URL.Path),
	}
}
