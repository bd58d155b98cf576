package main

import (
	"embed"
	"encoding/json"
	"net"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// web is the page for participants in a browser. Each node serves it, and so does the demo.
//
//go:embed web
var web embed.FS

// door is a node that clients can ask for their room.
type door struct {
	ID   string `json:"id"`
	Addr string `json:"addr"` // host:port of HTTP
}

func doorsOf(members []*cluster.Member) (all []door) {
	for _, m := range members {
		all = append(all, door{string(m.ID), m.APIAddr})
	}
	return all
}

// overview is what the page shows besides its own call.
type overview struct {
	Nodes  []door     `json:"nodes"`
	Faults []faultRow `json:"faults,omitempty"` // of the demo
	Doing  string     `json:"doing,omitempty"`  // what the demo is doing
}

// servePage serves the page and the data that it reads.
func servePage(mux *http.ServeMux, look func() overview) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, web, "web/page.html") })
	mux.HandleFunc("GET /web/{file}", func(w http.ResponseWriter, r *http.Request) {
		types := map[string]string{".css": "text/css; charset=utf-8", ".mjs": "text/javascript; charset=utf-8"}
		if kind := types[path.Ext(r.PathValue("file"))]; kind != "" {
			w.Header().Set("Content-Type", kind) // the system's table of types can differ
		}
		http.ServeFileFS(w, r, web, path.Join("web", r.PathValue("file"))) //nolint:gosec // embedded files: fs.FS has no way out
	})
	mux.HandleFunc("GET /reconnect.mjs", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write(reconnect.JavaScript()) // an error means that the client disconnected
	})
	mux.Handle("GET /overview", anyOrigin(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(look()) // an error means that the client disconnected
	})))
}

// anyOrigin allows pages of any origin to send requests, so that the page of one node can ask other nodes.
// Allowing all origins is safe because there are no cookies and no login. A service with a login should list
// its own origins.
func anyOrigin(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		h.ServeHTTP(w, r)
	})
}

// faultRow describes the effect of a fault on the calls of the demo.
type faultRow struct {
	What    string   `json:"what"`
	Moved   int      `json:"moved"`
	Rooms   int      `json:"rooms"`
	Sound   [3]int64 `json:"sound"`   // ms: p50, p95, max
	Picture [3]int64 `json:"picture"` // ms
	Parts   []part   `json:"parts"`   // parts of the time until the new node is reached, medians
	GaveUp  int      `json:"gave_up"`
}

type part struct {
	Name string `json:"name"`
	MS   int64  `json:"ms"`
}

func three(gaps []time.Duration) (ms [3]int64) {
	for i, p := range []int{50, 95, 100} {
		ms[i] = percentile(gaps, p).Milliseconds()
	}
	return ms
}

// open serves the page of the demo, which keeps running when nodes end. open returns the host:port of the
// page.
func (s *show) open(listen string) (addr string, end func(), err error) {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return "", nil, err
	}
	mux := http.NewServeMux()
	servePage(mux, s.overview)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	return listener.Addr().String(), func() {
		_ = server.Close()
		<-served
	}, nil
}

// overview returns what the page shows.
func (s *show) overview() overview {
	s.mu.Lock()
	defer s.mu.Unlock()
	return overview{Nodes: s.farm.open(), Faults: slices.Clone(s.faults), Doing: s.doing}
}
