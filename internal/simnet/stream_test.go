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

// These are the standard library's own tests for a net.Conn.
func TestConnConforms(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		b := newBed(t, simnet.Config{}, 2)
		c1, c2 = b.connect(1, 2)
		return c1, c2, func() { b.nodes[1].Shutdown(); b.nodes[2].Shutdown() }, nil
	})
}

func TestStreamCarriesAll(t *testing.T) {
	run(t, simnet.Config{Loss: 1, Delay: time.Hour}, 2, func(b bed) { // neither affects streams
		near, far := b.connect(1, 2)
		for _, c := range []net.Conn{near, far} {
			local, remote := addr(1), addr(2)
			if c == far {
				local, remote = remote, local
			}
			if c.LocalAddr().String() != local || c.RemoteAddr().String() != remote {
				b.Errorf("addresses %v, %v", c.LocalAddr(), c.RemoteAddr())
			}
		}
		want := bytes.Repeat([]byte("roost"), 1<<20/5) // more than the window
		near.Write(want)
		b.wantSilence("write beyond the window", using(near, near.Write))
		near.Close()
		if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, want) {
			b.Errorf("%d of %d bytes arrived: %v", len(got), len(want), err)
		}
		_, err := far.Write([]byte("x"))
		b.wantError("write to a closed end", err, syscall.EPIPE)
		far.Close()
		far.Close()
	})
}

func TestDialIntoCutTimesOut(t *testing.T) {
	run(t, simnet.Config{}, 3, func(b bed) {
		b.Split([]string{addr(1)}, []string{addr(2)})
		b.CutOneWay(addr(3), addr(1)) // a stream needs both directions
		b.wantSilence("dial across the split", dialing(b.nodes[1], 2))
		b.wantSilence("dial across a one-way cut", dialing(b.nodes[1], 3))
		b.HealAll()
		b.connect(1, 2)
		b.connect(1, 3)
	})
}

// When a node ends, none of its goroutines may keep waiting in a dial.
func TestEndOfNodeEndsItsDials(t *testing.T) {
	for name, end := range map[string]func(*simnet.Transport){
		"crash":    (*simnet.Transport).Crash,
		"shutdown": func(tr *simnet.Transport) { tr.Shutdown() },
	} {
		run(t, simnet.Config{}, 2, func(b bed) {
			b.CutOneWay(addr(1), addr(2))
			start := time.Now()
			time.AfterFunc(time.Second, func() { end(b.nodes[1]) })
			_, err := b.nodes[1].DialTimeout(addr(2), time.Hour)
			if !errors.Is(err, net.ErrClosed) || time.Since(start) != time.Second {
				b.Errorf("%s: dial failed with %v after %v", name, err, time.Since(start))
			}
		})
	}
}

func TestFaultsBreakStreams(t *testing.T) {
	for name, fault := range map[string]func(bed){
		"cut one way": func(b bed) { b.CutOneWay(addr(2), addr(1)) },
		"split":       func(b bed) { b.Split([]string{addr(2)}, []string{addr(1)}) },
		"crash":       func(b bed) { b.nodes[2].Crash() },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, simnet.Config{}, 3, func(b bed) {
				near, far := b.connect(1, 2)
				back, _ := b.connect(2, 1)
				unharmed, other := b.connect(1, 3)
				far.Write([]byte("on the way, and lost"))
				time.AfterFunc(time.Second, func() { fault(b) })
				_, err := far.Read(make([]byte, 1))
				b.wantError("waiting read", err, syscall.ECONNRESET)
				b.HealAll() // a broken stream stays broken
				for _, c := range []net.Conn{near, far, back} {
					_, err := c.Read(make([]byte, 1))
					b.wantError("read", err, syscall.ECONNRESET)
					_, err = c.Write([]byte("x"))
					b.wantError("write", err, syscall.ECONNRESET)
				}
				unharmed.Write([]byte("x"))
				_, err = other.Read(make([]byte, 1))
				b.wantError("stream to a third node", err, nil)
			})
		})
	}
}

func TestShutdownClosesItsEnds(t *testing.T) {
	run(t, simnet.Config{}, 2, func(b bed) {
		near, far := b.connect(1, 2)
		waiting := b.dial(2, 1) // never accepted
		near.Write([]byte("bye"))
		b.nodes[1].Shutdown()
		_, err := near.Read(make([]byte, 1))
		b.wantError("read by the ended node", err, net.ErrClosed)
		for c, want := range map[net.Conn]string{far: "bye", waiting: ""} {
			if got, err := io.ReadAll(c); string(got) != want || err != nil {
				b.Errorf("the other end read %q, %v; want %q", got, err, want)
			}
		}
	})
}

func TestPauseStallsStreams(t *testing.T) {
	run(t, simnet.Config{}, 2, func(b bed) {
		near, far := b.connect(1, 2)
		gone, _ := b.connect(1, 2)
		paused := b.nodes[2]
		paused.Pause()
		start := time.Now()

		// The kernel of the paused node accepts connections and bytes, but its process does not answer.
		late := b.dial(1, 2)
		for _, c := range []net.Conn{near, late} {
			_, err := c.Write([]byte("x"))
			b.wantError("write to a paused node", err, nil)
			b.wantSilence("read from a paused node", using(c, c.Read))
		}
		if n := len(paused.StreamCh()); n != 0 {
			b.Errorf("a paused node accepted %d streams", n)
		}
		b.wantSilence("dial by a paused node", dialing(paused, 1))
		b.wantSilence("write by a paused node", using(far, far.Write))

		// A waiting read and a close take effect after Resume.
		time.AfterFunc(time.Hour-time.Since(start), paused.Resume)
		read := make([]byte, 1)
		if _, err := far.Read(read); err != nil || string(read) != "x" || time.Since(start) != time.Hour {
			b.Errorf("read %q, %v after %v", read, err, time.Since(start))
		}
		accepted := <-paused.StreamCh()
		if _, err := accepted.Read(read); err != nil || accepted.RemoteAddr().String() != addr(1) {
			b.Errorf("from the backlog: %q, %v, of %v", read, err, accepted.RemoteAddr())
		}
		paused.Pause()
		far.Close()
		b.wantSilence("read of what a paused node closed", using(near, near.Read))
		paused.Resume()
		_, err := near.Read(read)
		b.wantError("read after resume", err, io.EOF)

		paused.Pause()
		paused.Shutdown() // the end of a test also ends a waiting read
		_, err = gone.Read(read)
		b.wantError("read after shutdown while paused", err, io.EOF)
	})
}

func TestBacklogIsBounded(t *testing.T) {
	for _, pause := range []bool{false, true} {
		run(t, simnet.Config{}, 2, func(b bed) {
			if pause {
				b.nodes[2].Pause()
			}
			for range 128 {
				b.dial(1, 2)
			}
			b.wantSilence("dial to a full backlog", dialing(b.nodes[1], 2))
			b.nodes[2].Resume()
			<-b.nodes[2].StreamCh()
			synctest.Wait()
			b.dial(1, 2)
		})
	}
}
