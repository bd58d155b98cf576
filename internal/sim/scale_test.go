package sim_test

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// measure puts a new cluster through a trial.
func measure(t *testing.T, opts sim.Options, trial sim.Trial) sim.Measurement {
	t.Helper()
	trial.Limit = time.Minute
	opts.Jitter = 2 * time.Millisecond
	m, err := sim.New(opts).Measure(trial)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d nodes: %+v", trial.Nodes, m)
	return m
}

// Large clusters keep their leases on a network that loses packets, and agree in time. With packets of a third of the
// usual size, the ages of 260 nodes take as large a share of a packet as the ages of 1,000 nodes usually do. -long adds
// a cluster of 1,000 nodes. make scale also measures larger clusters, for longer.
func TestScale(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes minutes")
	}
	before := debug.SetGCPercent(400) // otherwise the collector takes a third of the time
	t.Cleanup(func() { debug.SetGCPercent(before) })
	type test struct {
		trial  sim.Trial
		loss   float64
		packet int
		within sim.Agreements
	}
	const whole = 1331
	lossy := sim.Agreements{Start: 6 * time.Second, Join: 4 * time.Second, Leave: time.Second, Crash: ttl + time.Second/2}
	oneCrash := lossy
	oneCrash.Crash = time.Second // by confirmation
	tests := []test{
		{
			sim.Trial{Nodes: 100, Rest: 20 * time.Second, Crash: 10},
			0, whole,
			sim.Agreements{Start: 3 * time.Second, Join: time.Second, Leave: time.Second, Crash: ttl + time.Second/2},
		},
		{sim.Trial{Nodes: 130, Rest: 20 * time.Second, Crash: 1}, 0.2, whole, oneCrash},
		{sim.Trial{Nodes: 260, Rest: 10 * time.Second, Crash: 26}, 0.2, whole / 3, lossy},
	}
	if *long {
		tests = append(tests, test{sim.Trial{Nodes: 1000, Rest: 2 * time.Minute, Crash: 100}, 0.2, whole, lossy})
	}
	for _, c := range tests {
		t.Run(fmt.Sprint(c.trial.Nodes), func(t *testing.T) {
			t.Parallel()
			config := func(cfg *node.Config) { cfg.PacketBytes = c.packet }
			m := measure(t, sim.Options{Seed: 1, Loss: c.loss, Config: config}, c.trial)
			if m.FalseExpiries > 0 {
				t.Errorf("%d leases of running nodes expired", m.FalseExpiries)
			}
			if m.OldestAge > ttl*3/4 || m.OldestAge < ttl/4 {
				t.Errorf("the oldest lease is of %v", m.OldestAge)
			}
			if m.Packets > 25 || m.Bytes > float64(15*c.packet) {
				t.Errorf("each node sends %.0f bytes in %.1f packets a second", m.Bytes, m.Packets)
			}
			for _, a := range []struct {
				change       string
				took, within time.Duration
			}{
				{"mass start", m.Agree.Start, c.within.Start},
				{"join", m.Agree.Join, c.within.Join},
				{"leave", m.Agree.Leave, c.within.Leave},
				{"crash", m.Agree.Crash, c.within.Crash},
			} {
				if a.took == sim.Never || a.took > a.within {
					t.Errorf("agreement %v after a %s, want at most %v", a.took, a.change, a.within)
				}
			}
		})
	}
}

// A trial counts each expiry of a running node's lease.
func TestMeasure(t *testing.T) {
	trial := sim.Trial{Nodes: 20, Rest: 20 * time.Second, Crash: 5}
	calm := measure(t, sim.Options{Seed: 1}, trial)
	if calm.FalseExpiries != 0 {
		t.Errorf("without loss: %+v", calm)
	}
	if again := measure(t, sim.Options{Seed: 1}, trial); again != calm {
		t.Errorf("the second run differs: %+v and %+v", calm, again)
	}
	if other := measure(t, sim.Options{Seed: 2}, trial); other == calm {
		t.Errorf("another seed, the same result: %+v", other)
	}
	if m := measure(t, sim.Options{Seed: 1, Loss: 0.3}, trial); m.FalseExpiries != 0 {
		t.Errorf("at 30 %% loss: %+v", m)
	}
	if m := measure(t, sim.Options{Seed: 1, Loss: 0.97}, trial); m.FalseExpiries < 10 || m.Agree.Start != sim.Never {
		t.Errorf("at 97 %% loss: %+v", m)
	}
	one := func(c *node.Config) { c.GossipNodes = 1 }
	if m := measure(t, sim.Options{Seed: 1, Config: one}, trial); m.Packets > calm.Packets/2 || m.OldestAge <= calm.OldestAge {
		t.Errorf("with news to one node: %+v; to three: %+v", m, calm)
	}
	trial.Crash = 0
	if m := measure(t, sim.Options{Seed: 1}, trial); m.Agree.Crash != sim.Never || m.Agree.Leave == sim.Never {
		t.Errorf("without a crash: %+v", m)
	}
}

// If the leave message of a node is lost, its lease expires at each of the other nodes, and the trial does not count
// this as wrong.
func TestMeasureLostLeave(t *testing.T) {
	const n = 10
	c := sim.New(sim.Options{Unwatched: true})
	drained := func(id string) bool {
		v := c.Node(id).View()
		isSelf := func(p placement.Node) bool { return string(p.ID) == id }
		return v.Diverged == 0 && len(v.Table.Nodes()) == n && !slices.ContainsFunc(v.Table.Nodes(), isSelf)
	}
	lost := time.Duration(0)
	m, err := c.Measure(sim.Trial{Nodes: n, Limit: time.Minute, Tick: func(phase string) error {
		switch {
		case lost == 0 && phase == "leave" && slices.ContainsFunc(c.IDs(), drained):
			c.SetLoss(1) // the leave message follows immediately
			lost = c.Elapsed()
		case lost > 0 && c.Elapsed() > lost+1500*time.Millisecond:
			c.SetLoss(0)
		}
		return nil
	}})
	if err != nil || m.FalseExpiries != 0 || m.Agree.Leave < ttl/2 || m.Agree.Leave > ttl+time.Second {
		t.Errorf("%+v, %v; lost after %v", m, err, lost)
	}
}

// A running node that no other node hears loses its lease at each of them. The node notices this and joins again,
// before or after its lease expires there.
func TestMeasureUnheard(t *testing.T) {
	const n = 10
	c := sim.New(sim.Options{Seed: 1})
	cut := time.Duration(0)
	m, err := c.Measure(sim.Trial{Nodes: n, Rest: 40 * time.Second, Limit: time.Minute, Tick: func(phase string) error {
		switch ids := c.IDs(); {
		case phase == "rest" && cut == 0:
			cut = c.Elapsed()
			for _, id := range ids[1:] {
				c.Cut(ids[0], id)
			}
		case cut > 0 && c.Elapsed() > cut+15*time.Second:
			c.Heal()
		}
		return nil
	}})
	if err != nil || m.FalseExpiries < n-1 || m.FalseExpiries > 2*(n-1) || m.OldestAge < ttl-time.Second {
		t.Errorf("%+v, %v", m, err)
	}
}

// An error from Tick ends a trial.
func TestMeasureStops(t *testing.T) {
	stop := errors.New("stop")
	c := sim.New(sim.Options{})
	_, err := c.Measure(sim.Trial{Nodes: 3, Rest: time.Minute, Tick: func(phase string) error {
		if phase == "rest" {
			return stop
		}
		return nil
	}})
	if !errors.Is(err, stop) || c.Elapsed() > 30*time.Second {
		t.Errorf("%v after %v", err, c.Elapsed())
	}
}

// The nodes of a trial share equal data, because thousands of nodes have to fit into memory.
func TestMeasureShares(t *testing.T) {
	c := sim.New(sim.Options{})
	if _, err := c.Measure(sim.Trial{Nodes: 4, Limit: time.Minute}); err != nil {
		t.Fatal(err)
	}
	ids := c.IDs()
	of := func(viewer string) *lease.Record { return c.Node(viewer).View().Live.Members[0].Record }
	if of(ids[1]) != of(ids[2]) || string(of(ids[1]).ID) != ids[0] {
		t.Errorf("%s and %s hold records of their own: %+v, %+v", ids[1], ids[2], of(ids[1]), of(ids[2]))
	}
	one, other := c.Node(ids[1]).View(), c.Node(ids[2]).View()
	if one.Table != other.Table || one.State.Table != one.Table {
		t.Errorf("%s and %s hold tables of their own", ids[1], ids[2])
	}
	if &one.State.Members[0] != &other.State.Members[0] {
		t.Errorf("%s and %s hold lists of members of their own", ids[1], ids[2])
	}
}
