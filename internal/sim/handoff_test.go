package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/placement"
)

const handoffBound = 20 * time.Second

// handing is a cluster with handoff, in which handlers take up to slowest to return.
type handing struct {
	fleet
	handlers *sim.Handlers
	rng      *rand.Rand
	dead     []string
	log      []string // what was done to the cluster
	checked  int
}

func newHanding(t *testing.T, n, partitions int, slowest time.Duration, opts sim.Options) *handing {
	t.Helper()
	rng := rand.New(rand.NewPCG(opts.Seed, 11))
	x := &handing{rng: rand.New(rand.NewPCG(opts.Seed, 7))}
	x.handlers = &sim.Handlers{Stop: func(*sim.Process) time.Duration { return time.Duration(rng.Float64() * float64(slowest)) }}
	opts.Handlers = x.handlers
	change := opts.Config
	opts.Config = func(cfg *node.Config) {
		cfg.Partitions, cfg.Handoff = partitions, handoffBound
		if change != nil {
			change(cfg)
		}
	}
	x.fleet = newFleet(t, opts)
	x.Start(ids(n)...)
	x.agree(10 * time.Second) // at a loss of 30 %, one start in a hundred takes 4 s
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(strings.Join(x.log, "\n"))
		}
	})
	return x
}

// step changes the cluster at random, but never splits it and never pauses a process.
func (x *handing) step() {
	all := x.IDs()
	id, spare, n := all[x.rng.IntN(len(all))], len(all) > 3, x.rng.IntN(4)
	what := []string{"crash", "leave", "restart", "drain", "undrain", "weight", "loss", "start", "start", "start"}[x.rng.IntN(10)]
	x.log = append(x.log, fmt.Sprint(x.Elapsed(), " ", what, " ", id, " ", n))
	switch {
	case what == "crash" && spare:
		x.Crash(id)
		x.dead = append(x.dead, id)
	case what == "leave" && spare:
		x.Leave(id)
		x.dead = append(x.dead, id)
	case what == "restart":
		x.Restart(id)
	case what == "drain":
		x.Node(id).Drain()
	case what == "undrain":
		x.Node(id).Undrain()
	case what == "weight":
		x.Node(id).SetWeight(uint32(n) * 100)
	case what == "loss":
		x.SetLoss(float64(n) * 0.1)
	case len(x.dead) > 0:
		x.Start(x.dead[0])
		x.dead = x.dead[1:]
	}
}

// once fails the test if a partition had two runs at the same time.
func (x *handing) once() {
	x.t.Helper()
	if overlaps := x.handlers.Overlaps[x.checked:]; len(overlaps) > 0 {
		x.t.Fatalf("%d overlaps: %v", len(overlaps), overlaps[:min(8, len(overlaps))])
	}
}

// rests ends all faults, and fails the test unless each partition runs on its owner and all lookups return this owner.
func (x *handing) rests() {
	x.t.Helper()
	x.SetLoss(0)
	for _, id := range x.IDs() {
		x.Node(id).SetWeight(100)
		x.Node(id).Undrain()
	}
	x.Run(30 * time.Second)
	x.agree(time.Minute)
	x.once()
	for p := range x.Owners() {
		if n := x.handlers.Running(placement.Partition(p)); n != 1 {
			x.t.Errorf("partition %d has %d runs", p, n)
		}
	}
	x.await("lookups follow", handoffBound/2, x.follows)
}

// TestHandoff makes random changes, but no splits and no pauses. No partition has two runs at the same time, and in the
// end each partition runs. -changes sets the number of changes.
func TestHandoff(t *testing.T) {
	const steps = 40
	seeds := 10
	if testing.Short() {
		seeds = 3
	}
	if *changes > 0 {
		seeds = *changes / steps
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x := newHanding(t, 5, 64, 2*time.Second, sim.Options{Seed: uint64(seed), Jitter: 10 * time.Millisecond})
			for range steps {
				x.step()
				x.Run(time.Duration(x.rng.IntN(6000)) * time.Millisecond)
				x.once()
			}
			x.rests()
		})
	}
}

// TestLookupsFollow checks that once each partition runs on its owner, all lookups return that node long before the
// bound, even if many messages are lost.
func TestLookupsFollow(t *testing.T) {
	for seed := range uint64(6) {
		x := newHanding(t, 5, 64, 50*time.Millisecond, sim.Options{
			Seed: seed, Jitter: 100 * time.Millisecond, Loss: 0.3,
			Config: func(cfg *node.Config) { cfg.Handoff = time.Minute },
		})
		for _, change := range []func(){
			func() { x.Start("x") }, x.Node("n01").Drain, x.Node("n01").Undrain, func() { x.Node("n00").SetWeight(50) },
		} {
			x.Run(time.Duration(x.rng.IntN(2000)) * time.Millisecond)
			change()
			x.Run(time.Second)
			x.agree(time.Minute)
			x.await(fmt.Sprintf("lookups follow (seed %d)", seed), 20*time.Second, x.follows)
		}
	}
}

// follows reports whether each partition runs on its owner, and all nodes know this.
func (x *handing) follows() bool {
	return !slices.ContainsFunc(x.IDs(), func(id string) bool {
		v := x.Node(id).View()
		return v.RunsLeft > 0 || len(v.Runners) > 0
	})
}

// TestHandoffGap measures how long a partition has no run when it moves and each handler returns immediately, and when
// its node crashes. -long measures larger fleets.
func TestHandoffGap(t *testing.T) {
	type fleet struct {
		nodes   int
		loss    float64
		changes int
	}
	fleets := []fleet{{3, 0, 2}}
	if *long {
		fleets = []fleet{{3, 0, 20}, {50, 0, 10}, {300, 0, 5}, {3, 0.05, 20}, {50, 0.05, 10}, {300, 0.05, 5}}
	}
	for _, f := range fleets {
		t.Run(fmt.Sprintf("%d nodes, loss %v", f.nodes, f.loss), func(t *testing.T) {
			for _, bound := range []time.Duration{handoffBound, 0} {
				planned, crash := gaps(t, f.nodes, f.changes, f.loss, bound)
				if bound == 0 {
					t.Logf("without: crash %v", crash)
					continue
				}
				t.Logf("planned %v; crash %v", planned, crash)
				if f.loss == 0 && planned.median > 50*time.Millisecond {
					t.Error("the gap of a planned move takes more than a few round trips")
				}
			}
		})
	}
}

// gaps lets some nodes join, drain and crash, and returns the gaps that this causes.
func gaps(t *testing.T, nodes, changes int, loss float64, bound time.Duration) (planned, crash spread) {
	t.Helper()
	x := newHanding(t, nodes, placement.DefaultPartitions, 0, sim.Options{
		Seed: uint64(nodes), Jitter: time.Millisecond, Loss: loss, Config: func(cfg *node.Config) { cfg.Handoff = bound },
	})
	x.Run(10 * time.Second)
	for i := range changes {
		id := x.IDs()[i%2]
		for _, step := range []func(){
			func() { x.Start(fmt.Sprint("x", i)) }, x.Node(id).Drain, x.Node(id).Undrain,
			func() { x.Node(id).SetWeight(50) }, func() { x.Node(id).SetWeight(100) },
			func() { x.Crash(fmt.Sprint("x", i)) },
		} {
			x.Run(time.Duration(x.rng.IntN(2000)) * time.Millisecond)
			step()
			x.Run(10 * time.Second)
		}
	}
	if bound > 0 {
		x.once()
	}
	return x.spread(false), x.spread(true)
}

// spread is the distribution of the lengths of gaps.
type spread struct {
	gaps        int
	median, p99 time.Duration
}

func (s spread) String() string {
	return fmt.Sprintf("%d gaps, median %v, p99 %v", s.gaps, s.median, s.p99)
}

func (x *handing) spread(crash bool) spread {
	x.t.Helper()
	var all []time.Duration
	for _, g := range x.handlers.Gaps {
		if g.Crash == crash {
			all = append(all, g.Time)
		}
	}
	if len(all) == 0 {
		return spread{}
	}
	slices.Sort(all)
	return spread{len(all), all[len(all)/2], all[len(all)*99/100]}
}
