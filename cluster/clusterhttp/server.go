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

// NewServer returns a server for h. h can be the result of [Handler], or a mux that contains it. The server limits the
// resources that idle, slow and hostile clients can use. Call Serve with a listener, or set Addr and call
// ListenAndServe.
//
// At most 4,096 connections are open at the same time, and at most 256 of them without a request in progress. At either
// limit, the server closes the connection that has waited longest for its client. Idle connections therefore cannot
// block other clients, and cannot use up the application's file descriptors or memory. If you need more event streams
// ([Options].MaxStreams), set ConnState to nil to remove both limits.
//
// On Linux and over HTTP/2, the server closes a connection whose client acknowledges nothing for 30 s. If a host
// vanishes, its event streams therefore end within a minute.
//
// WriteTimeout is longer than most responses can take. An event stream instead sets a deadline for each event, and a
// call that waits for agreement sets its own deadline. To set deadlines, the handler needs http.ResponseController, so
// middleware around the handler must implement Unwrap. Without Unwrap, a stream ends after WriteTimeout and its client
// reconnects. Shutdown ends the streams immediately and waits for other requests.
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
	// maxConns is four times the default number of event streams. maxConns is also far below the usual limit
	// of file descriptors.
	maxConns = 4096

	// maxWaiting limits the connections that wait for a request or for the rest of its headers. One limit
	// covers both, because net/http does not distinguish them. A waiting connection can take a third of a
	// megabyte of memory for short headers that have already arrived.
	maxWaiting = 256

	// writeBuffer is how many bytes of a response the kernel buffers for a client that does not read. By
	// default, the kernel buffers several megabytes for each event stream.
	writeBuffer = 64 << 10

	// ackTime is how long a client's host may leave data unacknowledged before the server closes the connection. With
	// the default of Linux, the event streams of a vanished host would keep their places for a quarter of an hour.
	ackTime = 30 * time.Second
)

// conns limits the connections of a server. At the limit, conns closes the connection that has waited longest
// for its client. Silent or slow clients therefore cannot block other clients. A connection with a request in
// progress, such as an event stream, is never closed.
type conns struct {
	most, mostWaiting int

	mu      sync.Mutex
	of      map[net.Conn]*conn
	waiting list.List // elements are of type *conn; the first has waited longest
}

// conn is an open connection.
type conn struct {
	net.Conn
	at    *list.Element // element in waiting; nil during a request
	asked bool          // a request was served, and the kernel may still hold its response
}

func newConns(most, mostWaiting int) *conns {
	return &conns{most: most, mostWaiting: mostWaiting, of: make(map[net.Conn]*conn)}
}

// connKey is the context key of a request's net.Conn.
type connKey struct{}

// ConnContext limits how much memory and time the kernel spends on a client that does not read. If you serve
// a [Handler] with a server that does not come from [NewServer], set the server's ConnContext to this
// function.
//
// On Linux, ConnContext makes the kernel close a TCP connection when the client's host has acknowledged
// nothing for 30 s. Without ConnContext, a vanished host keeps its event streams for a quarter of an hour. On
// all systems, ConnContext limits the kernel's write buffer of each connection to 64 kB. ConnContext supports
// TLS connections, and returns ctx unchanged.
func ConnContext(ctx context.Context, nc net.Conn) context.Context {
	if tcp, ok := raw(nc).(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(writeBuffer) // works on any open connection
		limitAcks(tcp)
	}
	return ctx
}

// context is the ConnContext of the server. The context also stores the connection, which around needs.
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

// changed is the ConnState of the server.
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

// around returns a handler that calls h and tracks its requests.
func (s *conns) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nc, _ := r.Context().Value(connKey{}).(net.Conn)
		s.answer(nc)
		h.ServeHTTP(w, r)
	})
}

// answer removes a connection from the waiting list. After the response, net/http reports that the connection
// is idle or closed. Over HTTP/2, net/http reports that only after the last of several concurrent responses.
func (s *conns) answer(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.of[nc]; c != nil && c.at != nil {
		s.waiting.Remove(c.at)
		c.at, c.asked = nil, true
	}
}

// wait appends c to the waiting list. If there are now too many connections, wait closes the first connection
// in the list. net/http notices the close.
func (s *conns) wait(c *conn) {
	if c.at != nil { // the server itself responded, for example to OPTIONS *
		s.waiting.Remove(c.at)
	}
	c.at = s.waiting.PushBack(c)
	if len(s.of) > s.most || s.waiting.Len() > s.mostWaiting {
		first := s.waiting.Front().Value.(*conn) // this is c itself if all other connections have a request in progress
		s.forget(first)
		first.abort()
	}
}

// abort closes a connection without waiting. abort bypasses TLS, because TLS would first send an alert, which takes up
// to 5 s if the client does not read. The kernel drops the rest of a response that the client has not read.
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
