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

// Watch sets the nodes to which this node holds watch streams from now on: TCP connections
// that say nothing, and that the kernel of the other host closes when the process there
// ends. When a stream ends, and the node cannot be reached again, Config.Ended is called.
// Watch does not wait, and does nothing on a closed node.
func (n *Node) Watch(targets []Target) { n.watcher.watch(targets) }

// Ended opens a watch stream to a node and closes it. It reports whether the process is gone:
// its address refused the connection, or another process answered there. A node that does not
// answer, such as a paused one, may still run. Ended takes at most redialTimeout to connect,
// and ends with ctx. It is no evidence, because there was no stream before.
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

// Streams returns the number of watch streams that are open to other nodes, and from
// other nodes.
func (n *Node) Streams() (out, in int) {
	return int(n.watcher.open.Load()), n.greeter.watched.count()
}

// keepAliveFor returns the keep-alive that ends the stream to a host that has not answered
// for a time: of whole seconds, and at least of 3 s.
func keepAliveFor(idle time.Duration) net.KeepAliveConfig {
	probe := max(time.Second, (idle / 3).Truncate(time.Second))
	return net.KeepAliveConfig{Enable: true, Idle: probe, Interval: probe, Count: 2}
}

const (
	// redialTimeout bounds the attempt to reach a node again.
	redialTimeout = 500 * time.Millisecond

	// unreachableFor is how long a node must be unreachable that did not end the stream by
	// silence. Package lease dates Silent back by the same time.
	unreachableFor = 1500 * time.Millisecond

	// firstPause spreads the first attempts: after a change of the live set, the next
	// change often follows at once.
	firstPause = 500 * time.Millisecond

	shortPause  = 20 * time.Millisecond // after the end of a stream, then doubled
	openPause   = time.Second           // between attempts to open the first stream, then doubled
	maxPause    = 30 * time.Second
	stableAfter = time.Second // after shorter streams the next attempt waits
)

// watcher holds the streams from this node to others.
type watcher struct {
	greeter   *greeter
	firewall  *firewall.Firewall
	ctx       context.Context // ends at Close
	stop      context.CancelFunc
	timeout   time.Duration // of a dial, where nothing is at stake
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

// close ends all streams and reports none of them.
func (w *watcher) close() {
	w.mu.Lock()
	w.closed = true
	w.stop()
	w.mu.Unlock()
	w.wait.Wait()
}

// hold keeps a stream to a node open, and reports the end of the node, until the context
// ends.
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

// rest waits until an open stream ends, and closes it.
func (w *watcher) rest(ctx context.Context, conn net.Conn) error {
	w.open.Add(1)
	defer w.open.Add(-1)
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	return rest(conn, w.keepAlive)
}

// dial opens a stream and reports what it found at the address.
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
	found := unclear // something accepts, and does not answer: a paused process does that
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
	present          // the node
	replaced         // another incarnation
	refused          // a host without the process, or a firewall that says so
	hidden           // no host answers
)

// findingOf returns what a failed dial shows. Problems of this host, such as a lack of file
// descriptors, say nothing of the other one.
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

// unanswered reports whether a connection failed because the other host does not answer.
// Linux ends such a connection by ETIMEDOUT, or by the error that a router sent.
func unanswered(err error) bool {
	for _, e := range []error{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// trial is what a watcher knows of a node without a stream.
type trial struct {
	met    bool      // a stream was open, and its end is not yet explained
	ended  time.Time // when it ended
	silent bool      // it ended because the host did not answer
	pause  time.Duration
}

// end notes the end of a stream.
func (t *trial) end(opened, now time.Time, err error) {
	first := !t.met
	t.met, t.ended = true, now
	t.silent = unanswered(err) || errors.Is(err, syscall.ECONNREFUSED) // by ICMP; a process resets
	if first || now.Sub(opened) >= stableAfter {
		t.pause = 0
		return
	}
	t.grow()
}

// evidence returns the evidence of a finding, or 0. A node that is met counts until one
// report: a watcher that never had a stream has no evidence. The listener of a process
// that just ends accepts for a moment and resets: that is unclear, and the next attempt is
// refused. A process that ends also ends its streams. If a stream ended by silence, a
// firewall may have cut it, and may be what refuses.
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

// sleep waits for about half of d to d, and reports whether the context still runs.
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
