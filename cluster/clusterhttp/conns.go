package clusterhttp

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

const (
	// maxConns is four times what the event streams take by default, and a small
	// part of the file descriptors that processes are commonly allowed.
	maxConns = 4096

	// maxWaiting bounds the connections that wait for a request, be it the first or
	// the next one, or for the rest of its headers: net/http does not tell which, and
	// a third of a megabyte of short headers may have come.
	maxWaiting = 256

	// writeBuffer is how many bytes the kernel takes of an answer that its client
	// does not read. Left to itself it takes some megabytes, for each event stream.
	writeBuffer = 64 << 10
)

// conns bounds the connections of a server. For one too many, the one goes that has
// waited longest for its client. So a crowd that holds all places by silence, or by
// sending slowly, keeps nobody else out; and a connection that is being answered, as
// an event stream is, never has to go.
type conns struct {
	most, mostWaiting int

	mu      sync.Mutex
	of      map[net.Conn]*conn
	waiting list.List // of *conn, the one that waits longest first
}

// conn is an open connection.
type conn struct {
	net.Conn
	at *list.Element // of those that wait; nil while it is answered
}

func newConns(most, mostWaiting int) *conns {
	return &conns{most: most, mostWaiting: mostWaiting, of: make(map[net.Conn]*conn)}
}

// connKey is the context key of a request's net.Conn.
type connKey struct{}

// context is for http.Server.ConnContext.
func (s *conns) context(ctx context.Context, nc net.Conn) context.Context {
	raw := nc
	if secure, ok := nc.(interface{ NetConn() net.Conn }); ok {
		raw = secure.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(writeBuffer) // works on any open connection
	}
	return context.WithValue(ctx, connKey{}, nc)
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
	case c == nil: // it has been closed here
	case state == http.StateIdle:
		s.wait(c)
	case state == http.StateClosed || state == http.StateHijacked:
		s.forget(c)
	}
}

// around tells of the requests that h answers.
func (s *conns) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nc, _ := r.Context().Value(connKey{}).(net.Conn)
		s.answer(nc)
		h.ServeHTTP(w, r)
	})
}

// answer takes a connection from those that wait. After its answer it is idle, or
// closed; over HTTP/2, after the last of several.
func (s *conns) answer(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.of[nc]; c != nil && c.at != nil {
		s.waiting.Remove(c.at)
		c.at = nil
	}
}

// wait has c be the last of those that wait, and closes the first if there are too
// many now. net/http finds that it is closed.
func (s *conns) wait(c *conn) {
	if c.at != nil { // it was answered by the server alone, as OPTIONS * is
		s.waiting.Remove(c.at)
	}
	c.at = s.waiting.PushBack(c)
	if len(s.of) > s.most || s.waiting.Len() > s.mostWaiting {
		first := s.waiting.Front().Value.(*conn) // c itself, if all others are answered
		s.forget(first)
		_ = first.Close()
	}
}

func (s *conns) forget(c *conn) {
	delete(s.of, c.Conn)
	if c.at != nil {
		s.waiting.Remove(c.at)
	}
}
