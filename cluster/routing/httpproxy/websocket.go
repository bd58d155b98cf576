package httpproxy

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// lookOften is how often the proxy looks up the owner of the key of a WebSocket. There are many WebSockets, and
	// they stay open for long, so the proxy looks less often than for a request that waits for its response.
	lookOften = time.Second

	// closeWait is how long the server may take to end a frame that it has begun, and how long the client may take to
	// close the connection.
	closeWait = 5 * time.Second
)

// movedFrame is the close frame of a WebSocket whose key has moved: status 1012 (Service Restart), "moved".
const movedFrame = "\x88\x07\x03\xf4moved"

// webSocket is the connection to the client of a WebSocket. When the key moves, webSocket closes the connection
// between two frames of the server.
type webSocket struct {
	net.Conn // set when a server has accepted the WebSocket

	watched *watch
	cancel  context.CancelFunc // breaks off the request
	opened  sync.Once

	mu     sync.Mutex // held while writing
	frames frames
	moved  bool // the key has another server
	closed bool // nothing more is written
}

// upgrades reports whether a request asks for a WebSocket.
func upgrades(r *http.Request) bool { return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") }

// webSocket forwards a request for a WebSocket, and closes the WebSocket when its key moves.
func (p *Proxy) webSocket(w http.ResponseWriter, r *http.Request, way route) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s := &webSocket{cancel: cancel}
	s.watched = &watch{router: &router{p}, way: way, every: lookOften, cancel: s.close}
	defer s.watched.end(true)
	way.socket = s
	p.proxy.ServeHTTP(&hijacker{w, s}, r.WithContext(context.WithValue(ctx, routeKey{}, way)))
}

// answered tells the watch of a WebSocket which server has answered.
func (r route) answered() {
	if r.socket != nil {
		r.socket.watched.way.addr = r.addr
	}
}

// hijacker gives out its socket in place of the connection.
type hijacker struct {
	http.ResponseWriter

	socket *webSocket
}

// Unwrap lets http.ResponseController flush the response of a server that refuses the WebSocket.
func (h *hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (_ net.Conn, buffered *bufio.ReadWriter, err error) {
	h.socket.Conn, buffered, err = http.NewResponseController(h.ResponseWriter).Hijack()
	return h.socket, buffered, err
}

// Read reads from the client. The watch begins with the first Read, because a close frame before the end of the
// handshake would break the handshake.
func (s *webSocket) Read(p []byte) (int, error) {
	s.opened.Do(s.watched.start)
	return s.Conn.Read(p)
}

// Write writes to the client. After the key has moved, Write writes the rest of a frame and the close frame, and drops
// everything after that.
func (s *webSocket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return len(p), nil
	case !s.moved:
		for rest := p; len(rest) > 0; {
			rest = rest[s.frames.next(rest):]
		}
		return s.Conn.Write(p)
	}
	if n, err := s.Conn.Write(p[:s.frames.next(p)]); err != nil {
		return n, err
	}
	if s.frames.between() {
		s.finish()
	}
	return len(p), nil
}

// CloseWrite tells the client that the server sends nothing more.
func (s *webSocket) CloseWrite() error {
	if half, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return s.Conn.Close()
}

// close sends the close frame now, or when the server has ended its frame. If the server or the client takes longer
// than closeWait, close breaks off the request and closes the client's connection.
func (s *webSocket) close() {
	time.AfterFunc(closeWait, func() { // start the timer before Lock, because a write to a client that does not read holds mu
		s.cancel()
		_ = s.Conn.Close()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moved = true; s.frames.between() {
		s.finish()
	}
}

// finish sends the close frame, unless the server has sent its own. The caller holds mu.
func (s *webSocket) finish() {
	s.closed = true
	if !s.frames.closed {
		_, _ = io.WriteString(s.Conn, movedFrame)
	}
	_ = s.CloseWrite() // the client need not wait for the old server to hang up
}

const opClose = 0x8

// frames finds the end of each WebSocket frame (RFC 6455, section 5.2).
type frames struct {
	header [14]byte
	read   int    // bytes of the header
	left   uint64 // bytes of the payload
	closed bool   // a close frame has ended
}

// between reports whether a frame has ended and the next one has not begun.
func (f *frames) between() bool { return f.read == 0 }

// next returns how many bytes of p belong to the current frame.
func (f *frames) next(p []byte) (n int) {
	for n < len(p) && f.read < f.size() {
		f.header[f.read] = p[n]
		f.read, n = f.read+1, n+1
		if f.read == f.size() {
			f.left = f.payload()
		}
	}
	if f.read < f.size() {
		return n
	}
	part := min(f.left, uint64(len(p)-n))
	if f.left -= part; f.left == 0 {
		f.closed = f.closed || f.header[0]&0xf == opClose
		f.read = 0
	}
	return n + int(part)
}

// size returns the size of the header, as far as it is known.
func (f *frames) size() int {
	size := 2
	if f.read < size {
		return size
	}
	switch f.header[1] & 0x7f {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if f.header[1]&0x80 != 0 { // the masking key
		size += 4
	}
	return size
}

func (f *frames) payload() uint64 {
	switch length := f.header[1] & 0x7f; length {
	case 126:
		return uint64(binary.BigEndian.Uint16(f.header[2:]))
	case 127:
		return binary.BigEndian.Uint64(f.header[2:])
	default:
		return uint64(length)
	}
}
