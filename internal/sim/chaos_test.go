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

// TestLeastChurn puts a cluster whose strategy has an assignment through arbitrary trouble. In
// the end what the nodes own is level, and nothing moves or is exchanged any more. Package
// internal/chaos has more kinds of faults, and checks more.
func TestLeastChurn(t *testing.T) { // S2.3, S2.4
	seeds := uint64(20)
	if testing.Short() {
		seeds = 3
	}
	pauses := []time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 9 * time.Second, 80 * time.Second}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			x := newChaos(t, 5, sim.Options{Seed: seed, Jitter: 3 * time.Millisecond, Config: func(cfg *node.Config) {
				cfg.Strategy, cfg.Partitions = placement.LeastPartitions(1, 3), leastPartitions
			}})
			for range 40 {
				x.step()
				x.Run(time.Duration(x.rng.Int64N(int64(pauses[x.rng.IntN(len(pauses))]))))
			}
			x.end()
			x.level(4 * time.Minute)
			x.rests()
		})
	}
}

// chaos is a cluster and what has been done to it.
type chaos struct {
	fleet
	rng    *rand.Rand
	paused []string
	dead   []string
	log    []string
}

func newChaos(t *testing.T, n int, opts sim.Options) *chaos {
	t.Helper()
	x := &chaos{fleet: started(t, n, opts), rng: rand.New(rand.NewPCG(opts.Seed, 7))}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(strings.Join(x.log, "\n"))
		}
	})
	return x
}

func (x *chaos) say(what string, args ...any) {
	x.log = append(x.log, fmt.Sprint(x.Elapsed(), " ", what, " ", args))
}

// running returns a random node that runs, and whether there are enough to spare it.
func (x *chaos) running() (id string, spare bool) {
	live := slices.DeleteFunc(x.IDs(), func(id string) bool { return slices.Contains(x.paused, id) })
	return live[x.rng.IntN(len(live))], len(live) > 3
}

// on changes one node, or starts the first dead one.
func (x *chaos) on(id, what string) {
	if what == "start" {
		id = x.dead[0]
	}
	x.say(what, id)
	switch what {
	case "crash":
		x.Crash(id)
		x.dead = append(x.dead, id)
	case "leave":
		x.Leave(id)
		x.dead = append(x.dead, id)
	case "start":
		x.Start(id)
		x.dead = x.dead[1:]
	case "restart":
		x.Restart(id)
	case "drain":
		x.Node(id).Drain()
	case "undrain":
		x.Node(id).Undrain()
	}
}

// weigh gives a node a random weight.
func (x *chaos) weigh(id string) {
	weight := uint32(x.rng.IntN(4)) * 100
	x.say("weight", id, weight)
	x.Node(id).SetWeight(weight)
}

// lose has the network lose a random share of all packets, of 0 to below so many tenths.
func (x *chaos) lose(tenths int) {
	loss := float64(x.rng.IntN(tenths)) * 0.1
	x.say("loss", loss)
	x.SetLoss(loss)
}

func (x *chaos) step() {
	id, spare := x.running()
	switch op := x.rng.IntN(12); {
	case op == 0 && spare:
		x.on(id, "crash")
	case op == 1 && spare:
		x.on(id, "leave")
	case op == 2 && len(x.dead) > 0:
		x.on(id, "start")
	case op == 3:
		x.on(id, "restart")
	case op == 4 && spare:
		x.say("pause", id)
		x.Pause(id)
		x.paused = append(x.paused, id)
	case op == 5 && len(x.paused) > 0:
		x.say("resume", x.paused[0])
		x.Resume(x.paused[0])
		x.paused = x.paused[1:]
	case op == 6:
		all := x.IDs()
		k := 1 + x.rng.IntN(len(all)-1)
		x.say("split", all[:k], all[k:])
		x.Split(all[:k], all[k:])
	case op == 7:
		x.say("heal")
		x.Heal()
	case op == 8:
		x.on(id, "drain")
	case op == 9:
		x.weigh(id)
	case op == 10:
		x.lose(3)
	case op == 11:
		x.on(id, "undrain")
	}
}

// end stops all trouble.
func (x *chaos) end() {
	x.say("end")
	x.Heal()
	x.SetLoss(0)
	for _, id := range x.paused {
		x.Resume(id)
	}
	x.Start("last") // its seeds are nodes of all sides: no split outlives its reasons
	for _, id := range x.IDs() {
		x.Node(id).SetWeight(100)
		x.Node(id).Undrain()
	}
	x.Run(30 * time.Second)
}
