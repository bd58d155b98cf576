package chaos

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
)

// afterOverrun is how long two runs may overlap after a node has started a run without waiting for all answers, because
// the nodes that did not answer may have hanging handlers.
const afterOverrun = 2 * hang

// checkOverlaps checks the runs that have begun while another node ran the partition.
func (w *world) checkOverlaps() {
	for _, o := range w.handlers.Overlaps[w.overlaps:] {
		w.overlaps++
		at, parted := w.parted[linkOf(o.Begins.ID, o.Runs.ID)] // after that, either node may hold answers that no longer count
		parted = parted && w.Elapsed()-at < afterOverrun
		if o.Known && !parted && !w.overran(o.Begins) && !w.overran(o.Runs) {
			w.fail("runs", "%v", o)
		}
	}
}

// checkRuns compares the runs of a node with the partitions that it owns, after a long time without faults.
func (w *world) checkRuns(p *process) {
	if w.s.handoff && !p.Stopped() && !slices.Equal(p.Runs(), p.Owned()) {
		w.fail("runs", "%s runs %v and owns %v", p.ID, p.Runs(), p.Owned())
	}
}

func (w *world) overran(p *sim.Process) bool {
	now := w.now[p.ID]
	return now != nil && now.Process == p && now.overran > 0 && w.Elapsed()-now.overran < afterOverrun
}

// checkWaits records how long a node waits to run partitions.
func (w *world) checkWaits(p *process, v node.View) {
	if v.Stats.HandoffOverruns > p.overruns {
		p.overruns, p.overran = v.Stats.HandoffOverruns, w.Elapsed()
	}
	if v.State != p.state {
		before := p.waits
		p.waits = [partitions]time.Duration{}
		for _, partition := range v.State.Waits() {
			if p.waits[partition] = w.Elapsed(); before[partition] > 0 && v.State.Version == p.state.Version+1 {
				p.waits[partition] = before[partition]
			}
		}
	}
	if len(v.State.Waits()) == 0 {
		return
	}
	runs := p.Runs()
	for _, partition := range v.State.Waits() {
		if slices.Contains(runs, partition) {
			p.waits[partition] = w.Elapsed() // the node waits for its own earlier run
		}
		if waited := w.Elapsed() - max(p.waits[partition], p.active); waited > bound+time.Second {
			w.fail("wait", "%s has waited %v to run partition %d", p.ID, waited, partition)
		}
	}
}
