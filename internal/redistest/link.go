package redistest

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Link is a TCP proxy in front of a server that can inject faults. Without a fault, it forwards all bytes.
// Its methods are safe for concurrent use.
type Link struct {
	tb   testing.TB
	addr string
	wg   sync.WaitGroup

	mu       sync.Mutex
	target   string
	listener net.Listener // nil while cut
	hang     bool
	delay    time.Duration
	changed  chan struct{} // closed and replaced when hang or delay change
	pairs    map[*pair]struct{}
}

// pair is a client's connection to the link, together with the link's connection to the target.
type pair struct {
	client, server net.Conn      // server is nil before dialing
	broken         chan struct{} // closed when both connections are closed
}

// Proxy starts a link to target, a host:port. The target does not need to be running. Clients that learn
// addresses from a cluster or a sentinel bypass the link, so use [Server.Pause] for these servers.
func Proxy(tb testing.TB, target string) *Link {
	tb.Helper()
	return proxyAt(tb, net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(tb))), target)
}

func proxyAt(tb testing.TB, addr, target string) *Link {
	tb.Helper()
	l := &Link{
		tb: tb, target: target, addr: addr,
		changed: make(chan struct{}), pairs: map[*pair]struct{}{},
	}
	tb.Cleanup(func() { l.Cut(); l.wg.Wait() })
	l.Heal()
	return l
}

// Addr returns the host:port to use instead of the target.
func (l *Link) Addr() string { return l.addr }

// URL returns the URL of the server via the link.
func (l *Link) URL(s *Server) string { return s.urlOf(l.addr) }

// Hang stops forwarding in both directions. Open connections stay open, and the link accepts new connections,
// but forwards nothing. If one side closes its connection, the other side does not notice.
func (l *Link) Hang() { l.set(true, 0) }

// Delay delays bytes by d, in each direction.
func (l *Link) Delay(d time.Duration) { l.set(false, d) }

// Retarget connects new clients to another target. Open connections still lead to the old target.
func (l *Link) Retarget(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

// Cut resets all connections and refuses new ones. Delayed bytes are lost.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil {
		_ = l.listener.Close()
		l.listener = nil
	}
	for p := range l.pairs {
		l.drop(p, true)
	}
}

// Heal ends Hang, Delay and Cut. The link then forwards the bytes that it held back.
func (l *Link) Heal() {
	l.tb.Helper()
	l.set(false, 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil {
		return
	}
	var listener net.Listener
	Eventually(l.tb, "port of the link", func() (err error) {
		listener, err = net.Listen("tcp", l.addr)
		return err
	})
	l.listener = listener
	l.wg.Go(func() { l.accept(listener) })
}

func (l *Link) set(hang bool, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hang, l.delay = hang, delay
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Link) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		p := &pair{client: conn, broken: make(chan struct{})}
		l.mu.Lock()
		l.pairs[p] = struct{}{}
		if l.listener != listener {
			l.drop(p, true) // accepted while the link was cut
		}
		l.mu.Unlock()
		l.wg.Go(func() { l.serve(p) })
	}
}

func (l *Link) serve(p *pair) {
	defer l.end(p)
	if !l.pass(p, time.Now()) {
		return
	}
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	l.mu.Lock()
	p.server = server
	if _, ok := l.pairs[p]; !ok {
		_ = server.Close() // broken during the dial; no other code closes this end
	}
	l.mu.Unlock()
	l.wg.Go(func() { l.pump(p, server, p.client) })
	l.pump(p, p.client, server)
}

// chunk contains bytes that the link has read from one side, and the time when it read them.
type chunk struct {
	bytes []byte
	at    time.Time
}

// pump forwards bytes until one side closes, and then closes the pair. While bytes are delayed, pump
// continues to read, because a long network path also has bytes in flight.
func (l *Link) pump(p *pair, from, to net.Conn) {
	defer l.end(p)
	const most = 1024 // chunks on the line
	line := make(chan chunk, most)
	l.wg.Go(func() {
		defer close(line)
		for {
			buf := make([]byte, 32<<10)
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case line <- chunk{buf[:n:n], time.Now()}:
				case <-p.broken:
					return
				}
			}
			if err != nil {
				select {
				case line <- chunk{nil, time.Now()}: // the end of the stream is delayed like bytes
				case <-p.broken:
				}
				return
			}
		}
	})
	for c := range line {
		if !l.pass(p, c.at) || c.bytes == nil {
			return
		}
		if _, err := to.Write(c.bytes); err != nil {
			return
		}
	}
}

// pass waits until bytes that were sent at the given time can be forwarded. It returns false if the pair is
// closed before that.
func (l *Link) pass(p *pair, sent time.Time) bool {
	for {
		l.mu.Lock()
		hang, delay, changed := l.hang, l.delay, l.changed
		l.mu.Unlock()
		left := time.Until(sent.Add(delay))
		if !hang && (delay == 0 || left <= 0) {
			return true
		}
		var over <-chan time.Time
		if !hang {
			over = time.After(left)
		}
		select {
		case <-over:
			return true
		case <-changed:
		case <-p.broken:
			return false
		}
	}
}

func (l *Link) end(p *pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(p, false)
}

// drop closes both connections. If reset is true, both sides lose unread bytes. The caller must hold mu.
func (l *Link) drop(p *pair, reset bool) {
	if _, ok := l.pairs[p]; !ok {
		return
	}
	delete(l.pairs, p)
	close(p.broken)
	for _, c := range []net.Conn{p.client, p.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			if reset {
				_ = tcp.SetLinger(0)
			}
			_ = tcp.Close()
		}
	}
}
