package tour

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterhttp/dashboard"
	"github.com/roost-cluster/roost/lease"
)

// front serves the dashboard with its buttons, and forwards API requests to one of the agents. When that
// agent is killed or paused, front switches to another agent.
//
//	GET  /demo                   return the running nodes: see stage
//	POST /demo/add               start another node
//	POST /demo/kill    {"id":N}  send SIGKILL
//	POST /demo/pause   {"id":N}  send SIGSTOP
//	POST /demo/resume  {"id":N}  send SIGCONT
//	POST /demo/drain   {"id":N}  drain the node
//	POST /demo/undrain {"id":N}  undrain the node
type front struct {
	addr   string
	server *http.Server
	ended  chan struct{}
	target atomic.Pointer[target]
	obey   atomic.Pointer[func(action string, id lease.NodeID) (stage, *clusterhttp.Problem)] // nil until the tour has ended
}

// target is the agent that receives forwarded requests. Requests to it are canceled with ctx, because a
// paused agent would never answer them.
type target struct {
	*node
	ctx  context.Context
	quit context.CancelFunc
}

func openFront(ctx context.Context, addr string, info dashboard.Info) (*front, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("tour: --http %s: cannot listen (is another demo running there? --http 127.0.0.1:0 selects a free port): %w",
			addr, err)
	}
	f := &front{addr: listener.Addr().String(), ended: make(chan struct{})}
	mux := http.NewServeMux()
	page := dashboard.Handler(info)
	mux.Handle("GET /{$}", page)
	mux.Handle("GET /dashboard/{file}", page)
	mux.HandleFunc("GET /demo", f.press)
	mux.HandleFunc("POST /demo/{action}", f.press)
	mux.HandleFunc("/", f.forward)
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, clusterhttp.CodeForbidden, "from a web page of another origin")
	}))
	f.server = &http.Server{
		Handler:           origin.Handler(mux),
		ReadHeaderTimeout: 5 * time.Second,
	}
	go func() {
		defer close(f.ended)
		_ = f.server.Serve(listener)
	}()
	return f, nil
}

func (f *front) close() {
	f.aim(nil)
	_ = f.server.Close()
	<-f.ended
}

// aim selects the node that receives requests from now on. If n is nil, requests fail.
func (f *front) aim(n *node) {
	old := f.target.Load()
	if old != nil && old.node == n {
		return
	}
	var next *target
	if n != nil {
		next = &target{node: n}
		next.ctx, next.quit = context.WithCancel(context.Background())
	}
	f.target.Store(next)
	if old != nil {
		old.quit()
	}
}

// forward passes the request to the agent. forward keeps the Host and Origin headers, so that the agent can
// check them.
func (f *front) forward(w http.ResponseWriter, r *http.Request) {
	at := f.target.Load()
	if at == nil {
		noAgent(w)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(at.ctx, cancel)()
	(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: at.HTTP})
			r.Out.Host = r.In.Host
		},
		ErrorLog:     log.New(io.Discard, "", 0), // the default is the user's terminal
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { noAgent(w) },
	}).ServeHTTP(w, r.WithContext(ctx))
}

func noAgent(w http.ResponseWriter) {
	refuse(w, http.StatusServiceUnavailable, clusterhttp.CodeNotReady, "no agent answers right now")
}

// press tells the tour to carry out an action and responds with the nodes. Without an action, press only
// responds with the nodes.
func (f *front) press(w http.ResponseWriter, r *http.Request) {
	action, id := r.PathValue("action"), lease.NodeID("")
	if action != "" {
		var problem error
		if id, problem = readID(w, r); problem != nil {
			refuse(w, http.StatusBadRequest, clusterhttp.CodeBadRequest, problem.Error())
			return
		}
	}
	obey := f.obey.Load()
	switch {
	case obey == nil && action == "":
		send(w, http.StatusOK, stage{Touring: true, Nodes: []staged{}})
	case obey == nil:
		refuse(w, http.StatusConflict, clusterhttp.CodeNotReady, "the tour is still running; after it, you can change the cluster")
	default:
		stage, problem := (*obey)(action, id) // takes about a second
		if problem != nil {
			send(w, problem.Status, problem)
			return
		}
		send(w, http.StatusOK, stage)
	}
}

// readID reads the id of a node from the JSON body. A page from another origin cannot send this content type
// without a preflight request. A page whose host name resolves to this machine is recognized by its Host
// header.
func readID(w http.ResponseWriter, r *http.Request) (lease.NodeID, error) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return "", errors.New("the body must be JSON, with Content-Type: application/json")
	}
	if !local(r.Host) {
		return "", errors.New("open the demo at an IP address or localhost, not at another name")
	}
	var body struct{ ID lease.NodeID }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&body); err != nil {
		return "", fmt.Errorf("the body: %w", err)
	}
	return body.ID, nil
}

func local(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

func refuse(w http.ResponseWriter, status int, code, why string) {
	send(w, status, clusterhttp.Problem{Code: code, Message: why})
}

func send(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}
