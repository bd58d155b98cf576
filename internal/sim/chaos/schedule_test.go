package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/placement"
)

const (
	ttl        = 6 * time.Second // of cluster.LAN
	partitions = 64
	bound      = 10 * time.Second // of a handoff
	hang       = 15 * time.Second // how long a hanging handler takes
)

// schedule contains everything that a seed determines.
type schedule struct {
	seed       uint64
	hosts      int // with one node each
	atStart    int // of these hosts, how many start together
	jitter     time.Duration
	loss       float64 // of all packets, at all times
	strategy   placement.Strategy
	minMembers int
	unwatched  bool          // only leases detect crashes
	handoff    bool          // each partition has a handler
	slowest    time.Duration // how long the slowest handler takes to return
	kinds      []string      // of faults
	steps      []step
}

// step is a fault, or the end of a fault.
type step struct {
	after time.Duration // the one before
	text  string
	do    func(*world)
}

// draw returns the schedule of a seed. Each kind of fault occurs in only half of the schedules, because a fault that
// always occurs would hide what other faults need to do harm, as in Groce et al., "Swarm Testing" (2012).
func draw(seed uint64) schedule {
	rng := rand.New(rand.NewPCG(seed, 4))
	s := schedule{
		seed: seed, hosts: 3 + rng.IntN(7), strategy: placement.Rendezvous(),
		jitter: time.Duration(one(rng, 0, 3, 10, 50)) * time.Millisecond, loss: one(rng, 0, 0, 0.05, 0.2),
	}
	if rng.IntN(8) == 0 {
		s.hosts = 10 + rng.IntN(11)
	}
	s.atStart = s.hosts - rng.IntN(s.hosts/2)
	if rng.IntN(4) == 0 {
		s.strategy = placement.LeastPartitions(1, 3)
	}
	if rng.IntN(4) == 0 {
		s.minMembers = s.hosts/2 + 1
	}
	s.unwatched = rng.IntN(2) == 0
	s.handoff = rng.IntN(2) == 0
	s.slowest = one(rng, 0, 100*time.Millisecond, 2*time.Second)
	var pool []fault
	for _, f := range faults() {
		if rng.IntN(2) == 0 {
			s.kinds = append(s.kinds, f.name)
			for range f.share {
				pool = append(pool, f)
			}
		}
	}
	if len(pool) == 0 {
		pool, s.kinds = faults(), []string{"all"}
	}
	for range 20 + rng.IntN(21) {
		f := pool[rng.IntN(len(pool))]
		text, do := f.draw(rng, s.hosts)
		s.steps = append(s.steps, step{pause(rng), strings.TrimSpace(f.name + " " + text), do})
	}
	s.suspend()
	return s
}

// suspend adds suspensions of hosts to the steps of every other seed. It uses its own random numbers, so the other
// steps of a seed stay the same.
func (s *schedule) suspend() {
	rng := rand.New(rand.NewPCG(s.seed, 7))
	if rng.IntN(2) == 0 {
		return
	}
	s.kinds = append(s.kinds, "suspend")
	for range 1 + rng.IntN(4) {
		var asleep []string
		for range 1 + rng.IntN(max(1, s.hosts/2)) {
			asleep = append(asleep, nameOf(rng.IntN(s.hosts)))
		}
		d := one(rng, 8*time.Second, 30*time.Second, 90*time.Second, 5*time.Minute)
		stale := rng.IntN(2) == 0 // the wall clock stood still, too
		at := rng.IntN(len(s.steps) + 1)
		s.steps = slices.Insert(s.steps, at,
			step{ttl, fmt.Sprint("suspend ", asleep), func(w *world) { w.suspend(asleep) }},
			step{d, fmt.Sprint("wake ", asleep, ", stale wall clock ", stale), func(w *world) { w.wake(asleep, stale) }},
			step{3 * time.Second, fmt.Sprint("set the clocks of ", asleep), func(w *world) {
				for _, id := range asleep {
					w.setClock(id, 0)
				}
			}})
	}
}

// pause returns the time until the next step, which is usually too short for anything to settle.
func pause(rng *rand.Rand) time.Duration {
	longest := one(rng, 10*time.Millisecond, 300*time.Millisecond, 2*time.Second, 8*time.Second, 8*time.Second, 20*time.Second, 60*time.Second)
	return time.Duration(rng.Int64N(int64(longest)))
}

// one returns a random element of all.
func one[T any](rng *rand.Rand, all ...T) T { return all[rng.IntN(len(all))] }

func (s schedule) options(w *world) sim.Options {
	o := sim.Options{Seed: s.seed, Jitter: s.jitter, Loss: s.loss, Unwatched: s.unwatched, Tap: w.record, Log: w.log}
	o.Config = func(cfg *node.Config) {
		cfg.Partitions, cfg.Strategy, cfg.MinMembers = partitions, s.strategy, s.minMembers
		if s.handoff {
			cfg.Handoff = bound
		}
	}
	if s.handoff {
		o.Handlers = w.handlers
	}
	return o
}

// levels reports whether the strategy continues to move partitions for some time after the last fault.
func (s schedule) levels() bool { return placement.Remembers(s.strategy) }

func (s schedule) String() string {
	return fmt.Sprintf("%d hosts, %d at the start, jitter %v, loss %v, %s, min members %d, unwatched %v, handoff %v (%v); faults: %s",
		s.hosts, s.atStart, s.jitter, s.loss, s.strategy.Name(), s.minMembers, s.unwatched, s.handoff, s.slowest, strings.Join(s.kinds, ", "))
}
