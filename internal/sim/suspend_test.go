package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
)

// suspension is a scenario: some nodes of a fleet are suspended with their hosts.
type suspension struct {
	name  string
	nodes int
	sleep int // how many of them are suspended
	loss  float64
	opts  sim.Options
}

func suspensions() []suspension {
	majority := sim.Options{Config: func(cfg *node.Config) { cfg.SplitForget = time.Hour }}
	least := sim.Options{Config: func(cfg *node.Config) { cfg.MinMembers = 2 }}
	handover := func() sim.Options {
		return sim.Options{
			Config:   func(cfg *node.Config) { cfg.Handover = 10 * time.Second },
			Handlers: &sim.Handlers{Stop: func(*sim.Process) time.Duration { return 0 }},
		}
	}
	return []suspension{
		{"one of two", 2, 1, 0, sim.Options{}},
		{"one of two, loss 5 %", 2, 1, 0.05, sim.Options{}},
		{"one of two, loss 20 %", 2, 1, 0.2, sim.Options{}},
		{"one of three", 3, 1, 0, sim.Options{}},
		{"one of three, loss 20 %", 3, 1, 0.2, sim.Options{}},
		{"two of three", 3, 2, 0, sim.Options{}},
		{"one of ten", 10, 1, 0, sim.Options{}},
		{"half of ten", 10, 5, 0, sim.Options{}},
		{"half of ten, loss 20 %", 10, 5, 0.2, sim.Options{}},
		{"nine of ten", 10, 9, 0, sim.Options{}},
		{"one of five, split policy", 5, 1, 0, majority},
		{"half of ten, at least two members", 10, 5, 0, least},
		{"one of three, hand-over", 3, 1, 0, handover()},
	}
}

// wake lets nodes that were suspended go on, and returns when partitions had two owners last.
func (c fleet) wake(asleep []string, stale bool, watch time.Duration) (double time.Duration) {
	all := c.IDs()
	for _, id := range asleep {
		c.Wake(id, stale)
	}
	for at := time.Duration(0); at < watch; at += 10 * time.Millisecond {
		if c.shared(all) {
			double = at
		}
		c.Run(10 * time.Millisecond)
	}
	return double
}

// shared reports whether two nodes own one partition.
func (c fleet) shared(ids []string) bool {
	owned := make(map[int]bool)
	for _, id := range ids {
		for _, p := range c.Node(id).Owned() {
			if owned[int(p)] {
				return true
			}
			owned[int(p)] = true
		}
	}
	return false
}

func TestMeasureSuspended(t *testing.T) {
	for _, d := range []time.Duration{90 * time.Second} {
		for _, stale := range []bool{true} {
			for _, s := range suspensions() {
				var worst []time.Duration
				for seed := range uint64(6) {
					s.opts.Seed, s.opts.Loss = seed, s.loss
					c := newFleet(t, s.opts)
					c.Start(ids(s.nodes)...)
					c.Run(10*time.Second + time.Duration(seed)*317*time.Millisecond)
					asleep := ids(s.nodes)[:s.sleep]
					for _, id := range asleep {
						c.Suspend(id)
					}
					c.Run(d)
					worst = append(worst, c.wake(asleep, stale, 15*time.Second))
				}
				slices.Sort(worst)
				t.Log(fmt.Sprintf("%v stale %v %-35s longest %v, median %v, 90%% %v", d, stale, s.name, worst[len(worst)-1], worst[len(worst)/2], worst[len(worst)*9/10]))
			}
		}
	}
}
