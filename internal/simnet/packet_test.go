package simnet_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/roost-cluster/roost/internal/simnet"
)

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

// Packets of one instant need a fixed order, or no run could be repeated: a bubble
// fires its timers of one instant in random order.
func TestPacketsOfOneInstantKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := listen(t, simnet.New(simnet.Config{Delay: time.Millisecond}), 3)
		want := make([]string, 1000)
		for i := range want {
			want[i] = strconv.Itoa(i)
			write(t, nodes[i%2], nodes[2], want[i])
		}
		waitArrived()
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
			// 200 is at least four standard deviations.
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
	// arrivals returns which of node 1's packets to node 2 arrive, in order of arrival. It
	// calls around before each packet.
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
			waitArrived()
			got = drain(nodes[1])
		})
		return got
	}
	once := arrivals(1, nil)
	if again := arrivals(1, nil); !slices.Equal(once, again) {
		t.Errorf("seed 1 twice:\n%v\n%v", once, again)
	}
	if other := arrivals(2, nil); slices.Equal(once, other) {
		t.Error("seeds 1 and 2 draw the same numbers")
	}
	busy := arrivals(1, func(i int, n *simnet.Network, nodes []*simnet.Transport) {
		write(t, nodes[2], nodes[0], "to another")
		n.Cut(addr(1), addr(3))
	})
	if !slices.Equal(once, busy) {
		t.Error("another node's packets changed the fate of this node's packets")
	}
	restarted := arrivals(1, func(i int, n *simnet.Network, nodes []*simnet.Transport) {
		if i == 0 {
			nodes[0].Crash()
			nodes[0], _ = n.Listen(addr(1))
		}
	})
	if slices.Equal(once, restarted) {
		t.Error("a second node on an address repeats the draws of the first")
	}
	elsewhere := arrivals(1, func(i int, n *simnet.Network, nodes []*simnet.Transport) {
		if i == 0 {
			nodes[0], nodes[2] = nodes[2], nodes[0]
		}
	})
	if slices.Equal(once, elsewhere) {
		t.Error("two nodes draw the same numbers")
	}
	// Packets 100 to 199 meet a perfect network; the others have the same fate as before.
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
		t.Errorf("a change of settings changed later draws:\n%v\n%v", a, b)
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
		waitArrived()
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
			t.Errorf("writing to an address without a listener: %v", err)
		}
		waitArrived()
		if got := n.Stats().Dropped; got != (simnet.Drops{NoListener: 1}) {
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
