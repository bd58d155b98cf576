package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/placement"
)

// Whatever happens to a cluster by chance, in the end all nodes agree, what they
// have is even, and nothing moves or is exchanged any more.
func TestLeastChurn(t *testing.T) { // S2.3, S2.4
	if testing.Short() || underRace {
		t.Skip("12 clusters with 40 changes each take a quarter of a minute")
	}
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := clustertest.New(t, clustertest.Options{Seed: seed, Jitter: 3 * time.Millisecond, Config: func(cfg *cluster.Config) {
					cfg.Strategy = placement.LeastPartitions(1, 3)
					cfg.Partitions = leastPartitions
				}})
				c.Start(ids(5)...)
				c.WaitAgreed(3 * time.Second)
				churn(t.Context(), c, rand.New(rand.NewPCG(seed, 7)))
				for _, id := range c.IDs() {
					if err := c.Agent(id).SetWeight(100); err != nil {
						t.Error(err)
					}
					if err := c.Agent(id).Undrain(t.Context()); err != nil {
						t.Error(err)
					}
				}
				waitLevel(t, c, 3*time.Minute)
				rests(t, c)
			})
		})
	}
}

// churn makes 40 changes, and leaves a cluster in one piece, with everybody awake.
func churn(ctx context.Context, c *clustertest.Cluster, rng *rand.Rand) {
	paused, split := "", false
	pauses := []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 9 * time.Second, 80 * time.Second}
	for step := range 40 {
		all := c.IDs()
		id := all[rng.IntN(len(all))]
		free := id != paused
		whole := paused == "" && !split
		switch what := rng.IntN(9); {
		case what == 0 && whole && len(all) < 9:
			c.Start(fmt.Sprintf("new%02d", step))
		case what == 1 && free && len(all) > 3:
			c.Crash(id)
		case what == 2 && whole && len(all) > 3:
			c.Leave(id)
		case what == 3 && whole:
			c.Restart(id)
		case what == 4 && split:
			c.Heal()
			split = false
		case what == 4 && len(all) > 1:
			k := 1 + rng.IntN(len(all)-1)
			c.Split(all[:k], all[k:])
			split = true
		case what == 5 && paused != "":
			c.Resume(paused)
			paused = ""
		case what == 5:
			c.Pause(id)
			paused = id
		case what == 6 && free:
			_ = c.Agent(id).SetWeight(uint32(rng.IntN(4)) * 50)
		case what == 7 && free:
			short, cancel := context.WithTimeout(ctx, time.Second)
			_ = c.Agent(id).Drain(short)
			cancel()
		case what == 8 && free:
			short, cancel := context.WithTimeout(ctx, time.Second)
			_ = c.Agent(id).Undrain(short)
			cancel()
		}
		time.Sleep(time.Duration(rng.Int64N(int64(pauses[rng.IntN(len(pauses))]))))
	}
	if paused != "" {
		c.Resume(paused)
	}
	c.Heal()
	time.Sleep(30 * time.Second)
}
