package simnet_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/roost-cluster/roost/internal/simnet"
)

// complete is how long a member list may stay incomplete. Gossip sometimes misses a
// node, even without loss; a push/pull repairs it.
const complete = 3 * time.Minute

// start runs a memberlist on node i, which joins node 1.
func (b bed) start(i int) *memberlist.Memberlist {
	b.Helper()
	b.listen(i)
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = fmt.Sprintf("n%d at %v", i, time.Now())
	cfg.Transport = b.nodes[i]
	cfg.LogOutput = io.Discard
	m, err := memberlist.Create(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Shutdown() })
	if _, err := m.Join([]string{addr(1)}); err != nil {
		b.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	return m
}

// waitAllSee waits until each of ms lists exactly count members, and returns the time
// that it took.
func (b bed) waitAllSee(count int, within time.Duration, ms ...*memberlist.Memberlist) time.Duration {
	b.Helper()
	start := time.Now()
	for _, m := range ms {
		for m.NumMembers() != count {
			if time.Since(start) > within {
				b.Fatalf("%s sees %d members after %v, want %d", m.LocalNode().Name, m.NumMembers(), within, count)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return time.Since(start)
}

func TestMemberlist(t *testing.T) {
	cfg := simnet.Config{Seed: 1, Delay: time.Millisecond, Jitter: 2 * time.Millisecond, Loss: 0.02}
	run(t, cfg, 0, func(b bed) {
		b.Cleanup(func() { time.Sleep(time.Minute) }) // after all shutdowns: memberlist's own goroutines end
		ms := make([]*memberlist.Memberlist, 5)
		for i := range ms {
			ms[i] = b.start(i + 1)
		}
		b.waitAllSee(5, complete, ms...)

		// A crash is detected, not announced.
		rest := ms[:4:4]
		b.nodes[5].Crash()
		ms[4].Leave(time.Second)
		time.Sleep(500 * time.Millisecond)
		b.waitAllSee(5, 0, rest...)
		if took := b.waitAllSee(4, 30*time.Second, rest...); took < time.Second {
			b.Errorf("crash detected after %v: too early without a leave message", took)
		}
		ms = append(rest, b.start(5))
		b.waitAllSee(5, complete, ms...)

		// A short pause passes. A node paused for longer is dead to the others, then returns.
		b.nodes[5].Pause()
		time.Sleep(time.Second)
		b.nodes[5].Resume()
		time.Sleep(20 * time.Second)
		b.waitAllSee(5, 0, ms...)
		b.nodes[5].Pause()
		b.waitAllSee(4, 30*time.Second, rest...)
		b.nodes[5].Resume()
		b.waitAllSee(5, complete, ms...)

		// After a split each side has only itself. memberlist never contacts dead members
		// again; a join repairs the split.
		b.Split([]string{addr(1), addr(2)}, []string{addr(3), addr(4), addr(5)})
		b.waitAllSee(2, complete, ms[:2]...)
		b.waitAllSee(3, complete, ms[2:]...)
		if _, err := ms[0].Join([]string{addr(5)}); err == nil {
			b.Error("joined across the split")
		}
		b.HealAll()
		if _, err := ms[0].Join([]string{addr(5)}); err != nil {
			b.Error(err)
		}
		b.waitAllSee(5, complete, ms...)
		if err := ms[1].Leave(time.Second); err != nil {
			b.Error(err)
		}
		b.waitAllSee(4, time.Second, ms[0], ms[2], ms[3], ms[4])
	})
}
