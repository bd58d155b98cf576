package clusterhttp

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

const writeTimeout = 75 * time.Second

// NewServer returns a server for h, which may be a [Handler] alone or a mux that
// holds one, with limits on the cost of an idle, slow or hostile client. Call Serve with
// a listener, or set Addr first.
//
// At most 4,096 connections are open at a time, and at most 256 of them without a request
// in progress. At the limit the server closes the connection that has waited longest for
// its client. So idle connections cannot block other clients, nor use up the file
// descriptors or the memory of the application. For more event streams than that
// ([Options].MaxStreams), set ConnState to nil, which removes both limits.
//
// A connection whose client acknowledges nothing for 30 s is closed, on Linux and over HTTP/2. So the event
// streams of a host that has vanished end within a minute.
//
// WriteTimeout is longer than any response may take, but for two kinds. An event stream replaces it by a
// deadline for each event, and a call that waits for agreement by its own. For that, a middleware around the
// handler must support http.ResponseController (by Unwrap); otherwise the stream ends after WriteTimeout and
// its client reconnects. Shutdown ends the streams at once and waits for other requests.
func NewServer(h http.Handler) *http.Server {
	if h == nil {
		h = http.DefaultServeMux // as for http.Server
	}
	stop := make(chan struct{})
	limits := newConns(maxConns, maxWaiting)
	srv := &http.Server{
		Handler:           limits.around(h),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second, // headers and body
		WriteTimeout:      writeTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10, // a key of 4 kB takes 12 kB when escaped
		HTTP2:             &http.HTTP2Config{WriteByteTimeout: ackTime, SendPingTimeout: ackTime / 2, PingTimeout: ackTime / 2},
		ConnState:         limits.changed,
		ConnContext:       limits.context,
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.Background(), stopKey{}, (<-chan struct{})(stop))
		},
	}
	srv.RegisterOnShutdown(sync.OnceFunc(func() { close(stop) }))
	return srv
}

const (
	// maxConns is four times the default of event streams, and a small part of the
	// usual limit of file descriptors.
	maxConns = 4096

	// maxWaiting bounds the connections that wait for their first or next request, or
	// for the rest of its headers: net/http does not distinguish these, and one third
	// of a megabyte of short headers may have arrived.
	maxWaiting = 256

	// writeBuffer is how many bytes of a response the kernel buffers for a client that
	// does not read. The default is some megabytes for each event stream.
	writeBuffer = 64 << 10

	// ackTime is how long a client's host may acknowledge nothing of what was sent. The default of Linux is a
	// quarter of an hour, for which the event streams of a host that has vanished would keep their places.
	ackTime = 30 * time.Second
)

// conns bounds the connections of a server. At the limit it closes the connection that
// has waited longest for its client. So a crowd of silent or slow clients cannot block
// other clients, and a connection with a request in progress, such as an event stream,
// is never closed.
type conns struct {
	most, mostWaiting int

	mu      sync.Mutex
	of      map[net.Conn]*conn
	waiting list.List // of *conn, longest wait first
}

// conn is an open connection.
type conn struct {
	net.Conn
	at    *list.Element // in waiting; nil during a request
	asked bool          // there was a request, whose answer the kernel may still have
}

func newConns(most, mostWaiting int) *conns {
	return &conns{most: most, mostWaiting: mostWaiting, of: make(map[net.Conn]*conn)}
}

// connKey is the context key of a request's net.Conn.
type connKey struct{}

// ConnContext is for http.Server.ConnContext of a server with a [Handler] that is not by [NewServer]. On
// Linux it closes a TCP connection when the client's host has acknowledged nothing for 30 s, because it has
// vanished or its application does not read. Otherwise a vanished host keeps its event streams for a quarter
// of an hour. It also bounds what the kernel buffers for each connection to 64 kB. The connections may be of
// TLS. It returns ctx.
func ConnContext(ctx context.Context, nc net.Conn) context.Context {
	if tcp, ok := raw(nc).(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(writeBuffer) // works on any open connection
		limitAcks(tcp)
	}
	return ctx
}

// context is for http.Server.ConnContext.
func (s *conns) context(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ConnContext(ctx, nc), connKey{}, nc)
}

// raw returns the connection below TLS.
func raw(nc net.Conn) net.Conn {
	if secure, ok := nc.(interface{ NetConn() net.Conn }); ok {
		return secure.NetConn()
	}
	return nc
}

// changed is for http.Server.ConnState.
func (s *conns) changed(nc net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.of[nc]
	switch {
	case state == http.StateNew:
		c = &conn{Conn: nc}
		s.of[nc] = c
		s.wait(c)
	case c == nil: // closed by wait
	case state == http.StateIdle:
		s.wait(c)
	case state == http.StateClosed || state == http.StateHijacked:
		s.forget(c)
	}
}

// around tracks the requests that h serves.
func (s *conns) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nc, _ := r.Context().Value(connKey{}).(net.Conn)
		s.answer(nc)
		h.ServeHTTP(w, r)
	})
}

// answer removes a connection from the waiting list. After the response it is idle or
// closed; over HTTP/2, after the last of several responses.
func (s *conns) answer(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.of[nc]; c != nil && c.at != nil {
		s.waiting.Remove(c.at)
		c.at, c.asked = nil, true
	}
}

// wait appends c to the waiting list, and closes the first connection if there are too
// many now. net/http notices the close.
func (s *conns) wait(c *conn) {
	if c.at != nil { // the server alone responded, as to OPTIONS *
		s.waiting.Remove(c.at)
	}
	c.at = s.waiting.PushBack(c)
	if len(s.of) > s.most || s.waiting.Len() > s.mostWaiting {
		first := s.waiting.Front().Value.(*conn) // c itself, if all others are in a request
		s.forget(first)
		first.abort()
	}
}

// abort closes a connection at once. TLS would say so first, for up to 5 s if the client does not read, and the kernel
// would keep the rest of an answer for a client that does not read it.
func (c *conn) abort() {
	nc := raw(c.Conn)
	if tcp, ok := nc.(*net.TCPConn); ok && c.asked {
		_ = tcp.SetLinger(0)
	}
	_ = nc.Close()
}

func (s *conns) forget(c *conn) {
	delete(s.of, c.Conn)
	if c.at != nil {
		s.waiting.Remove(c.at)
	}
}
