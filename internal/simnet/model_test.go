package simnet_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/internal/simnet"
)

// For any order of operations, every packet is accounted for. No packet crosses a cut,
// and none comes from or goes to a node that is down.
func TestEveryPacketIsAccountedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The wrapper hides t.Deadline from rapid; a bubble forbids the call.
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
			waitArrived()
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

// For the race detector: all controls at once, from several goroutines.
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
		waitArrived()
		wantBalance(t, n)
	})
}
