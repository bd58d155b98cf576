package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// fault is a kind of fault. To add a kind, add a row to faults, and a line to calm_test.go if the fault may end a
// lease.
type fault struct {
	name  string
	share int // share of the steps, relative to other faults
	draw  func(rng *rand.Rand, hosts int) (text string, do func(*world))
}

// faults returns all kinds of faults. A step that makes no sense at its time, such as a crash of a node that does not
// run, does nothing.
func faults() []fault { return slices.Concat(nodeFaults(), applicationFaults(), networkFaults()) }

func nodeFaults() []fault {
	return []fault{
		onNode("crash", 2, (*world).crash),
		onNode("crash and start in place", 2, (*world).restart),
		onNode("vanish", 2, (*world).vanish),
		onNode("start", 4, (*world).start),
		onNode("move to another address", 1, func(w *world, id string) {
			w.crash(id)
			w.hosts[id].addr = ""
			w.start(id)
		}),
		onNode("leave", 2, (*world).leave),
		onNode("start a duplicate", 2, (*world).duplicate),
		onNode("resume the duplicate", 3, (*world).resumeDuplicate),
		onNode("drain", 2, func(w *world, id string) { w.drain(id, true) }),
		onNode("undrain", 2, func(w *world, id string) { w.drain(id, false) }),
		withNumber("weight", 2, 4, func(w *world, id string, n int) { w.weigh(id, uint32(n)*100) }),
		onNode("pause", 2, (*world).pause),
		onNode("resume", 4, (*world).resume),
		{"pause all", 1, func(*rand.Rand, int) (string, func(*world)) {
			return "", func(w *world) {
				for _, id := range w.IDs() {
					w.pause(id)
				}
			}
		}},
		{"resume all", 1, func(*rand.Rand, int) (string, func(*world)) { return "", (*world).resumeAll }},
	}
}

// applicationFaults returns the faults that applications and operators cause.
func applicationFaults() []fault {
	return []fault{
		onNode("drain and leave", 2, (*world).drainAndLeave),
		withNumber("health", 2, 4, (*world).health),
		withNumber("handlers hang", 2, 2, func(w *world, id string, n int) { w.hosts[id].hangs = n == 0 }),
		{"cordon", 3, func(rng *rand.Rand, hosts int) (string, func(*world)) {
			by, id := nameOf(rng.IntN(hosts)), nameOf(rng.IntN(hosts))
			d := one(rng, 0, 2*time.Second, 10*time.Second, 30*time.Second)
			return fmt.Sprint(id, " for ", d, " by ", by), func(w *world) { w.cordon(by, id, d) }
		}},
	}
}

func networkFaults() []fault {
	return []fault{
		{"split", 2, func(rng *rand.Rand, hosts int) (string, func(*world)) {
			sides := rng.Perm(hosts)
			for i := range sides {
				sides[i] = rng.IntN(2 + hosts/6)
			}
			return fmt.Sprint(sides), func(w *world) {
				w.cut(func(from, to int) bool { return sides[from] != sides[to] })
			}
		}},
		{"cut one way", 2, func(rng *rand.Rand, hosts int) (string, func(*world)) {
			from, to := rng.Uint64(), rng.Uint64() // sets of hosts
			return fmt.Sprintf("%b to %b", from%(1<<hosts), to%(1<<hosts)), func(w *world) {
				w.cut(func(a, b int) bool { return from>>a&1 == 1 && to>>b&1 == 1 })
			}
		}},
		{"cut a link", 2, func(rng *rand.Rand, hosts int) (string, func(*world)) {
			a, b := rng.IntN(hosts), rng.IntN(hosts)
			return nameOf(a) + " " + nameOf(b), func(w *world) {
				w.cut(func(from, to int) bool { return from == a && to == b || from == b && to == a })
			}
		}},
		{"heal", 4, func(*rand.Rand, int) (string, func(*world)) { return "", (*world).heal }},
		{"loss", 1, func(rng *rand.Rand, _ int) (string, func(*world)) {
			share := one(rng, 0, 0, 0.1, 0.3, 0.6)
			return fmt.Sprint(share), func(w *world) { w.SetLoss(max(share, w.s.loss)) }
		}},
		{"loss of one", 2, func(rng *rand.Rand, hosts int) (string, func(*world)) {
			id, out, in := nameOf(rng.IntN(hosts)), one(rng, 0, 0, 0.3, 0.8, 1), one(rng, 0, 0, 0.3, 0.8, 1)
			return fmt.Sprint(id, " out ", out, ", in ", in), func(w *world) { w.setLossOf(id, out, in) }
		}},
		withNumber("clock", 2, 9, func(w *world, id string, n int) {
			w.setClock(id, []time.Duration{0, 0, 0, time.Second, -time.Second, 2 * time.Second, -time.Hour, 7 * time.Second, time.Hour}[n])
		}),
		onNode("reset streams", 2, func(w *world, id string) {
			if w.runs(id) {
				w.ResetStreams(id)
			}
		}),
		withNumber("refuse streams", 2, 2, func(w *world, id string, n int) {
			if w.runs(id) {
				w.RefuseStreams(id, n == 0)
			}
		}),
		withNumber("replay", 2, 1<<30, func(w *world, id string, n int) { // often to a newcomer, which knows nothing
			w.start(id)
			w.replay(id, rand.New(rand.NewPCG(uint64(n), 0)))
		}),
		{"start all at once", 1, func(*rand.Rand, int) (string, func(*world)) {
			return "", func(w *world) {
				for _, id := range w.IDs() {
					w.crash(id)
				}
				w.startAll()
			}
		}},
	}
}

// onNode returns a fault of a random node.
func onNode(name string, share int, do func(w *world, id string)) fault {
	return withNumber(name, share, 1, func(w *world, id string, _ int) { do(w, id) })
}

// withNumber returns a fault of a random node, with a random number below limit.
func withNumber(name string, share, limit int, do func(w *world, id string, n int)) fault {
	return fault{name, share, func(rng *rand.Rand, hosts int) (string, func(*world)) {
		id, n := nameOf(rng.IntN(hosts)), rng.IntN(limit)
		text := id
		if limit > 1 {
			text = fmt.Sprint(id, " ", n)
		}
		return text, func(w *world) { do(w, id, n) }
	}}
}
