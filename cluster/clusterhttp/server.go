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

// NewServer returns a server for h, which may be a [Handler] or a mux that contains one. The server limits
// what idle, slow or hostile clients can cost. Call Serve with a listener, or set Addr and call
// ListenAndServe.
//
// At most 4,096 connections are open at the same time, and at most 256 of them without a request in progress.
// At the limit, the server closes the connection that has waited longest for its client. So idle connections
// can neither block other clients nor use up the file descriptors or memory of the application. If you need
// more event streams ([Options].MaxStreams), set ConnState to nil, which removes both limits.
//
// On Linux and over HTTP/2, a connection whose client acknowledges nothing for 30 s is closed. So the event
// streams of a vanished host end within a minute.
//
// WriteTimeout is longer than any response may take, with two exceptions: an event stream replaces it with a
// deadline for each event, and a call that waits for agreement replaces it with its own deadline. For that,
// middleware around the handler must support http.ResponseController (with Unwrap). Otherwise the stream ends
// after WriteTimeout and its client reconnects. Shutdown ends the streams at once and waits for other
// requests.
func NewServer(h http.Handler) *http.Server {
	if h == nil {
		h = http.DefaultServeMux // like http.Server
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
	// maxConns is four times the default number of event streams, and a small part of the usual limit of file
	// descriptors.
	maxConns = 4096

	// maxWaiting is how many connections may wait for their first or next request or the rest of its headers,
	// which net/http does not distinguish. A third of a megabyte of short headers may have arrived on each.
	maxWaiting = 256

	// writeBuffer is how many bytes of a response the kernel buffers for a client that
	// does not read. The default is some megabytes for each event stream.
	writeBuffer = 64 << 10

	// ackTime is how long a client's host may acknowledge nothing. With the default of Linux, a quarter of an
	// hour, the event streams of a vanished host would keep their places that long.
	ackTime = 30 * time.Second
)

// conns limits the connections of a server. At the limit, it closes the connection that has waited longest
// for its client. So a crowd of silent or slow clients cannot block other clients. A connection with a
// request in progress, such as an event stream, is never closed.
type conns struct {
	most, mostWaiting int

	mu      sync.Mutex
	of      map[net.Conn]*conn
	waiting list.List // of *conn, longest wait first
}

// conn is an open connection.
type conn struct {
	net.Conn
	at    *list.Element // element in waiting; nil during a request
	asked bool          // there was a request, whose response the kernel may still hold
}

func newConns(most, mostWaiting int) *conns {
	return &conns{most: most, mostWaiting: mostWaiting, of: make(map[net.Conn]*conn)}
}

// connKey is the context key of a request's net.Conn.
type connKey struct{}

// ConnContext is for the http.Server.ConnContext of a server with a [Handler] that does not come from
// [NewServer]. On Linux, it makes the kernel close a TCP connection when the client's host has acknowledged
// nothing for 30 s, because it has vanished or its application does not read. Without it, a vanished host
// keeps its event streams for a quarter of an hour. It also limits what the kernel buffers for each
// connection to 64 kB. It supports TLS connections. It returns ctx.
func ConnContext(ctx context.Context, nc net.Conn) context.Context {
	if tcp, ok := raw(nc).(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(writeBuffer) // works on any open connection
		limitAcks(tcp)
	}
	return ctx
}

// context is an http.Server.ConnContext.
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

// changed is an http.Server.ConnState.
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

// answer removes a connection from the waiting list. After the response it is idle or closed, over HTTP/2
// after the last of several responses.
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
	if c.at != nil { // the server itself responded, for example to OPTIONS *
		s.waiting.Remove(c.at)
	}
	c.at = s.waiting.PushBack(c)
	if len(s.of) > s.most || s.waiting.Len() > s.mostWaiting {
		first := s.waiting.Front().Value.(*conn) // c itself, if all others are in a request
		s.forget(first)
		first.abort()
	}
}

// abort closes a connection at once. It bypasses TLS, which would first send an alert, for up to 5 s if the
// client does not read, and it makes the kernel drop the rest of a response that the client does not read.
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
