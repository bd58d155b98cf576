package simnet_test

import (
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/internal/simnet"
)

// reach sends one packet along every link and returns the links with an arrival.
func reach(t *testing.T, nodes []*simnet.Transport) map[[2]int]bool {
	t.Helper()
	got := map[[2]int]bool{}
	for i, from := range nodes {
		for j, to := range nodes {
			write(t, from, to, "x")
			waitArrived()
			if len(drain(to)) == 1 {
				got[[2]int{i + 1, j + 1}] = true
			}
		}
	}
	return got
}

func TestCuts(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(n *simnet.Network)
		lost [][2]int
	}{
		{"none", func(n *simnet.Network) {}, nil},
		{"cut", func(n *simnet.Network) { n.Cut(addr(1), addr(2)) }, [][2]int{{1, 2}, {2, 1}}},
		{"one way", func(n *simnet.Network) { n.CutOneWay(addr(1), addr(2)) }, [][2]int{{1, 2}}},
		{"healed", func(n *simnet.Network) { n.Cut(addr(1), addr(2)); n.Heal(addr(2), addr(1)) }, nil},
		{"another healed", func(n *simnet.Network) { n.Cut(addr(1), addr(2)); n.Heal(addr(1), addr(3)) }, [][2]int{{1, 2}, {2, 1}}},
		{
			"split", func(n *simnet.Network) { n.Split([]string{addr(1), addr(2)}, []string{addr(3)}) },
			[][2]int{{1, 3}, {3, 1}, {2, 3}, {3, 2}},
		},
		{
			"split in three", func(n *simnet.Network) { n.Split([]string{addr(1)}, []string{addr(3)}, []string{addr(4)}) },
			[][2]int{{1, 3}, {3, 1}, {1, 4}, {4, 1}, {3, 4}, {4, 3}},
		},
		{
			"split bridged", func(n *simnet.Network) {
				n.Split([]string{addr(1), addr(2)}, []string{addr(3)})
				n.Heal(addr(1), addr(3))
			}, [][2]int{{2, 3}, {3, 2}},
		},
		{"all healed", func(n *simnet.Network) {
			n.Split([]string{addr(1)}, []string{addr(2), addr(3)})
			n.CutOneWay(addr(4), addr(2))
			n.HealAll()
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := simnet.New(simnet.Config{})
				nodes := listen(t, n, 4)
				c.do(n)
				got := reach(t, nodes)
				for i := 1; i <= 4; i++ {
					for j := 1; j <= 4; j++ {
						l := [2]int{i, j}
						if got[l] == slices.Contains(c.lost, l) {
							t.Errorf("%d to %d arrived: %v", i, j, got[l])
						}
					}
				}
				if drops := n.Stats().Dropped; drops != (simnet.Drops{Cut: uint64(len(c.lost))}) {
					t.Errorf("dropped %+v", drops)
				}
			})
		})
	}
}

func TestCutCatchesPacketsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{Delay: time.Second})
		nodes := listen(t, n, 2)
		write(t, nodes[0], nodes[1], "in flight when cut")
		n.Cut(addr(1), addr(2))
		waitArrived()
		wantPackets(t, nodes[1])
		write(t, nodes[0], nodes[1], "sent while cut")
		n.HealAll()
		waitArrived()
		wantPackets(t, nodes[1])
		if got := n.Stats().Dropped; got != (simnet.Drops{Cut: 2}) {
			t.Errorf("dropped %+v", got)
		}
	})
}

func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{Delay: time.Second})
		nodes := listen(t, n, 2)
		a, b := nodes[0], nodes[1]
		write(t, a, b, "before")
		write(t, b, a, "too late")
		a.Crash()
		a.Crash()
		write(t, a, b, "farewell") // no error: the code above is not notified
		waitArrived()
		wantPackets(t, a)
		wantPackets(t, b, "before")
		if got := n.Stats(); got.Dropped != (simnet.Drops{NoListener: 1}) || got.Muted != 1 {
			t.Errorf("stats %+v", got)
		}
		if _, err := a.DialTimeout(addr(2), time.Second); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial by a crashed node: %v", err)
		}

		a2 := listenAt(t, n, addr(1))
		a.Pause() // Pause and Resume have no effect after a crash
		a.Resume()
		for range 2 {
			if err := a.Shutdown(); err != nil {
				t.Error(err)
			}
		}
		write(t, b, a2, "to the new one")
		waitArrived()
		wantPackets(t, a)
		wantPackets(t, a2, "to the new one")
		if _, err := a.WriteTo([]byte("x"), addr(2)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after shutdown: %v", err)
		}
		wantBalance(t, n)
	})
}

func TestShutdownFreesTheAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{})
		for range 3 {
			a := listenAt(t, n, addr(1))
			if err := a.Shutdown(); err != nil {
				t.Error(err)
			}
			a.Crash()
		}
	})
}

func TestPauseQueuesAndResumeDeliversFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{Delay: time.Second})
		nodes := listen(t, n, 2)
		a, b := nodes[0], nodes[1]
		b.Pause()
		b.Pause()
		write(t, b, a, "from a stopped process")
		write(t, a, b, "1")
		write(t, a, b, "2")
		waitArrived()
		wantPackets(t, a)
		wantPackets(t, b)
		if got := n.Stats(); got.InFlight != 2 || got.Muted != 1 {
			t.Errorf("stats %+v", got)
		}
		write(t, a, b, "3")
		b.Resume()
		resumed := time.Now()
		for i, want := range []string{"1", "2", "3"} {
			p := <-b.PacketCh()
			if string(p.Buf) != want {
				t.Errorf("packet %d is %q", i, p.Buf)
			}
			if early := i < 2; early != p.Timestamp.Equal(resumed) {
				t.Errorf("packet %q stamped %v after the resume", p.Buf, p.Timestamp.Sub(resumed))
			}
		}
		b.Resume()
		write(t, b, a, "back")
		waitArrived()
		wantPackets(t, a, "back")
		wantBalance(t, n)
	})
}

func TestPausedQueueIsBounded(t *testing.T) {
	for _, c := range []struct{ size, holds int }{{1, 2727}, {1400, 967}, {65507, 31}} {
		synctest.Test(t, func(t *testing.T) {
			n := simnet.New(simnet.Config{})
			nodes := listen(t, n, 2)
			nodes[1].Pause()
			for range c.holds + 100 {
				write(t, nodes[0], nodes[1], string(make([]byte, c.size)))
			}
			waitArrived()
			if got := n.Stats(); got.InFlight != uint64(c.holds) || got.Dropped != (simnet.Drops{Overflow: 100}) {
				t.Errorf("packets of %d bytes: %+v", c.size, got)
			}
			nodes[1].Resume()
			if got := len(drain(nodes[1])); got != c.holds {
				t.Errorf("packets of %d bytes: %d delivered on resume, want %d", c.size, got, c.holds)
			}
			nodes[1].Pause() // the queue has room again
			write(t, nodes[0], nodes[1], "x")
			waitArrived()
			nodes[1].Crash() // and the queue is dropped with the node
			if got := n.Stats(); got.InFlight != 0 || got.Dropped.NoListener != 1 {
				t.Errorf("packets of %d bytes, after the crash: %+v", c.size, got)
			}
			wantBalance(t, n)
		})
	}
}
