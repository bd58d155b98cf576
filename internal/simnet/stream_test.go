package simnet_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"github.com/roost-cluster/roost/internal/simnet"
)

// connect opens a stream and accepts it.
func connect(t *testing.T, from, to *simnet.Transport) (near, far net.Conn) {
	t.Helper()
	near = dial(t, from, to)
	return near, <-to.StreamCh()
}

func dial(t *testing.T, from, to *simnet.Transport) net.Conn {
	t.Helper()
	c, err := from.DialTimeout(to.Addr(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wantTimeout(t *testing.T, what string, err error) {
	t.Helper()
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%s: %v, want a timeout", what, err)
	}
}

// The standard library's own tests of a net.Conn.
func TestConnConforms(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		n := simnet.New(simnet.Config{})
		nodes := listen(t, n, 2)
		c1, c2 = connect(t, nodes[0], nodes[1])
		return c1, c2, func() { nodes[0].Shutdown(); nodes[1].Shutdown() }, nil
	})
}

func TestStreamCarriesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{Loss: 1, Delay: time.Hour}) // neither affects streams
		nodes := listen(t, n, 2)
		near, far := connect(t, nodes[0], nodes[1])
		if near.LocalAddr().String() != addr(1) || near.RemoteAddr().String() != addr(2) ||
			far.LocalAddr().String() != addr(2) || far.RemoteAddr().String() != addr(1) {
			t.Errorf("addresses %v %v, %v %v", near.LocalAddr(), near.RemoteAddr(), far.LocalAddr(), far.RemoteAddr())
		}
		want := bytes.Repeat([]byte("roost"), 1<<20/5) // more than the window
		go func() {
			near.Write(want)
			near.Close()
		}()
		time.Sleep(time.Second)
		if s := n.Stats(); s.StreamBytes != 0 {
			t.Errorf("a write of more than the window did not wait for the reader: %+v", s)
		}
		got, err := io.ReadAll(far)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d of %d bytes arrived: %v", len(got), len(want), err)
		}
		if _, err := far.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write to a closed end: %v", err)
		}
		if s := n.Stats(); s.StreamsOpened != 1 || s.StreamsOpen != 1 || s.StreamBytes != uint64(len(want)) {
			t.Errorf("stats %+v", s)
		}
		far.Close()
		far.Close()
		if s := n.Stats(); s.StreamsOpen != 0 {
			t.Errorf("after closing: %+v", s)
		}
		if got := nodes[0].Traffic().StreamBytesSent; got != uint64(len(want)) {
			t.Errorf("sender's traffic: %d", got)
		}
	})
}

func TestDialNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{})
		nodes := listen(t, n, 3)
		nodes[1].Crash()
		nodes[2].Shutdown()
		start := time.Now()
		for i := 2; i <= 4; i++ {
			_, err := nodes[0].DialTimeout(addr(i), time.Second)
			var ne net.Error
			if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &ne) || ne.Timeout() {
				t.Errorf("dial to node %d: %v", i, err)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("refused after %v", took)
		}
	})
}

func TestDialIntoCutTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{})
		nodes := listen(t, n, 3)
		n.Cut(addr(1), addr(2))
		n.CutOneWay(addr(3), addr(1)) // a stream needs both directions
		for _, c := range []struct {
			to            int
			timeout, want time.Duration
		}{{2, 3 * time.Second, 3 * time.Second}, {3, time.Second, time.Second}, {2, 0, 127 * time.Second}, {2, -1, 0}, {1, -1, 0}} {
			start := time.Now()
			_, err := nodes[0].DialTimeout(addr(c.to), c.timeout)
			wantTimeout(t, "dial "+addr(c.to), err)
			if took := time.Since(start); took != c.want {
				t.Errorf("dial to %d with timeout %v took %v", c.to, c.timeout, took)
			}
		}
		n.HealAll()
		connect(t, nodes[0], nodes[1])
		connect(t, nodes[0], nodes[2])
	})
}

// The end of a node must not leave a goroutine waiting in a dial.
func TestEndOfNodeEndsItsDials(t *testing.T) {
	for name, end := range map[string]func(*simnet.Transport){
		"crash":    (*simnet.Transport).Crash,
		"shutdown": func(tr *simnet.Transport) { tr.Shutdown() },
	} {
		synctest.Test(t, func(t *testing.T) {
			n := simnet.New(simnet.Config{})
			nodes := listen(t, n, 2)
			n.Cut(addr(1), addr(2))
			start := time.Now()
			time.AfterFunc(time.Second, func() { end(nodes[0]) })
			_, err := nodes[0].DialTimeout(addr(2), time.Hour)
			if !errors.Is(err, net.ErrClosed) || time.Since(start) != time.Second {
				t.Errorf("%s: dial failed with %v after %v", name, err, time.Since(start))
			}
		})
	}
}

func TestFaultsBreakStreams(t *testing.T) {
	for name, fault := range map[string]func(*simnet.Network, *simnet.Transport){
		"cut":         func(n *simnet.Network, _ *simnet.Transport) { n.Cut(addr(2), addr(1)) },
		"cut one way": func(n *simnet.Network, _ *simnet.Transport) { n.CutOneWay(addr(2), addr(1)) },
		"split":       func(n *simnet.Network, _ *simnet.Transport) { n.Split([]string{addr(2)}, []string{addr(1)}) },
		"crash":       func(_ *simnet.Network, tr *simnet.Transport) { tr.Crash() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := simnet.New(simnet.Config{})
				nodes := listen(t, n, 3)
				near, far := connect(t, nodes[0], nodes[1])
				back, _ := connect(t, nodes[1], nodes[0])
				unharmed, other := connect(t, nodes[0], nodes[2])
				far.Write([]byte("on the way, and lost"))

				reads := make(chan error)
				go func() {
					_, err := far.Read(make([]byte, 1))
					reads <- err
				}()
				time.AfterFunc(time.Second, func() { fault(n, nodes[1]) })
				if err := <-reads; !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("waiting read: %v", err)
				}
				if open := n.Stats().StreamsOpen; open != 1 {
					t.Errorf("%d streams left", open)
				}
				n.HealAll() // a broken stream stays broken
				for _, c := range []net.Conn{near, far, back} {
					if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("read: %v", err)
					}
					if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("write: %v", err)
					}
				}
				unharmed.Write([]byte("x"))
				if _, err := other.Read(make([]byte, 1)); err != nil {
					t.Errorf("stream to a third node: %v", err)
				}
			})
		})
	}
}

func TestShutdownClosesItsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{})
		nodes := listen(t, n, 2)
		near, far := connect(t, nodes[0], nodes[1])
		waiting := dial(t, nodes[1], nodes[0]) // never accepted
		near.Write([]byte("farewell"))
		nodes[0].Shutdown()
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read by the ended node: %v", err)
		}
		if got, err := io.ReadAll(far); string(got) != "farewell" || err != nil {
			t.Errorf("the other end read %q, %v", got, err)
		}
		if got, err := io.ReadAll(waiting); len(got) > 0 || err != nil {
			t.Errorf("a stream never accepted read %q, %v", got, err)
		}
		waiting.Close()
		nodes[1].Shutdown()
		if open := n.Stats().StreamsOpen; open != 0 {
			t.Errorf("%d streams left", open)
		}
	})
}

func TestPauseStallsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{})
		nodes := listen(t, n, 2)
		near, far := connect(t, nodes[0], nodes[1])
		gone, _ := connect(t, nodes[0], nodes[1])
		paused := nodes[1]
		paused.Pause()
		start := time.Now()

		// Its kernel accepts connections and bytes, but its process does not answer.
		late := dial(t, nodes[0], paused)
		for _, c := range []net.Conn{near, late} {
			if _, err := c.Write([]byte("x")); err != nil {
				t.Errorf("write to a paused node: %v", err)
			}
			c.SetReadDeadline(time.Now().Add(time.Second))
			_, err := c.Read(make([]byte, 1))
			wantTimeout(t, "read from a paused node", err)
		}
		select {
		case c := <-paused.StreamCh():
			t.Errorf("a paused node accepted a stream from %v", c.RemoteAddr())
		default:
		}
		_, err := paused.DialTimeout(addr(1), time.Second)
		wantTimeout(t, "dial by a paused node", err)
		far.SetWriteDeadline(time.Now().Add(time.Second))
		_, err = far.Write([]byte("x"))
		wantTimeout(t, "write by a paused node", err)
		far.SetWriteDeadline(time.Time{})

		// Its writes and closes during the pause take effect after Resume.
		time.AfterFunc(time.Hour-time.Since(start), paused.Resume)
		read := make([]byte, 1)
		if _, err := far.Read(read); err != nil || string(read) != "x" || time.Since(start) != time.Hour {
			t.Errorf("read %q, %v after %v", read, err, time.Since(start))
		}
		accepted := <-paused.StreamCh()
		if _, err := accepted.Read(read); err != nil || accepted.RemoteAddr().String() != addr(1) {
			t.Errorf("from the backlog: %q, %v, of %v", read, err, accepted.RemoteAddr())
		}

		paused.Pause()
		far.Close()
		near.SetReadDeadline(time.Now().Add(time.Second))
		_, err = near.Read(read)
		wantTimeout(t, "read of what a paused node closed", err)
		near.SetReadDeadline(time.Time{})
		paused.Resume()
		if _, err = near.Read(read); !errors.Is(err, io.EOF) {
			t.Errorf("after resume: %v", err)
		}

		paused.Pause()
		paused.Shutdown() // the end of a test also ends a waiting read
		if _, err := gone.Read(read); !errors.Is(err, io.EOF) {
			t.Errorf("after shutdown while paused: %v", err)
		}
	})
}

func TestBacklogIsBounded(t *testing.T) {
	for _, pause := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			nodes := listen(t, simnet.New(simnet.Config{}), 2)
			if pause {
				nodes[1].Pause()
			}
			for range 128 {
				dial(t, nodes[0], nodes[1])
			}
			_, err := nodes[0].DialTimeout(addr(2), time.Second)
			wantTimeout(t, "dial to a full backlog", err)
			nodes[1].Resume()
			<-nodes[1].StreamCh()
			dial(t, nodes[0], nodes[1])
		})
	}
}
