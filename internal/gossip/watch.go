package gossip

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
	"github.com/roost-cluster/roost/lease"
)

// Target is a node to watch.
type Target struct {
	Handle lease.Handle
	Addr   string // ip:port
}

// Watch sets the nodes to which this node keeps watch streams open. A watch stream is a TCP connection on
// which neither side sends data. The kernel of the other host closes the connection when the process there
// ends. If a stream ends and the node cannot be reached again, Config.Ended is called. Watch does not block,
// and does nothing on a closed node.
func (n *Node) Watch(targets []Target) { n.watcher.watch(targets) }

// Ended opens a watch stream to a node and closes it again. It reports whether the process has ended. This is the case
// if its address refuses the connection, or if another process answers there. A node that does not answer, such as a
// paused process, may still be running. Ended takes at most redialTimeout to connect, and returns early if ctx is done.
// The result is not evidence for a failure report, because there was no stream before.
func (n *Node) Ended(ctx context.Context, of Target) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.watcher.ctx, cancel)()
	conn, found := n.watcher.dial(ctx, of, &trial{met: true})
	if conn != nil {
		_ = conn.Close()
	}
	return found == refused || found == replaced
}

// Streams returns the number of open watch streams to other nodes, and from other nodes.
func (n *Node) Streams() (out, in int) {
	return int(n.watcher.open.Load()), n.greeter.watched.count()
}

// keepAliveFor returns a keep-alive that ends the stream if the host has not answered for the given time. The time is
// rounded down to a multiple of 3 s, and is at least 3 s.
func keepAliveFor(idle time.Duration) net.KeepAliveConfig {
	probe := max(time.Second, (idle / 3).Truncate(time.Second))
	return net.KeepAliveConfig{Enable: true, Idle: probe, Interval: probe, Count: 2}
}

const (
	// redialTimeout limits an attempt to reach a node again.
	redialTimeout = 500 * time.Millisecond

	// unreachableFor is how long a node must be unreachable before it is reported. The time does not apply if
	// the node's stream ended because its host was silent. Package lease assumes that the node ended this
	// long before a report with the evidence Silent.
	unreachableFor = 1500 * time.Millisecond

	// firstPause spreads the first attempts, because a change of the live set is often followed immediately
	// by another change.
	firstPause = 500 * time.Millisecond

	shortPause  = 20 * time.Millisecond // after the end of a stream, doubled after each attempt
	openPause   = time.Second           // between attempts to open the first stream, doubled after each attempt
	maxPause    = 30 * time.Second
	stableAfter = time.Second // after a shorter stream, the next attempt waits
)

// watcher manages the watch streams from this node to other nodes.
type watcher struct {
	greeter   *greeter
	firewall  *firewall.Firewall
	ctx       context.Context // ends at Close
	stop      context.CancelFunc
	timeout   time.Duration // timeout of a dial to a node to which there was no stream yet
	keepAlive net.KeepAliveConfig
	ended     func(lease.Handle, lease.Evidence)
	open      atomic.Int64
	wait      sync.WaitGroup

	mu      sync.Mutex
	streams map[Target]context.CancelFunc
	closed  bool
}

func newWatcher(cfg *Config, g *greeter, f *firewall.Firewall) *watcher {
	w := &watcher{greeter: g, firewall: f, timeout: cfg.StreamTimeout, keepAlive: keepAliveFor(cfg.IdleTimeout), ended: cfg.Ended}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

func (w *watcher) watch(targets []Target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	former := w.streams
	w.streams = make(map[Target]context.CancelFunc, len(targets))
	for _, t := range targets {
		if cancel, ok := former[t]; ok {
			w.streams[t] = cancel
			delete(former, t)
			continue
		}
		if w.streams[t] == nil {
			ctx, cancel := context.WithCancel(w.ctx)
			w.streams[t] = cancel
			w.wait.Go(func() { w.hold(ctx, t) })
		}
	}
	for _, cancel := range former {
		cancel()
	}
}

// close ends all streams without reporting failures.
func (w *watcher) close() {
	w.mu.Lock()
	w.closed = true
	w.stop()
	w.mu.Unlock()
	w.wait.Wait()
}

// hold keeps a stream to a node open until the context is done, and reports when the node has ended.
func (w *watcher) hold(ctx context.Context, to Target) {
	t := trial{pause: rand.N(firstPause)}
	for sleep(ctx, t.pause) {
		conn, found := w.dial(ctx, to, &t)
		switch {
		case ctx.Err() != nil:
			if conn != nil {
				_ = conn.Close()
			}
			return
		case found == present:
			opened := time.Now()
			err := w.rest(ctx, conn)
			t.end(opened, time.Now(), err)
		default:
			if e := t.evidence(time.Now(), found); e != 0 {
				w.ended(to.Handle, e)
			}
		}
	}
}

// rest waits until an open stream ends, and then closes it.
func (w *watcher) rest(ctx context.Context, conn net.Conn) error {
	w.open.Add(1)
	defer w.open.Add(-1)
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	return rest(conn, w.keepAlive)
}

// dial tries to open a stream, and returns what it found at the address.
func (w *watcher) dial(ctx context.Context, to Target, t *trial) (net.Conn, finding) {
	if _, err := netip.ParseAddrPort(to.Addr); err != nil { // a name would cause a DNS query
		return nil, unclear
	}
	timeout := w.timeout
	if t.met {
		timeout = redialTimeout
	}
	conn, err := w.firewall.Dial(ctx, memberlist.Address{Addr: to.Addr}, timeout)
	if err != nil {
		return nil, findingOf(err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	found := unclear // something accepts the connection but does not answer, as a paused process does
	if err = conn.SetDeadline(time.Now().Add(w.greeter.headTimeout)); err == nil {
		var h lease.Handle
		h, err = w.greeter.credentials.Load().watch(conn)
		switch {
		case h != 0 && h != to.Handle:
			found = replaced
		case err == nil:
			return conn, present
		}
	}
	_ = conn.Close()
	return nil, found
}

// finding is the result of an attempt to reach a node.
type finding int

const (
	unclear  finding = iota
	present          // the node itself
	replaced         // another incarnation
	refused          // a host on which the process does not run, or a firewall that refuses
	hidden           // no host answers
)

// findingOf returns what a failed dial shows about the other host. Problems of this host, such as a lack of
// file descriptors, show nothing about the other host.
func findingOf(err error) finding {
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case unanswered(err), ok && timeout.Timeout():
		return hidden
	default:
		return unclear
	}
}

// unanswered reports whether a connection failed because the other host does not answer. For such a
// connection, Linux returns ETIMEDOUT, or the error that a router sent.
func unanswered(err error) bool {
	for _, e := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// trial is the state of a watcher for a node to which it has no open stream.
type trial struct {
	met    bool      // a stream was open, and the reason for its end is not known yet
	ended  time.Time // when it ended
	silent bool      // it ended because the host did not answer
	pause  time.Duration
}

// end records the end of a stream.
func (t *trial) end(opened, now time.Time, err error) {
	first := !t.met
	t.met, t.ended = true, now
	t.silent = unanswered(err) || errors.Is(err, syscall.ECONNREFUSED) // ECONNREFUSED came via ICMP; a process that ends resets its streams
	if first || now.Sub(opened) >= stableAfter {
		t.pause = 0
		return
	}
	t.grow()
}

// evidence returns the evidence that a finding provides, or 0 if there is none.
//
// A watcher only has evidence if it had a stream to the node. After a report, it needs a new stream before it
// can report again. The listener of a process that is just ending still accepts connections for a moment and
// then resets them. Such an attempt has the finding unclear, and the next attempt is refused. A process that
// ends also closes its streams. So if a stream ended without an answer from the host, a firewall may have cut
// the stream and may also be refusing the connection.
func (t *trial) evidence(now time.Time, found finding) (e lease.Evidence) {
	switch {
	case !t.met:
	case found == replaced, found == refused && !t.silent:
		e = lease.Refused
	case found == refused, found == hidden && (t.silent || now.Sub(t.ended) >= unreachableFor):
		e = lease.Silent
	}
	if e != 0 {
		t.met = false
	}
	t.grow()
	return e
}

func (t *trial) grow() {
	least := shortPause
	if !t.met {
		least = openPause
	}
	t.pause = min(max(2*t.pause, least), maxPause)
}

// sleep waits for a random time between d/2 and d. It returns false if the context is done.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
