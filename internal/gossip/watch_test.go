package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/internal/simnet"
	"github.com/roost-cluster/roost/lease"
)

// reports contains the failures that a node has reported.
type reports struct {
	mu  sync.Mutex
	all []string
}

func (r *reports) add(h lease.Handle, e lease.Evidence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, fmt.Sprint(h, " ", map[lease.Evidence]string{lease.Refused: "refused", lease.Silent: "silent"}[e]))
}

func (r *reports) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// as makes a node answer watchers with a handle.
func as(h lease.Handle) func(*Config) {
	return func(c *Config) { c.Self = func() Peer { return Peer{Node: h} } }
}

// startWatcher starts a node that watches.
func startWatcher(t *testing.T, change func(*Config)) (*Node, *reports) {
	t.Helper()
	r := new(reports)
	n, _ := start(t, "w#1", func(c *Config) {
		if change != nil {
			change(c)
		}
		c.Ended = r.add
	})
	return n, r
}

// streams waits until a node has the wanted number of open streams to other nodes.
func streams(t *testing.T, n *Node, want int) {
	t.Helper()
	eventually(t, fmt.Sprint(want, " open watch streams"), func() bool { out, _ := n.Streams(); return out == want })
}

// When a process ends, its streams end and its address refuses connections, so the watcher reports it.
func TestWatchedProcessEnds(t *testing.T) {
	for name, key := range map[string][]byte{"plain": nil, "keyed": bytes.Repeat([]byte{7}, 32)} {
		t.Run(name, func(t *testing.T) {
			withKey := func(c *Config) { c.Key = key }
			w, got := startWatcher(t, withKey)
			subject, _ := start(t, "s#1", func(c *Config) { withKey(c); as(5)(c) })
			other, _ := start(t, "o#1", func(c *Config) { withKey(c); as(6)(c) })
			w.Watch([]Target{{5, subject.Addr()}, {6, other.Addr()}})
			streams(t, w, 2)
			eventually(t, "the subject counts its watcher", func() bool { _, in := subject.Streams(); return in == 1 })
			_ = subject.Close()
			eventually(t, "a report", func() bool { return len(got.got()) > 0 })
			w.Watch(nil)
			streams(t, w, 0)
			eventually(t, "the watcher leaves", func() bool { _, in := other.Streams(); return in == 0 })
			if want := []string{"5 refused"}; !slices.Equal(got.got(), want) {
				t.Errorf("reports %q, want %q", got.got(), want)
			}
		})
	}
}

// If another process answers at the address of the subject, the watcher reports that the subject has ended.
func TestWatchedProcessIsReplaced(t *testing.T) {
	w, got := startWatcher(t, nil)
	subject, _ := start(t, "s#1", as(5))
	addr := subject.Addr()
	front := newFront(t, addr)
	w.Watch([]Target{{5, front.addr}})
	streams(t, w, 1)
	front.hold(true) // the next attempt waits until the new process runs
	_ = subject.Close()
	_, _ = start(t, "s#2", func(c *Config) { as(6)(c); c.Bind = addr })
	front.hold(false)
	eventually(t, "a report", func() bool { return slices.Equal(got.got(), []string{"5 refused"}) })
}

// front is a proxy for a node. It breaks streams like a middlebox.
type front struct {
	addr string
	to   string
	mu   sync.Mutex
	held bool
	open []net.Conn
	all  int
	wait sync.WaitGroup
}

func newFront(t *testing.T, to string) *front {
	t.Helper()
	l := listener(t)
	f := &front{addr: l.Addr().String(), to: to}
	f.wait.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.wait.Go(func() { f.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.reset()
		f.wait.Wait()
	})
	return f
}

func (f *front) serve(near net.Conn) {
	f.mu.Lock()
	f.open = append(f.open, near)
	f.all++
	held := f.held
	f.mu.Unlock()
	defer near.Close()
	if held { // like a paused process
		_, _ = io.Copy(io.Discard, near)
		return
	}
	far, err := net.Dial("tcp", f.to)
	if err != nil {
		_ = near.(*net.TCPConn).SetLinger(0)
		return
	}
	f.mu.Lock()
	f.open = append(f.open, far)
	f.mu.Unlock()
	f.wait.Go(func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	})
	_, _ = io.Copy(near, far)
}

// count returns how many connections were accepted.
func (f *front) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all
}

// hold makes the front accept connections but not answer.
func (f *front) hold(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = on
}

// reset breaks all streams.
func (f *front) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	f.open = nil
}

// If a middlebox ends a stream, the watcher opens a new stream, and does not report a failure.
func TestResetStreamIsReplaced(t *testing.T) {
	t.Parallel()
	w, got := startWatcher(t, nil)
	subject, _ := start(t, "s#1", as(5))
	front := newFront(t, subject.Addr())
	w.Watch([]Target{{5, front.addr}})
	for i := range 3 {
		eventually(t, "another stream", func() bool { out, _ := w.Streams(); return out == 1 && front.count() == i+1 })
		front.reset()
	}
	eventually(t, "the last stream", func() bool { out, _ := w.Streams(); return out == 1 && front.count() == 4 })
	front.hold(true)
	front.reset()
	time.Sleep(time.Second) // attempts during this time find a silent process
	front.hold(false)
	front.reset()
	streams(t, w, 1)
	if all := got.got(); len(all) != 0 {
		t.Errorf("reports %q of a node that runs", all)
	}
}

// A watcher that had no stream has no evidence of a failure. A watcher that is being closed does not report one either.
func TestNoEvidence(t *testing.T) {
	t.Parallel()
	w, got := startWatcher(t, nil)
	subject, _ := start(t, "s#1", as(5))
	mute, _ := start(t, "m#1", nil) // has no handle
	w.Watch([]Target{{9, "127.0.0.1:1"}, {8, "localhost:1"}, {7, mute.Addr()}, {6, subject.Addr()}})
	_, own := startWatcher(t, as(3))
	time.Sleep(2 * time.Second) // several attempts fail
	if out, _ := w.Streams(); out != 0 {
		t.Errorf("%d streams are open", out)
	}
	_ = w.Close()
	w.Watch([]Target{{5, subject.Addr()}})
	if all := slices.Concat(got.got(), own.got()); len(all) != 0 {
		t.Errorf("reports %q", all)
	}
	v, seen := startWatcher(t, nil)
	v.Watch([]Target{{5, subject.Addr()}})
	streams(t, v, 1)
	_ = v.Close()
	if all := seen.got(); len(all) != 0 {
		t.Errorf("a watcher that closes reports %q", all)
	}
}

func TestTrial(t *testing.T) {
	reset, gone := syscall.ECONNRESET, syscall.ETIMEDOUT
	for _, c := range []struct {
		name  string
		end   error // of a stream; nil = there was none
		after time.Duration
		found finding
		want  lease.Evidence
	}{
		{"refused", io.EOF, 0, refused, lease.Refused},
		{"refused late", reset, time.Hour, refused, lease.Refused},
		{"refused after silence", gone, 0, refused, lease.Silent},
		{"refused all the time", syscall.ECONNREFUSED, 0, refused, lease.Silent},
		{"replaced", reset, 0, replaced, lease.Refused},
		{"replaced after silence", gone, 0, replaced, lease.Refused},
		{"never met", nil, 0, refused, 0},
		{"never met, no host", nil, time.Hour, hidden, 0},
		{"silent", gone, 500 * time.Millisecond, hidden, lease.Silent},
		{"silent by a router's word", syscall.EHOSTUNREACH, 0, hidden, lease.Silent},
		{"reset, then nothing", reset, 1400 * time.Millisecond, hidden, 0},
		{"reset, then nothing for long", reset, unreachableFor, hidden, lease.Silent},
		{"paused", gone, time.Hour, unclear, 0},
	} {
		var tr trial
		now := time.Now()
		if c.end != nil {
			tr.end(now.Add(-time.Hour), now, c.end)
			if tr.pause != 0 {
				t.Errorf("%s: the first attempt waits for %v", c.name, tr.pause)
			}
		}
		if got := tr.evidence(now.Add(c.after), c.found); got != c.want {
			t.Errorf("%s: evidence %d, want %d", c.name, got, c.want)
		}
		if again := tr.evidence(now.Add(c.after), c.found); c.want != 0 && again != 0 {
			t.Errorf("%s: reported twice", c.name)
		}
		for range 20 {
			tr.evidence(now, unclear)
		}
		if tr.pause != maxPause {
			t.Errorf("%s: after many attempts the pause is %v", c.name, tr.pause)
		}
	}
	var tr trial
	for range 20 { // the subject accepts, and hangs up immediately
		tr.end(time.Now(), time.Now(), io.EOF)
	}
	if tr.pause != maxPause {
		t.Errorf("after 20 streams that ended at once the pause is %v", tr.pause)
	}
}

// The probes of a keep-alive are whole seconds apart, because the kernel counts in seconds.
func TestKeepAlive(t *testing.T) {
	for idle, want := range map[time.Duration]time.Duration{
		0: 3 * time.Second, time.Second: 3 * time.Second, 3 * time.Second: 3 * time.Second,
		5900 * time.Millisecond: 3 * time.Second, 10 * time.Second: 9 * time.Second, 5 * time.Minute: 5 * time.Minute,
	} {
		if k := keepAliveFor(idle); k.Idle+time.Duration(k.Count)*k.Interval != want || !k.Enable {
			t.Errorf("%v: %+v, want %v", idle, k, want)
		}
	}
}

func TestFindingOf(t *testing.T) {
	for err, want := range map[error]finding{
		syscall.ECONNREFUSED:    refused,
		syscall.ETIMEDOUT:       hidden,
		syscall.EHOSTUNREACH:    hidden,
		syscall.ENETUNREACH:     hidden,
		os.ErrDeadlineExceeded:  hidden,
		syscall.ECONNRESET:      unclear,
		syscall.EMFILE:          unclear,
		syscall.EADDRNOTAVAIL:   unclear,
		syscall.EPERM:           unclear,
		net.ErrClosed:           unclear,
		errors.New("test: new"): unclear,
	} {
		wrapped := &net.OpError{Op: "dial", Err: err}
		if got := findingOf(wrapped); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

// TestWatchFaults injects faults that only a simulated network can produce.
func TestWatchFaults(t *testing.T) {
	const subject, watcher = "10.0.0.1:7946", "10.0.0.2:7946"
	for _, c := range []struct {
		name  string
		fault func(*simnet.Network, *simnet.Transport)
		want  string
		most  time.Duration // until the report
	}{
		{"kill -9", func(_ *simnet.Network, s *simnet.Transport) { s.Crash() }, "5 refused", 0},
		{"shutdown", func(_ *simnet.Network, s *simnet.Transport) { _ = s.Shutdown() }, "5 refused", 0},
		{"vanish", func(_ *simnet.Network, s *simnet.Transport) { s.Vanish() }, "5 silent", 3500 * time.Millisecond},
		{"cut", func(n *simnet.Network, _ *simnet.Transport) { n.CutOneWay(subject, watcher) }, "5 silent", 3500 * time.Millisecond},
		{"pause", func(_ *simnet.Network, s *simnet.Transport) { s.Pause() }, "", 0},
		{"reset", func(_ *simnet.Network, s *simnet.Transport) { s.Reset() }, "", 0},
		{"paused and reset", func(_ *simnet.Network, s *simnet.Transport) { s.Pause(); s.Reset() }, "", 0},
		{"paused, reset and killed", func(_ *simnet.Network, s *simnet.Transport) {
			s.Pause()
			s.Reset()
			time.AfterFunc(4*time.Second, s.Crash)
		}, "5 refused", 8 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := simnet.New(simnet.Config{})
				var all reports
				var from time.Time
				var took time.Duration
				run := func(name, addr string, h lease.Handle) (*Node, *simnet.Transport) {
					tr, err := network.Listen(addr)
					if err != nil {
						t.Fatal(err)
					}
					n, err := Start(WithEnv(t.Context(), Env{Transport: tr}), Config{
						Name: name, Cluster: "test", Profile: Local, StreamTimeout: time.Second,
						Meta: metaOf(""), Log: slog.New(slog.DiscardHandler), Accept: func(string, []byte) error { return nil },
						Self:  func() Peer { return Peer{Node: h} },
						Ended: func(h lease.Handle, e lease.Evidence) { took = time.Since(from); all.add(h, e) },
					}, &inbox{})
					if err != nil {
						t.Fatal(err)
					}
					return n, tr
				}
				s, transport := run("s#1", subject, 5)
				w, _ := run("w#1", watcher, 6)
				w.Watch([]Target{{5, subject}})
				time.Sleep(10 * time.Second)
				if out, _ := w.Streams(); out != 1 {
					t.Fatalf("%d streams are open", out)
				}
				from = time.Now()
				c.fault(network, transport)
				time.Sleep(20 * time.Second)
				var want []string
				if c.want != "" {
					want = []string{c.want}
				}
				if got := all.got(); !slices.Equal(got, want) || took > c.most {
					t.Errorf("reports %q after %v, want %q within %v", got, took, want, c.most)
				}
				_ = w.Close()
				_ = s.Close()
				time.Sleep(time.Minute) // memberlist's probes end
			})
		})
	}
}
