package simnet_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/simnet"
)

func TestCuts(t *testing.T) {
	split := func(groups ...string) func(bed) {
		return func(b bed) {
			addrs := make([][]string, len(groups))
			for i, group := range groups {
				for _, node := range group {
					addrs[i] = append(addrs[i], addr(int(node-'0')))
				}
			}
			b.Split(addrs...)
		}
	}
	for name, c := range map[string]struct {
		cut  func(bed)
		lost string // links without an arrival
	}{
		"none":           {func(bed) {}, ""},
		"one way":        {func(b bed) { b.CutOneWay(addr(1), addr(2)) }, "12"},
		"split":          {split("12", "3"), "13 23 31 32"},
		"split in three": {split("1", "3", "4"), "13 14 31 34 41 43"},
		"healed":         {func(b bed) { split("1", "23")(b); b.CutOneWay(addr(4), addr(2)); b.HealAll() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, simnet.Config{}, 4, func(b bed) {
				c.cut(b)
				var lost []string
				for i := range 16 {
					from, to := 1+i/4, 1+i%4
					b.send(from, to, "x")
					if len(b.arrived(to)) == 0 {
						lost = append(lost, fmt.Sprint(from*10+to))
					}
				}
				if got := strings.Join(lost, " "); got != c.lost {
					b.Errorf("lost %q, want %q", got, c.lost)
				}
			})
		})
	}
}

func TestCutCatchesPacketsInFlight(t *testing.T) {
	run(t, simnet.Config{Delay: time.Second}, 2, func(b bed) {
		b.send(1, 2, "in flight when cut")
		b.CutOneWay(addr(1), addr(2))
		b.wantPackets(2)
		b.send(1, 2, "sent while cut")
		b.HealAll()
		b.wantPackets(2)
	})
}

func TestCrash(t *testing.T) {
	run(t, simnet.Config{Delay: time.Second}, 2, func(b bed) {
		old := b.nodes[1]
		b.send(1, 2, "before")
		b.send(2, 1, "too late")
		old.Crash()
		old.Crash()
		b.send(1, 2, "bye") // no error: the code above is not notified
		b.wantPackets(1)
		b.wantPackets(2, "before")
		_, err := old.DialTimeout(addr(2), time.Second)
		b.wantError("dial by a crashed node", err, net.ErrClosed)

		b.listen(1)
		old.Pause() // Pause and Resume have no effect after a crash
		old.Resume()
		for range 2 {
			old.Shutdown()
		}
		b.send(2, 1, "to the new one")
		b.wantPackets(1, "to the new one")
		if got := drain(old); len(got) != 0 {
			b.Errorf("the crashed node received %q", got)
		}
		b.nodes[1].Shutdown()
		b.nodes[1].Crash() // has no effect
		b.listen(1)
	})
}

func TestPauseQueuesAndResumeDeliversFirst(t *testing.T) {
	run(t, simnet.Config{Delay: time.Second}, 2, func(b bed) {
		b.nodes[2].Pause()
		b.nodes[2].Pause()
		b.send(2, 1, "from a stopped process")
		b.send(1, 2, "1")
		b.send(1, 2, "2")
		b.wantPackets(1)
		b.wantPackets(2)
		b.send(1, 2, "3")
		b.nodes[2].Resume()
		resumed := time.Now()
		for i, want := range []string{"1", "2", "3"} {
			p := <-b.nodes[2].PacketCh()
			if early := i < 2; string(p.Buf) != want || early != p.Timestamp.Equal(resumed) {
				b.Errorf("packet %d is %q, stamped %v after the resume", i, p.Buf, p.Timestamp.Sub(resumed))
			}
		}
		b.nodes[2].Resume()
		b.send(2, 1, "back")
		b.wantPackets(1, "back")
	})
}

// This test is for the race detector: several goroutines use all controls simultaneously.
func TestControlsAreSafeForConcurrentUse(t *testing.T) {
	run(t, simnet.Config{Seed: 3, Delay: time.Millisecond, Jitter: time.Millisecond, Loss: 0.1}, 3, func(b bed) {
		var wg sync.WaitGroup
		for i, tr := range b.nodes {
			next := addr(1 + i%3)
			soon := func() time.Time { return time.Now().Add(time.Millisecond) }
			wg.Go(func() {
				for range 200 {
					tr.WriteTo([]byte("x"), next)
					if c, err := tr.DialTimeout(next, time.Millisecond); err == nil {
						c.SetDeadline(soon())
						c.Write(make([]byte, 300<<10))
						c.Close()
					}
				}
			})
			wg.Go(func() {
				for range 200 {
					tr.Pause()
					b.CutOneWay(addr(i), next)
					time.Sleep(300 * time.Microsecond)
					b.SetLoss(0.2)
					tr.Resume()
					b.HealAll()
					drain(tr)
					select {
					case c := <-tr.StreamCh():
						c.SetReadDeadline(soon())
						c.Read(make([]byte, 100))
						c.Close()
					default:
					}
				}
			})
		}
		wg.Wait()
	})
}

// keepAlive gives up after 3 s of silence.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2}

func (b bed) keepAlive(c net.Conn) {
	b.Helper()
	k, ok := c.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	})
	if !ok {
		b.Fatalf("%T has no keep-alive", c)
	}
	if err := k.SetKeepAliveConfig(keepAlive); err != nil {
		b.Fatal(err)
	}
}

// Nothing answers for a host that vanished, not even after Shutdown. TestWatchFaults in internal/gossip tests
// keep-alives to such a host.
func TestVanish(t *testing.T) {
	run(t, simnet.Config{}, 2, func(b bed) {
		plain, far := b.connect(1, 2)
		late, _ := b.connect(1, 2)
		old := b.nodes[2]
		old.Vanish()
		b.wantSilence("write", using(plain, plain.Write))
		b.wantSilence("dial", dialing(b.nodes[1], 2))
		_, err := far.Read(make([]byte, 1))
		b.wantError("read of the vanished", err, net.ErrClosed)
		_, err = old.DialTimeout(addr(1), time.Second)
		b.wantError("dial of the vanished", err, net.ErrClosed)
		b.send(2, 1, "from the beyond")
		b.send(1, 2, "hello?")
		b.wantPackets(1)
		old.Shutdown()
		b.wantSilence("read after the shutdown of the vanished", using(plain, plain.Read))

		b.listen(2) // the host is back
		_, err = late.Read(make([]byte, 1))
		b.wantError("read of an old stream", err, syscall.ECONNRESET)
		b.wantPackets(2)
		b.connect(1, 2)
	})
}

func TestKeepAliveOverCut(t *testing.T) {
	run(t, simnet.Config{}, 2, func(b bed) {
		near, far := b.connect(1, 2)
		b.keepAlive(near)
		read := make([]byte, 1)
		b.CutOneWay(addr(2), addr(1))
		time.AfterFunc(2900*time.Millisecond, b.HealAll)
		time.AfterFunc(4*time.Second, func() { far.Write([]byte("x")) })
		if _, err := near.Read(read); err != nil {
			b.Errorf("after a cut of 2.9 s: %v", err)
		}
		b.Split([]string{addr(1)}, []string{addr(2)})
		_, err := near.Read(read)
		b.wantError("read during a cut", err, syscall.ETIMEDOUT)
		near.Close()
		b.wantSilence("read of the other end", using(far, far.Read))
		b.HealAll()
		_, err = far.Read(read)
		b.wantError("read of the other end after the heal", err, io.EOF)

		near, _ = b.connect(1, 2)
		b.keepAlive(near)
		b.nodes[2].Pause() // its kernel answers
		near.SetDeadline(time.Now().Add(time.Hour))
		_, err = near.Read(read)
		b.wantError("read from a paused node", err, os.ErrDeadlineExceeded)
	})
}

func TestReset(t *testing.T) {
	run(t, simnet.Config{}, 3, func(b bed) {
		near, far := b.connect(1, 2)
		back, _ := b.connect(2, 3)
		unharmed, other := b.connect(1, 3)
		b.nodes[2].Reset()
		for _, c := range []net.Conn{near, far, back} {
			_, err := c.Read(make([]byte, 1))
			b.wantError("read", err, syscall.ECONNRESET)
		}
		unharmed.Write([]byte("x"))
		_, err := other.Read(make([]byte, 1))
		b.wantError("stream between others", err, nil)
		b.connect(1, 2)
	})
}
