package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/roost-cluster/roost/internal/sim"
)

func nameOf(host int) string { return fmt.Sprintf("n%02d", host) }

// host describes where the node with an id runs or ran.
type host struct {
	addr      string // "" = the next process gets a new address
	clock     time.Duration
	lossy     bool
	draining  bool
	leaves    time.Duration // when it sends a leave message at the latest; 0 = it does not leave
	unhealthy bool
	checked   error // the latest result of a check of its application
	hangs     bool  // whether its handlers hang when they are cancelled
	weight    uint32
}

// runs reports whether a node runs. It may be paused or suspended. Then it is stopped, and does not act.
func (w *world) runs(id string) bool    { return w.now[id] != nil }
func (w *world) stopped(id string) bool { return w.runs(id) && w.now[id].Stopped() }
func (w *world) acts(id string) bool    { return w.runs(id) && !w.now[id].Stopped() }

func (w *world) start(id string) {
	if w.runs(id) {
		return
	}
	h := w.hosts[id]
	*h = host{addr: h.addr, clock: h.clock, lossy: h.lossy, weight: 100}
	p := w.StartWith(id, sim.Setup{Addr: h.addr, Clock: h.clock, Seeds: w.seeds})
	h.addr = p.Addr
	w.follow(p)
}

func (w *world) startAll() {
	for i := range w.s.hosts {
		w.start(nameOf(i))
	}
}

func (w *world) crash(id string) {
	if w.runs(id) {
		w.Crash(id)
		w.ended(id, false)
	}
}

func (w *world) restart(id string) {
	w.crash(id)
	w.start(id)
}

// vanish ends a node together with its host.
func (w *world) vanish(id string) {
	if w.runs(id) {
		w.Vanish(id)
		w.ended(id, false)
	}
}

// leave makes a node leave immediately, even if it owns partitions.
func (w *world) leave(id string) {
	if w.acts(id) {
		w.LeaveAtOnce(id)
		w.ended(id, true)
	}
}

// drainAndLeave makes a node drain first and then leave.
func (w *world) drainAndLeave(id string) {
	if h := w.hosts[id]; w.acts(id) && h.leaves == 0 {
		w.drain(id, true)
		h.leaves = w.Elapsed() + max(ttl, bound)
	}
}

// mayLeave ends a node that was told to drain and leave, if it has nothing left to wait for.
func (w *world) mayLeave(p *process) {
	h, v := w.hosts[p.ID], p.View()
	done := v.Diverged == 0 && v.RunsLeft == 0
	if h.leaves == 0 || p.Stopped() || (!done && w.Elapsed() < h.leaves) {
		return
	}
	if runs := p.Runs(); done && len(runs) > 0 {
		w.fail("runs", "%s leaves, and still runs %v", p.ID, runs)
	}
	w.step("leave of "+p.ID, func(w *world) { w.leave(p.ID) })
}

// health reports results of the health check of a node's application: a failure and then a success, or several of the
// same kind in a row.
func (w *world) health(id string, n int) {
	h := w.hosts[id]
	if !w.acts(id) {
		return
	}
	results := [][]error{{errUnhealthy, nil}, {nil, errUnhealthy, nil}, {errUnhealthy, errUnhealthy}, {nil, nil}}[n]
	for _, err := range results {
		w.Node(id).Checked(err)
		if (err == nil) == (h.checked == nil) { // twice in a row
			h.unhealthy = err != nil
		}
		h.checked = err
	}
}

var errUnhealthy = errors.New("unhealthy")

// returnsAfter returns how long a cancelled handler takes to return.
func (w *world) returnsAfter(id string, rng *rand.Rand) time.Duration {
	d := time.Duration(rng.Float64() * float64(w.s.slowest))
	if w.hosts[id].hangs {
		return hang
	}
	return d
}

func (w *world) drain(id string, drain bool) {
	if !w.acts(id) || w.hosts[id].leaves > 0 {
		return
	}
	if w.hosts[id].draining = drain; drain {
		w.Node(id).Drain()
	} else {
		w.Node(id).Undrain()
	}
}

func (w *world) weigh(id string, weight uint32) {
	if w.acts(id) {
		w.hosts[id].weight = weight
		w.Node(id).SetWeight(weight)
	}
}

func (w *world) pause(id string) {
	if w.acts(id) {
		w.Pause(id)
	}
}

func (w *world) resume(id string) {
	if w.wake([]string{id}, false); w.stopped(id) {
		w.Resume(id)
	}
}

// suspend suspends the hosts of nodes.
func (w *world) suspend(ids []string) {
	for _, id := range ids {
		if w.acts(id) {
			w.Suspend(id)
		}
	}
}

// wake lets suspended hosts continue, with the right time or with the time of their suspension.
func (w *world) wake(ids []string, stale bool) {
	for _, id := range ids {
		p := w.now[id]
		if p == nil || !p.Suspended() {
			continue
		}
		p.wakes(w)
		w.Wake(id, stale)
		if w.hosts[id].clock = p.Clock(); stale {
			w.stepped, w.calm.network = true, w.Elapsed() // some see half of the clocks wrong
		}
	}
}

func (w *world) resumeAll() {
	for _, id := range w.IDs() {
		w.resume(id)
	}
}

// cut cuts the links from one host to another that is selects. Earlier cuts remain.
func (w *world) cut(is func(from, to int) bool) {
	for from := range w.s.hosts {
		for to := range w.s.hosts {
			if a, b := nameOf(from), nameOf(to); from != to && is(from, to) && w.runs(a) && w.runs(b) {
				w.Cut(a, b)
				w.cuts[linkOf(a, b)] = true
			}
		}
	}
}

func (w *world) heal() {
	w.Heal()
	clear(w.cuts)
}

func (w *world) setLossOf(id string, out, in float64) {
	if w.runs(id) {
		w.SetLossOf(id, out, in)
		w.hosts[id].lossy = max(out, in) > 0
	}
}

// setClock sets how far the wall clock of a host is ahead of the true time.
func (w *world) setClock(id string, ahead time.Duration) {
	h := w.hosts[id]
	if w.runs(id) {
		w.Node(id).StepClock(ahead - h.clock)
	}
	h.clock = ahead
	w.stepped = w.stepped || ahead != 0
}

// replay sends recorded messages to a node and to other nodes.
func (w *world) replay(id string, rng *rand.Rand) {
	all := w.IDs()
	for range min(50, len(w.tape)) {
		w.Inject(one(rng, id, one(rng, all...)), one(rng, w.tape...))
	}
}
