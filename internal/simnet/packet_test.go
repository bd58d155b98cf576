package simnet_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/internal/simnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func addr(i int) string { return fmt.Sprintf("10.0.0.%d:7946", i) }

// listen attaches nodes 1 to count and shuts them down when the test ends.
func listen(t *testing.T, n *simnet.Network, count int) []*simnet.Transport {
	t.Helper()
	nodes := make([]*simnet.Transport, count)
	for i := range nodes {
		nodes[i] = listenAt(t, n, addr(i+1))
	}
	return nodes
}

func listenAt(t *testing.T, n *simnet.Network, at string) *simnet.Transport {
	t.Helper()
	tr, err := n.Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Shutdown() })
	return tr
}

func write(t *testing.T, from, to *simnet.Transport, text string) {
	t.Helper()
	if _, err := from.WriteTo([]byte(text), to.Addr()); err != nil {
		t.Fatalf("write %q: %v", text, err)
	}
}

// settle lets all that is under way arrive, unless it takes a minute.
func settle() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

// drain returns the packets that wait to be read.
func drain(tr *simnet.Transport) []string {
	texts := []string{}
	for {
		select {
		case p := <-tr.PacketCh():
			texts = append(texts, string(p.Buf))
		default:
			return texts
		}
	}
}

func wantPackets(t *testing.T, tr *simnet.Transport, want ...string) {
	t.Helper()
	if got := drain(tr); !slices.Equal(got, want) {
		t.Errorf("%s received %q, want %q", tr.Addr(), got, want)
	}
}

// wantBalance checks that no packet is unaccounted for.
func wantBalance(t interface {
	Helper()
	Errorf(string, ...any)
}, n *simnet.Network,
) {
	t.Helper()
	s := n.Stats()
	if s.PacketsSent != s.PacketsDelivered+s.Dropped.Total()+s.InFlight {
		t.Errorf("sent is not delivered + dropped + in flight: %+v", s)
	}
}

func TestPacketArrivesAfterDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{Delay: 20 * time.Millisecond})
		nodes := listen(t, n, 2)
		start := time.Now()
		buf := []byte("ping")
		sent, err := nodes[0].WriteToAddress(buf, memberlist.Address{Addr: addr(2), Name: "b"})
		if err != nil || !sent.Equal(start) {
			t.Fatalf("sent at %v, %v; want %v", sent, err, start)
		}
		copy(buf, "xxxx") // the sender may reuse its buffer
		if s := n.Stats(); s.InFlight != 1 {
			t.Errorf("in flight: %+v", s)
		}
		time.Sleep(20*time.Millisecond - 1)
		synctest.Wait()
		wantPackets(t, nodes[1])

		p := <-nodes[1].PacketCh()
		if took := time.Since(start); took != 20*time.Millisecond || !p.Timestamp.Equal(time.Now()) {
			t.Errorf("took %v, stamped %v after sending", took, p.Timestamp.Sub(start))
		}
		if string(p.Buf) != "ping" || p.From.String() != addr(1) {
			t.Errorf("got %q from %v", p.Buf, p.From)
		}
		if got, want := nodes[0].Traffic(), (simnet.Traffic{PacketsSent: 1, BytesSent: 4}); got != want {
			t.Errorf("sender's traffic %+v, want %+v", got, want)
		}
		if got, want := nodes[1].Traffic(), (simnet.Traffic{PacketsReceived: 1, BytesReceived: 4}); got != want {
			t.Errorf("receiver's traffic %+v, want %+v", got, want)
		}
		if got, want := n.Stats(), (simnet.Stats{PacketsSent: 1, PacketsDelivered: 1, BytesSent: 4}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
	})
}

// Without a fixed order among packets of one instant, no run could be repeated:
// a bubble fires its timers of one instant in random order.
func TestPacketsOfOneInstantKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := listen(t, simnet.New(simnet.Config{Delay: time.Millisecond}), 3)
		want := make([]string, 1000)
		for i := range want {
			want[i] = strconv.Itoa(i)
			write(t, nodes[i%2], nodes[2], want[i])
		}
		settle()
		wantPackets(t, nodes[2], want...)
	})
}

func TestJitterSpreadsArrivals(t *testing.T) {
	const delay, jitter, count = 10 * time.Millisecond, 40 * time.Millisecond, 1000
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{Seed: 1})
		nodes := listen(t, n, 2)
		n.SetDelay(delay, jitter)
		start := time.Now()
		for i := range count {
			write(t, nodes[0], nodes[1], strconv.Itoa(i))
		}
		var sum time.Duration
		reordered := false
		for i := range count {
			p := <-nodes[1].PacketCh()
			took := time.Since(start)
			if took < delay || took >= delay+jitter {
				t.Errorf("packet %s took %v", p.Buf, took)
			}
			sum += took
			reordered = reordered || string(p.Buf) != strconv.Itoa(i)
		}
		if mean := sum / count; mean < 28*time.Millisecond || mean > 32*time.Millisecond || !reordered {
			t.Errorf("mean delay %v, want about 30ms; reordered: %v", mean, reordered)
		}
	})
}

func TestLossIsItsShare(t *testing.T) {
	const count = 10_000
	for _, loss := range []float64{0, 0.05, 0.2, 0.9, 1} {
		synctest.Test(t, func(t *testing.T) {
			n := simnet.New(simnet.Config{Seed: 7})
			n.SetLoss(loss)
			nodes := listen(t, n, 2)
			got := 0
			for range count {
				write(t, nodes[0], nodes[1], "x")
				synctest.Wait()
				got += len(drain(nodes[1]))
			}
			// Four standard deviations are 200 at most.
			if want := (1 - loss) * count; float64(got) < want-200 || float64(got) > want+200 || (loss == 0 && got != count) {
				t.Errorf("loss %v: %d of %d arrived", loss, got, count)
			}
			if lost := n.Stats().Dropped; lost != (simnet.Drops{Loss: uint64(count - got)}) {
				t.Errorf("loss %v: %d of %d arrived, yet %+v dropped", loss, got, count, lost)
			}
			wantBalance(t, n)
		})
	}
}

func TestSameSeedSameFate(t *testing.T) {
	// arrivals returns which of node 1's packets to node 2 arrive, in order of
	// arrival. around is called before each.
	arrivals := func(seed uint64, around func(i int, n *simnet.Network, nodes []*simnet.Transport)) (got []string) {
		synctest.Test(t, func(t *testing.T) {
			n := simnet.New(simnet.Config{Seed: seed, Loss: 0.3, Delay: time.Millisecond, Jitter: time.Second})
			nodes := listen(t, n, 3)
			for i := range 500 {
				if around != nil {
					around(i, n, nodes)
				}
				write(t, nodes[0], nodes[1], strconv.Itoa(i))
			}
			settle()
			got = drain(nodes[1])
		})
		return got
	}
	once := arrivals(1, nil)
	if again := arrivals(1, nil); !slices.Equal(once, again) {
		t.Errorf("seed 1 twice:\n%v\n%v", once, again)
	}
	if other := arrivals(2, nil); slices.Equal(once, other) {
		t.Error("seeds 1 and 2 decide alike")
	}
	busy := arrivals(1, func(i int, n *simnet.Network, nodes []*simnet.Transport) {
		write(t, nodes[2], nodes[0], "to another")
		n.Cut(addr(1), addr(3))
	})
	if !slices.Equal(once, busy) {
		t.Error("what another node sends changed the fate of this one's packets")
	}
	restarted := arrivals(1, func(i int, n *simnet.Network, nodes []*simnet.Transport) {
		if i == 0 {
			nodes[0].Crash()
			nodes[0], _ = n.Listen(addr(1))
		}
	})
	if slices.Equal(once, restarted) {
		t.Error("a node on the same address as one before repeats its fate")
	}
	elsewhere := arrivals(1, func(i int, n *simnet.Network, nodes []*simnet.Transport) {
		if i == 0 {
			nodes[0], nodes[2] = nodes[2], nodes[0]
		}
	})
	if slices.Equal(once, elsewhere) {
		t.Error("two nodes share one fate")
	}
	// Packets 100 to 199 meet a perfect network; the rest fares as before.
	calm := arrivals(1, func(i int, n *simnet.Network, _ []*simnet.Transport) {
		switch i {
		case 100:
			n.SetLoss(0)
		case 200:
			n.SetLoss(0.3)
		}
	})
	perfect := func(text string) bool { i, _ := strconv.Atoi(text); return i >= 100 && i < 200 }
	if a, b := slices.DeleteFunc(slices.Clone(once), perfect), slices.DeleteFunc(slices.Clone(calm), perfect); !slices.Equal(a, b) {
		t.Errorf("a change of the settings changed later decisions:\n%v\n%v", a, b)
	}
	if len(calm) <= len(once) {
		t.Errorf("%d packets arrived with losses, %d with fewer", len(once), len(calm))
	}
}

func TestUnreadPacketsOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{})
		nodes := listen(t, n, 2)
		for range 5000 {
			write(t, nodes[0], nodes[1], "x")
		}
		settle()
		if got := n.Stats(); got.PacketsDelivered != 4096 || got.Dropped != (simnet.Drops{Overflow: 904}) {
			t.Errorf("stats %+v", got)
		}
	})
}

func TestPacketErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{})
		a := listenAt(t, n, addr(1))
		for _, bad := range []string{"", "10.0.0.1", "10.0.0.1:0", "0.0.0.0:7946", "host:7946"} {
			if _, err := n.Listen(bad); err == nil {
				t.Errorf("listening on %q succeeded", bad)
			}
		}
		if _, err := n.Listen("[::ffff:10.0.0.1]:7946"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("listening on an address in use: %v", err)
		}
		if _, err := a.WriteTo([]byte("x"), "host:7946"); err == nil {
			t.Error("writing to a name succeeded")
		}
		if _, err := a.WriteTo(make([]byte, 65508), addr(1)); !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("writing 65,508 bytes: %v", err)
		}
		if _, err := a.WriteTo(make([]byte, 65507), addr(9)); err != nil {
			t.Errorf("writing to nobody: %v", err)
		}
		settle()
		if got := n.Stats().Dropped; got != (simnet.Drops{Dead: 1}) {
			t.Errorf("dropped %+v", got)
		}
		defer func() {
			if recover() == nil {
				t.Error("a cut of a malformed address passed unnoticed")
			}
		}()
		n.Cut(addr(1), "10.0.0.2")
	})
}

func TestAdvertise(t *testing.T) {
	a := listenAt(t, simnet.New(simnet.Config{}), addr(1))
	for _, c := range []struct {
		ip   string
		port int
		want string
	}{{"", 1, "10.0.0.1 7946"}, {"192.0.2.7", 99, "192.0.2.7 99"}, {"name", 1, ""}} {
		ip, port, err := a.FinalAdvertiseAddr(c.ip, c.port)
		if got := fmt.Sprint(ip, port); (err == nil) != (c.want != "") || (err == nil && got != c.want) {
			t.Errorf("advertise %q %d: %s, %v", c.ip, c.port, got, err)
		}
	}
}

// reach sends one packet along every link and returns the links along which one arrived.
func reach(t *testing.T, nodes []*simnet.Transport) map[[2]int]bool {
	t.Helper()
	got := map[[2]int]bool{}
	for i, from := range nodes {
		for j, to := range nodes {
			write(t, from, to, "x")
			settle()
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
		settle()
		wantPackets(t, nodes[1])
		write(t, nodes[0], nodes[1], "sent while cut")
		n.HealAll()
		settle()
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
		write(t, a, b, "farewell") // no error: the code above goes on unaware
		settle()
		wantPackets(t, a)
		wantPackets(t, b, "before")
		if got := n.Stats(); got.Dropped != (simnet.Drops{Dead: 1}) || got.Muted != 1 {
			t.Errorf("stats %+v", got)
		}
		if _, err := a.DialTimeout(addr(2), time.Second); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial by a crashed node: %v", err)
		}

		a2 := listenAt(t, n, addr(1))
		a.Pause() // nothing brings the old one back
		a.Resume()
		for range 2 {
			if err := a.Shutdown(); err != nil {
				t.Error(err)
			}
		}
		write(t, b, a2, "to the new one")
		settle()
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
		settle()
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
		settle()
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
			settle()
			if got := n.Stats(); got.InFlight != uint64(c.holds) || got.Dropped != (simnet.Drops{Overflow: 100}) {
				t.Errorf("packets of %d bytes: %+v", c.size, got)
			}
			nodes[1].Resume()
			if got := len(drain(nodes[1])); got != c.holds {
				t.Errorf("packets of %d bytes: %d delivered on resume, want %d", c.size, got, c.holds)
			}
			nodes[1].Pause() // the queue has room again
			write(t, nodes[0], nodes[1], "x")
			settle()
			nodes[1].Crash() // and what is in it dies with the node
			if got := n.Stats(); got.InFlight != 0 || got.Dropped.Dead != 1 {
				t.Errorf("packets of %d bytes, after the crash: %+v", c.size, got)
			}
			wantBalance(t, n)
		})
	}
}

// Whatever happens in whatever order, every packet is accounted for, and none
// crosses a cut or comes from or to a node that is not there.
func TestEveryPacketIsAccountedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The wrapper hides t.Deadline from rapid; it may not be called in a bubble.
		rapid.Check(struct{ *testing.T }{t}, func(rt *rapid.T) {
			n := simnet.New(simnet.Config{
				Seed: rapid.Uint64().Draw(rt, "seed"), Loss: rapid.SampledFrom([]float64{0, 0.5}).Draw(rt, "loss"),
				Delay: time.Second, Jitter: time.Second,
			})
			const count = 4
			live := map[int]*simnet.Transport{}
			defer func() {
				for _, tr := range live {
					tr.Shutdown()
				}
			}()
			muted := map[int]bool{}
			received := uint64(0)
			drainAll := func() {
				for _, tr := range live {
					received += uint64(len(drain(tr)))
				}
			}
			node := rapid.IntRange(1, count)
			step := func(name string, do func(i int, tr *simnet.Transport)) func(*rapid.T) {
				return func(rt *rapid.T) {
					i := node.Draw(rt, name)
					if live[i] == nil {
						rt.Skip("not there")
					}
					do(i, live[i])
				}
			}
			rt.Repeat(map[string]func(*rapid.T){
				"": func(rt *rapid.T) {
					drainAll()
					wantBalance(rt, n)
					if s := n.Stats(); s.PacketsDelivered < received {
						rt.Errorf("%d read, but %+v", received, s)
					}
				},
				"listen": func(rt *rapid.T) {
					i := node.Draw(rt, "listen")
					tr, err := n.Listen(addr(i))
					if (err == nil) != (live[i] == nil) {
						rt.Fatalf("listen on %d: %v", i, err)
					}
					if err == nil {
						live[i], muted[i] = tr, false
					}
				},
				"send": step("from", func(i int, tr *simnet.Transport) {
					before := n.Stats()
					if _, err := tr.WriteTo([]byte("x"), addr(node.Draw(rt, "to"))); err != nil {
						rt.Fatal(err)
					}
					after := n.Stats()
					if (after.Muted > before.Muted) != muted[i] || (after.PacketsSent > before.PacketsSent) == muted[i] {
						rt.Errorf("node %d, muted %v: %+v, then %+v", i, muted[i], before, after)
					}
				}),
				"crash": step("crash", func(i int, tr *simnet.Transport) {
					drainAll()
					tr.Crash()
					delete(live, i)
				}),
				"shutdown": step("shutdown", func(i int, tr *simnet.Transport) {
					drainAll()
					tr.Shutdown()
					delete(live, i)
				}),
				"pause":  step("pause", func(i int, tr *simnet.Transport) { tr.Pause(); muted[i] = true }),
				"resume": step("resume", func(i int, tr *simnet.Transport) { tr.Resume(); muted[i] = false }),
				"cut":    func(rt *rapid.T) { n.Cut(addr(node.Draw(rt, "a")), addr(node.Draw(rt, "b"))) },
				"heal":   func(*rapid.T) { n.HealAll() },
				"time":   func(*rapid.T) { time.Sleep(700 * time.Millisecond); synctest.Wait() },
			})
			settle()
			for _, tr := range live {
				tr.Resume()
			}
			drainAll()
			if s := n.Stats(); s.InFlight != 0 || s.PacketsDelivered != received {
				rt.Errorf("%d read in the end, but %+v", received, s)
			}
		})
	})
}

// For the race detector: every control at once, from several goroutines.
func TestControlsAreSafeForConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Config{Seed: 3, Delay: time.Millisecond, Jitter: time.Millisecond, Loss: 0.1})
		nodes := listen(t, n, 3)
		var wg sync.WaitGroup
		for i, tr := range nodes {
			next := nodes[(i+1)%3].Addr()
			wg.Go(func() {
				for range 200 {
					tr.WriteTo([]byte("x"), next)
					if c, err := tr.DialTimeout(next, time.Millisecond); err == nil {
						c.SetDeadline(time.Now().Add(time.Millisecond))
						c.Write(make([]byte, 300<<10))
						c.Close()
					}
				}
			})
			wg.Go(func() {
				for range 200 {
					tr.Pause()
					n.Cut(tr.Addr(), next)
					time.Sleep(300 * time.Microsecond)
					n.SetLoss(0.2)
					n.SetDelay(0, time.Millisecond)
					tr.Resume()
					n.Heal(tr.Addr(), next)
					n.Stats()
					tr.Traffic()
					drain(tr)
					select {
					case c := <-tr.StreamCh():
						c.SetReadDeadline(time.Now().Add(time.Millisecond))
						c.Read(make([]byte, 100))
						c.Close()
					default:
					}
				}
			})
		}
		wg.Wait()
		settle()
		wantBalance(t, n)
	})
}
