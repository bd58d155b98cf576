package signalling

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// Where responds with where a room lives, and pins it if necessary. It is the resolve of reconnect.mjs. A
// WebSocket cannot be redirected, so its client asks Where first.
func Where(rooms *affinity.Resolver) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, ok := resolve(w, r, rooms); ok {
			write(w, d)
		}
	})
}

// Redirect responds with a 307 to the same path and query on the node of the room, so that a WHIP or WHEP
// client sends its offer there. It pins the room if necessary. scheme is that of the nodes, https or http.
// Don't mount Redirect at this path on the nodes of rooms, because they would redirect to themselves.
func Redirect(rooms *affinity.Resolver, scheme string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, ok := resolve(w, r, rooms); ok {
			w.Header().Set("Location", scheme+"://"+d.Addr+r.URL.RequestURI())
			w.WriteHeader(http.StatusTemporaryRedirect)
		}
	})
}

// Report is for clients that have lost the connection to the node of a room: see affinity.Resolver.Report.
// The body is the directive that the client had, or empty. The response is the present directive, after at
// most a second.
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

// resolve returns where the room of a request lives, or responds with the error.
func resolve(w http.ResponseWriter, r *http.Request, rooms *affinity.Resolver) (reconnect.Directive, bool) {
	w.Header().Set("Cache-Control", "no-store")
	a, err := rooms.Resolve(r.Context(), r.PathValue("room"), affinity.Demand{})
	return known(w, a, err)
}

// known returns the directive of an assignment if it has an address, or responds with the error.
func known(w http.ResponseWriter, a affinity.Assignment, err error) (reconnect.Directive, bool) {
	d := a.Directive()
	switch {
	case errors.Is(err, affinity.ErrName):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, affinity.ErrNoPin):
		http.Error(w, "the room has no node", http.StatusNotFound)
	case err != nil || d.Addr == "":
		w.Header().Set("Retry-After", "1")
		http.Error(w, "no node for this room now", http.StatusServiceUnavailable)
	default:
		return d, true
	}
	return d, false
}

func write(w http.ResponseWriter, d reconnect.Directive) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(d) // an error means that the client has disconnected
}
