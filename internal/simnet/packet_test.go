package simnet_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/roost-cluster/roost/internal/simnet"
)

func TestPacketArrivesAfterDelay(t *testing.T) {
	run(t, simnet.Config{Delay: 20 * time.Millisecond}, 2, func(b bed) {
		start := time.Now()
		buf := []byte("ping")
		sent, err := b.nodes[1].WriteToAddress(buf, memberlist.Address{Addr: addr(2), Name: "b"})
		if err != nil || !sent.Equal(start) {
			b.Fatalf("sent at %v, %v; want %v", sent, err, start)
		}
		copy(buf, "xxxx") // the sender may reuse its buffer
		p := <-b.nodes[2].PacketCh()
		if took := time.Since(start); took != 20*time.Millisecond || !p.Timestamp.Equal(time.Now()) {
			b.Errorf("took %v, stamped %v after sending", took, p.Timestamp.Sub(start))
		}
		if string(p.Buf) != "ping" || p.From.String() != addr(1) {
			b.Errorf("got %q from %v", p.Buf, p.From)
		}
	})
}

// Packets that are due at the same instant arrive in the order in which they were sent, although a bubble fires timers
// of the same instant in random order.
func TestPacketsOfOneInstantKeepTheirOrder(t *testing.T) {
	run(t, simnet.Config{Delay: time.Millisecond}, 3, func(b bed) {
		want := make([]string, 1000)
		for i := range want {
			want[i] = strconv.Itoa(i)
			b.send(1+i%2, 3, want[i])
		}
		b.wantPackets(3, want...)
	})
}

func TestJitterSpreadsArrivals(t *testing.T) {
	const delay, jitter, count = 10 * time.Millisecond, 40 * time.Millisecond, 1000
	run(t, simnet.Config{Seed: 1, Delay: delay, Jitter: jitter}, 2, func(b bed) {
		start := time.Now()
		for i := range count {
			b.send(1, 2, strconv.Itoa(i))
		}
		var sum time.Duration
		reordered := false
		for i := range count {
			p := <-b.nodes[2].PacketCh()
			took := time.Since(start)
			if took < delay || took >= delay+jitter {
				b.Errorf("packet %s took %v", p.Buf, took)
			}
			sum += took
			reordered = reordered || string(p.Buf) != strconv.Itoa(i)
		}
		if mean := sum / count; mean < 28*time.Millisecond || mean > 32*time.Millisecond || !reordered {
			b.Errorf("mean delay %v, want about 30ms; reordered: %v", mean, reordered)
		}
	})
}

func TestLossIsItsShare(t *testing.T) {
	const count = 4000
	for _, loss := range []float64{0, 0.2, 0.9, 1} {
		run(t, simnet.Config{Seed: 7}, 2, func(b bed) {
			b.SetLoss(loss)
			for range count {
				b.send(1, 2, "x")
			}
			got := float64(len(b.arrived(2)))
			// The tolerance of 130 is at least five standard deviations.
			if want := (1 - loss) * count; got < want-130 || got > want+130 || (loss == 0 && got != count) {
				b.Errorf("loss %v: %v of %d arrived", loss, got, count)
			}
		})
	}
}

// SetLossOf affects packets of one address in one direction, in addition to the general loss.
func TestLossOf(t *testing.T) {
	const count = 4000
	run(t, simnet.Config{Seed: 7, Loss: 0.2}, 3, func(b bed) {
		b.SetLossOf(addr(1), 0.5, 0)
		b.SetLossOf(addr(2), 0, 0.5)
		for link, share := range map[[2]int]float64{{1, 2}: 0.2, {1, 3}: 0.4, {3, 2}: 0.4, {2, 3}: 0.8, {3, 1}: 0.8} {
			for range count {
				b.send(link[0], link[1], "x")
			}
			if got := float64(len(b.arrived(link[1]))); got < share*count-160 || got > share*count+160 {
				b.Errorf("%v: %v of %d arrived, want a share of %v", link, got, count, share)
			}
		}
	})
}

func TestSameSeedSameFate(t *testing.T) {
	// arrivals returns which packets from one node to another arrive, in order of arrival. It calls around before each
	// packet is sent.
	arrivals := func(seed uint64, from, to int, around func(i int, b bed)) (got []string) {
		run(t, simnet.Config{Seed: seed, Loss: 0.3, Delay: time.Millisecond, Jitter: time.Second}, 3, func(b bed) {
			for i := range 500 {
				around(i, b)
				b.send(from, to, strconv.Itoa(i))
			}
			got = b.arrived(to)
		})
		return got
	}
	nothing := func(int, bed) {}
	once := arrivals(1, 1, 2, nothing)
	if again := arrivals(1, 1, 2, nothing); !slices.Equal(once, again) {
		t.Errorf("seed 1 twice:\n%v\n%v", once, again)
	}
	if other := arrivals(2, 1, 2, nothing); slices.Equal(once, other) {
		t.Error("seeds 1 and 2 draw the same numbers")
	}
	if elsewhere := arrivals(1, 3, 2, nothing); slices.Equal(once, elsewhere) {
		t.Error("two nodes draw the same numbers")
	}
	busy := arrivals(1, 1, 2, func(_ int, b bed) {
		b.send(3, 1, "to another")
		b.CutOneWay(addr(1), addr(3))
	})
	if !slices.Equal(once, busy) {
		t.Error("another node's packets changed the fate of this node's packets")
	}
	// The network loses none of the packets 100 to 199. The other packets have the same fate as before.
	calm := arrivals(1, 1, 2, func(i int, b bed) {
		switch i {
		case 100:
			b.SetLoss(0)
		case 200:
			b.SetLoss(0.3)
		}
	})
	perfect := func(text string) bool { i, _ := strconv.Atoi(text); return i >= 100 && i < 200 }
	if len(calm) <= len(once) {
		t.Errorf("%d packets arrived with losses, %d with fewer", len(once), len(calm))
	}
	if once, calm = slices.DeleteFunc(once, perfect), slices.DeleteFunc(calm, perfect); !slices.Equal(once, calm) {
		t.Errorf("a change of settings changed later draws:\n%v\n%v", once, calm)
	}
}

// A node that does not read its packets, running or paused, keeps only a limited number of them.
func TestQueueIsBounded(t *testing.T) {
	for _, pause := range []bool{false, true} {
		run(t, simnet.Config{}, 2, func(b bed) {
			if pause {
				b.nodes[2].Pause()
			}
			for range 5000 {
				b.send(1, 2, "x")
			}
			time.Sleep(time.Second)
			b.nodes[2].Resume()
			if got := len(b.arrived(2)); got != 4096 {
				b.Errorf("paused %v: %d packets were kept", pause, got)
			}
		})
	}
}
