package simnet_test

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/roost-cluster/roost/internal/simnet"
)

// complete is how long a member list may stay incomplete. Gossip sometimes misses a
// node, even without loss; a push/pull repairs it.
const complete = 3 * time.Minute

// member is a memberlist over the simulated network.
type member struct {
	*memberlist.Memberlist
	tr *simnet.Transport
}

func startMember(t *testing.T, n *simnet.Network, name, at string) member {
	t.Helper()
	tr := listenAt(t, n, at)
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = name
	cfg.Transport = tr
	cfg.LogOutput = io.Discard
	m, err := memberlist.Create(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Shutdown() })
	return member{m, tr}
}

func startMembers(t *testing.T, n *simnet.Network, count int) []member {
	t.Helper()
	ms := make([]member, count)
	for i := range ms {
		time.Sleep(100 * time.Millisecond)
		ms[i] = startMember(t, n, fmt.Sprintf("n%d", i+1), addr(i+1))
		if _, err := ms[i].Join([]string{addr(1)}); err != nil {
			t.Fatal(err)
		}
	}
	return ms
}

// shutdown ends a cluster; memberlist's own goroutines take a few seconds more.
func shutdown(t *testing.T, ms ...member) {
	t.Helper()
	for _, m := range ms {
		if err := m.Shutdown(); err != nil {
			t.Error(err)
		}
	}
	linger()
}

func linger() { time.Sleep(time.Minute) }

// waitAllSee waits until each of ms lists exactly count members, and returns the time
// that it took.
func waitAllSee(t *testing.T, count int, within time.Duration, ms ...member) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		differs := func(m member) bool { return m.NumMembers() != count }
		i := slices.IndexFunc(ms, differs)
		if i < 0 {
			return time.Since(start)
		}
		if time.Since(start) > within {
			t.Fatalf("%s sees %d members after %v, want %d", ms[i].LocalNode().Name, ms[i].NumMembers(), within, count)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestMemberlist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(linger) // if the test fails: runs after all shutdowns
		n := simnet.New(simnet.Config{Seed: 1, Delay: time.Millisecond, Jitter: 2 * time.Millisecond, Loss: 0.02})
		ms := startMembers(t, n, 5)
		waitAllSee(t, 5, complete, ms...)

		// A crash is detected, not announced.
		victim, rest := ms[4], ms[:4]
		victim.tr.Crash()
		victim.Leave(time.Second)
		time.Sleep(500 * time.Millisecond)
		waitAllSee(t, 5, 0, rest...)
		if took := waitAllSee(t, 4, 30*time.Second, rest...); took < time.Second {
			t.Errorf("crash detected after %v: too early without a leave message", took)
		}
		again := startMember(t, n, "n5-again", addr(5))
		if _, err := again.Join([]string{addr(1)}); err != nil {
			t.Fatal(err)
		}
		ms = append(slices.Clone(rest), again)
		waitAllSee(t, 5, complete, ms...)

		// A short pause passes. A node paused for longer is dead to the others, then returns.
		again.tr.Pause()
		time.Sleep(time.Second)
		again.tr.Resume()
		time.Sleep(20 * time.Second)
		waitAllSee(t, 5, 0, ms...)
		again.tr.Pause()
		waitAllSee(t, 4, 30*time.Second, rest...)
		again.tr.Resume()
		waitAllSee(t, 5, complete, ms...)

		// After a split each side has only itself. memberlist never contacts dead members
		// again; a join repairs the split.
		n.Split([]string{addr(1), addr(2)}, []string{addr(3), addr(4), addr(5)})
		waitAllSee(t, 2, complete, ms[:2]...)
		waitAllSee(t, 3, complete, ms[2:]...)
		if _, err := ms[0].Join([]string{addr(5)}); err == nil {
			t.Error("joined across the split")
		}
		n.HealAll()
		if _, err := ms[0].Join([]string{addr(5)}); err != nil {
			t.Error(err)
		}
		waitAllSee(t, 5, complete, ms...)

		if err := ms[1].Leave(time.Second); err != nil {
			t.Error(err)
		}
		waitAllSee(t, 4, time.Second, ms[0], ms[2], ms[3], ms[4])
		shutdown(t, append(ms, victim)...)
		wantBalance(t, n)
		if s := n.Stats(); s.InFlight != 0 || s.StreamsOpen != 0 {
			t.Errorf("a minute after the end: %+v", s)
		}
	})
}

// A minute of 50 nodes. The log shows the real time that it takes.
func TestMinuteOfFiftyNodes(t *testing.T) {
	const count = 50
	run := func(minutes int) time.Duration {
		start := time.Now() // outside the bubble: the real clock
		synctest.Test(t, func(t *testing.T) {
			t.Cleanup(linger)
			n := simnet.New(simnet.Config{Seed: 1, Delay: time.Millisecond, Jitter: time.Millisecond})
			ms := startMembers(t, n, count)
			joined := waitAllSee(t, count, complete, ms...)
			before, began := n.Stats(), time.Now()
			time.Sleep(time.Duration(minutes) * time.Minute)
			after, took := n.Stats(), time.Since(began)
			waitAllSee(t, count, 0, ms...)
			if minutes > 0 {
				rate := float64(after.PacketsSent-before.PacketsSent) / took.Seconds() / count
				bytes := float64(after.BytesSent-before.BytesSent) / took.Seconds() / count
				t.Logf("joined after %v; then %.1f packets and %.0f bytes a second per node; %+v", joined, rate, bytes, after)
				if rate < 1 || rate > 40 || after.Dropped.Total() > 0 {
					t.Errorf("%.1f packets a second per node, dropped %+v", rate, after.Dropped)
				}
			}
			shutdown(t, ms...)
			if s := n.Stats(); s.InFlight > 0 {
				t.Errorf("in flight at the end: %+v", s)
			}
		})
		return time.Since(start)
	}
	without, with := run(0), run(1)
	t.Logf("a virtual minute of %d nodes took %v of real time (and %v to join and shut down)", count, with-without, without)
}
