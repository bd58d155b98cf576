package signalling

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// Where responds with the node of a room and pins the room if necessary. Clients use Where as the resolve
// function of reconnect.mjs. WebSocket connections cannot be redirected, so WebSocket clients must query
// Where before they connect.
func Where(rooms *affinity.Resolver) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, ok := resolve(w, r, rooms); ok {
			write(w, d)
		}
	})
}

// Redirect responds with a 307 redirect to the same path and query on the node of the room. A WHIP or WHEP
// client then sends its offer to that node. Redirect pins the room if necessary. scheme is the URL scheme of
// the nodes, either https or http. Don't mount Redirect at the same path on the nodes that host rooms,
// because those nodes would redirect to themselves.
func Redirect(rooms *affinity.Resolver, scheme string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, ok := resolve(w, r, rooms); ok {
			w.Header().Set("Location", scheme+"://"+d.Addr+r.URL.RequestURI())
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	})
}

// Report handles reports from clients that have lost the connection to the node of a room. See
// affinity.Resolver.Report. The body is the directive that the client had, or empty. The response is the
// current directive and takes at most a second.
func Report(rooms *affinity.Resolver) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		var lost reconnect.Directive
		const enough = 4 << 10
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, enough)).Decode(&lost)
		if err != nil && !errors.Is(err, io.EOF) {
			http.Error(w, "the body is not a directive", http.StatusBadRequest)
			return
		}
		lost.Room = r.PathValue("room")
		a, err := rooms.Report(r.Context(), lost)
		if d, ok := known(w, a, err); ok {
			write(w, d)
		}
	})
}

// JavaScript serves reconnect.mjs.
func JavaScript() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write(reconnect.JavaScript()) // an error means that the client has disconnected
	})
}

// resolve returns the node of the room in the request. If resolve fails, it writes the error response.
func resolve(w http.ResponseWriter, r *http.Request, rooms *affinity.Resolver) (reconnect.Directive, bool) {
	w.Header().Set("Cache-Control", "no-store")
	a, err := rooms.Resolve(r.Context(), r.PathValue("room"), affinity.Demand{})
	return known(w, a, err)
}

// known returns the directive of an assignment that has an address. Otherwise, known writes the error
// response.
func known(w http.ResponseWriter, a affinity.Assignment, err error) (reconnect.Directive, bool) {
	d := a.Directive()
	switch {
	case errors.Is(err, affinity.ErrName):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, affinity.ErrNoPin):
		http.Error(w, "the room has no node", http.StatusNotFound)
	case err != nil || d.Addr == "":
		w.Header().Set("Retry-After", "1")
		http.Error(w, "no node accepts this room now", http.StatusServiceUnavailable)
	default:
		return d, true
	}
	return d, false
}

func write(w http.ResponseWriter, d reconnect.Directive) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(d) // an error means that the client has disconnected
}
