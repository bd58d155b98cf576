package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// node is a media server.
type node struct {
	fleet  *fleet
	media  *media
	server *http.Server
	stop   context.CancelFunc // ends the WHIP and WHEP sessions
	ctx    context.Context    // of these sessions
	addr   string             // host:port of the HTTP server
	most   int                // maximum number of subscribers of a room
	log    *slog.Logger

	timeout time.Duration // for a client to send its offer or to receive a message

	mu       sync.Mutex
	sessions map[string]*peer // WHIP and WHEP sessions by id
}

type nodeConfig struct {
	cluster.Config
	listen string // host:port for HTTP
	media  string // host:port for all media
	redis  string
	most   int // maximum number of subscribers of a room, or of one of its relays; 0 means no limit

	rebalance int // see affinity.Config.Rebalance
}

func startNode(ctx context.Context, cfg nodeConfig) (_ *node, err error) {
	n := &node{sessions: make(map[string]*peer), most: cfg.most, log: cfg.Log, timeout: 10 * time.Second}
	listener, err := net.Listen("tcp", cfg.listen)
	if err != nil {
		return nil, err
	}
	if n.media, err = openMedia(cfg.media); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	n.ctx, n.stop = context.WithCancel(context.WithoutCancel(ctx))
	mux := http.NewServeMux()
	n.addr = listener.Addr().String()
	cfg.APIAddr = n.addr
	if n.fleet, err = joinFleet(ctx, cfg.Config, cfg.redis, cfg.rebalance, mux); err != nil {
		return nil, errors.Join(err, listener.Close(), n.media.close())
	}
	mux.HandleFunc("GET /join/{room}", n.join)
	mux.HandleFunc("POST /whip/{room}", n.post("a=sendonly"))
	mux.HandleFunc("POST /whep/{room}", n.post("a=recvonly"))
	mux.HandleFunc("DELETE /session/{id}", n.remove)
	mux.HandleFunc("GET /stats", n.stats)
	servePage(mux, func() overview { return overview{Nodes: doorsOf(n.fleet.agent.Members())} })
	n.server = &http.Server{Handler: n.timely(mux), ReadHeaderTimeout: n.timeout}
	go func() { _ = n.server.Serve(listener) }()
	return n, nil
}

// timely limits the time in which the body of a request must arrive. Server.ReadTimeout is not used, because
// it would also end event streams.
func (n *node) timely(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(n.timeout)) // an error means that the client has disconnected
		}
		h.ServeHTTP(w, r)
	})
}

// close moves all rooms to other nodes and stops the node.
func (n *node) close(ctx context.Context) error {
	err := n.fleet.leave(ctx)
	n.stop()
	return errors.Join(err, n.server.Close(), n.media.close())
}

// message is sent by clients and nodes over the WebSocket of a participant.
type message struct {
	Offer  string `json:"offer,omitempty"`  // from the client, once
	Relay  bool   `json:"relay,omitempty"`  // with an offer from a node that relays the room
	Answer string `json:"answer,omitempty"` // to the client, once
	// In a message with an answer, Home is this node. In other messages, Home is the node to which the room
	// or one of its relays has moved.
	Home *reconnect.Directive `json:"home,omitempty"`
	Done bool                 `json:"done,omitempty"` // from the client: another node now serves it
}

// largestMessage is large enough for an offer with many tracks.
const largestMessage = 64 << 10

// join serves a participant over a WebSocket, which stays open as long as this node serves the participant.
func (n *node) join(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{OriginPatterns: []string{"*"}}) // see anyOrigin
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(largestMessage)
	var in message
	soon, received := context.WithTimeout(r.Context(), n.timeout)
	err = wsjson.Read(soon, ws, &in)
	received()
	if err != nil {
		return
	}
	// When the client closes the WebSocket, ctx is canceled, which ends serve.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	send := func(m message) error {
		soon, sent := context.WithTimeout(r.Context(), n.timeout) // so that a client that does not read cannot keep the room here
		defer sent()
		return wsjson.Write(soon, ws, m)
	}
	room := r.PathValue("room")
	err = n.serve(ctx, room, in, func(lost context.Context, c *call, home reconnect.Directive) error {
		p, answer, err := n.media.join(c, in.Offer)
		if err != nil {
			return err
		}
		defer p.leave()
		if err := send(message{Answer: answer, Home: &home}); err != nil {
			return err
		}
		go listen(ctx, ws, p, cancel)
		select {
		case <-p.gone:
			return nil
		case <-lost.Done():
		}
		to, ok := elsewhere(context.Cause(lost))
		if !ok {
			return nil // the client is gone, or this node has left the fleet
		}
		if err := send(message{Home: &to}); err != nil {
			return err
		}
		c.depart(ctx, p)
		return nil
	})
	if to, ok := directed(err); ok {
		_ = send(message{Home: &to})
	}
	_ = ws.Close(websocket.StatusNormalClosure, "")
}

// listen receives the messages that the client sends after its offer.
func listen(ctx context.Context, ws *websocket.Conn, p *peer, gone func()) {
	defer gone()
	for {
		var in message
		if err := wsjson.Read(ctx, ws, &in); err != nil {
			return
		}
		if in.Done {
			p.done()
		}
	}
}

// depart waits until a participant whose room has moved can be disconnected, for at most linger. A participant can be
// disconnected when it and all other participants here have moved, so that a publisher keeps sending to those who have
// not moved yet.
func (c *call) depart(ctx context.Context, p *peer) {
	late := time.NewTimer(linger)
	defer late.Stop()
	for other := p; other != nil; other = c.waiting() {
		select {
		case <-other.moved:
		case <-p.gone:
			return
		case <-ctx.Done():
			return
		case <-late.C:
			return
		}
	}
}

// post serves a WHIP or WHEP participant, whose request contains an offer. The media lines of the offer can
// have both directions, but the answer uses only the direction of the protocol.
func (n *node) post(direction string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestMessage))
		if err != nil {
			status := http.StatusRequestTimeout
			if _, large := errors.AsType[*http.MaxBytesError](err); large {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, err.Error(), status)
			return
		}
		offer := strings.ReplaceAll(string(body), "a=sendrecv", direction)
		id, answers, ended := "", make(chan string), make(chan error, 1) // unbuffered, so that no session ends before its answer was received
		go func() {
			ended <- n.session(r.PathValue("room"), offer, func(opened, answer string) {
				id = opened
				answers <- answer
			})
		}()
		select {
		case answer := <-answers:
			w.Header().Set("Content-Type", "application/sdp")
			w.Header().Set("Location", "/session/"+id)
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, answer)
		case err := <-ended:
			n.refuse(w, r, err)
		}
	}
}

// session serves a WHIP or WHEP participant until the participant is gone.
func (n *node) session(room, offer string, opened func(id, answer string)) error {
	return n.serve(n.ctx, room, message{Offer: offer}, func(lost context.Context, c *call, _ reconnect.Directive) error {
		p, answer, err := n.media.join(c, offer)
		if err != nil {
			return err
		}
		defer p.leave()
		id := n.open(p)
		defer n.forget(id)
		opened(id, answer)
		select {
		case <-p.gone:
			return nil
		case <-lost.Done():
		}
		if _, ok := elsewhere(context.Cause(lost)); ok {
			c.depart(n.ctx, p) // the client sends its offer again when the session ends
		}
		return nil
	})
}

// refuse redirects a WHIP or WHEP client to the node of its room, or to a relay. If there is no such node,
// refuse responds with 503, after which clients repeat their offer.
func (n *node) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if to, ok := directed(err); ok {
		verb, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/") // the name of a room can contain slashes too
		w.Header().Set("Location", "http://"+to.Addr+"/"+verb+"/"+url.PathEscape(to.Room))
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	if errors.Is(err, errOffer) {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Retry-After", "1")
	http.Error(w, fmt.Sprint("no participant: ", err), http.StatusServiceUnavailable)
}

func (n *node) open(p *peer) (id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id = rand.Text() // whoever knows the id can end the session
	n.sessions[id] = p
	return id
}

func (n *node) forget(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sessions, id)
}

// remove ends a WHIP or WHEP session.
func (n *node) remove(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	p := n.sessions[r.PathValue("id")]
	n.mu.Unlock()
	if p == nil {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	p.leave()
}

// stats contains what a node reports about itself.
type stats struct {
	Hosted   int `json:"hosted"`   // number of rooms
	Calls    int `json:"calls"`    // calls with participants; after a move, more than are hosted
	Hostings int `json:"hostings"` // number of times that a room started here
	Members  int `json:"members"`  // number of nodes in the fleet
	Watched  int `json:"watched"`  // members whose end this node would notice immediately

	Load  int64            `json:"load"`  // number of forwarded streams, which the fleet uses to place rooms
	Rooms map[string]int64 `json:"rooms"` // cost of each room; the name of a relay ends in ~ and a number

	Peers      int `json:"peers"` // participants and relays of rooms
	Goroutines int `json:"goroutines"`
}

func (n *node) stats(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	s := n.fleet.stats()
	s.Goroutines, s.Peers = runtime.NumGoroutine(), int(n.media.peers.Load())
	if err := json.NewEncoder(w).Encode(s); err != nil {
		slog.Debug("stats not sent", "err", err)
	}
}
