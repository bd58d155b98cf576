package sim_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/sim"
)

// story runs a minute with many faults, and returns a fingerprint for each second.
func story(seed uint64, opts sim.Options) (prints []uint64) {
	opts.Seed, opts.Loss, opts.Jitter = seed, 0.1, 10*time.Millisecond
	c := sim.New(opts)
	c.Start(ids(20)...)
	for second := range 60 {
		switch second {
		case 10:
			c.Crash("n03", "n07")
		case 15:
			c.StartWith("fast", sim.Setup{Clock: 4 * time.Second})
		case 20:
			c.Split(c.IDs()[:5], c.IDs()[5:])
		case 25:
			c.Pause("n10")
		case 35:
			c.Heal()
			c.Resume("n10")
		case 40:
			c.Node("n11").Drain()
			c.Node("n12").SetWeight(300)
		}
		c.Run(time.Second)
		prints = append(prints, c.Fingerprint())
	}
	return prints
}

// Two runs with the same seed are identical, second by second. Runs with different seeds differ.
func TestReplay(t *testing.T) {
	for name, opts := range map[string]sim.Options{"rendezvous": {}, "least partitions": least(leastPartitions, 3)} {
		first := story(1, opts)
		for range 3 {
			for second, print := range story(1, opts) {
				if print != first[second] {
					t.Fatalf("%s: two runs of one seed differ after %d s", name, second+1)
				}
			}
		}
		if other := story(2, opts); other[59] == first[59] {
			t.Errorf("%s: two runs of different seeds are the same", name)
		}
	}
}
