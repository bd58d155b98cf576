package node

import (
	"math"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// autoWeight lets the weight of this node follow its load. A node that is busier than the mean of all nodes lowers
// its weight, so it owns fewer partitions, and a node that is idler raises it. Each node only changes its own
// weight, so nodes need no agreement, and partitions only move to or from that node.
//
// The controller is slow on purpose, because the load may follow the partitions minutes later. It smooths its
// samples, ignores small differences, and takes at most one small step per minute.
type autoWeight struct {
	*Node
	base    uint32    // the weight that the application has set
	ratio   float64   // utilization of this node relative to the mean, smoothed; 0: not known
	sampled time.Time // when ratio was last updated
	next    time.Time // when the next sample is due; zero: the weight does not follow the load
	step    time.Time // the earliest time for the next step
}

const (
	weightEvery  = time.Minute      // minimum time between two steps
	weightSmooth = 20 * time.Second // time constant of the smoothing
	weightBand   = 0.10             // smaller relative differences from the mean are ignored
	weightIdle   = 0.10             // below this mean utilization, differences are noise
	weightStep   = 1.25             // maximum factor of a step
	weightRange  = 2                // maximum factor between the weight and the base, in both directions
)

// begin makes the weight follow the load from now on.
func (a *autoWeight) begin(now time.Time) { a.next, a.step = now, now.Add(weightEvery) }

// rebase records the weight that the application has set, from which the weight starts again.
func (a *autoWeight) rebase(now time.Time, w uint32) {
	a.base, a.ratio, a.step = w, 0, now.Add(weightEvery)
}

// adjust takes a sample once per heartbeat interval, and takes a step if it is due.
func (a *autoWeight) adjust(now time.Time) {
	if !due(now, a.next) {
		return
	}
	a.next = now.Add(a.cfg.HeartbeatInterval)
	ratio, known := a.measure()
	switch {
	case !known || !a.slowStart.began.IsZero():
		a.ratio, a.step = 0, now.Add(weightEvery)
		return
	case a.ratio == 0:
		a.ratio = ratio
	default:
		a.ratio += (ratio - a.ratio) * (1 - math.Exp(-float64(now.Sub(a.sampled))/float64(weightSmooth)))
	}
	a.sampled = now
	if now.Before(a.step) {
		return
	}
	was := a.set.Self().Weight
	if w := nextWeight(a.base, was, a.ratio); w != was {
		a.step = now.Add(weightEvery)
		a.slowStart.wanted = w
		a.slowStart.weigh(w)
		a.log(Info, "weight follows load", "weight", w, "was", was, "base", a.base, "load_percent_of_mean", int(100*a.ratio))
		a.announceNews(now)
	}
}

// measure returns the utilization of this node relative to the mean of all nodes that can own partitions and report
// a load. The utilization of a node is its load relative to its capacity.
func (a *autoWeight) measure() (ratio float64, known bool) {
	var load, capacity, ownLoad, ownCapacity float64
	for _, m := range a.set.View().Members {
		if !m.Candidate() || m.Capacity == 0 || m.Load == lease.NoLoad {
			continue
		}
		load, capacity = load+float64(m.Load), capacity+float64(m.Capacity)
		if m.ID == a.self {
			ownLoad, ownCapacity = float64(m.Load), float64(m.Capacity)
		}
	}
	if ownCapacity == 0 || load < weightIdle*capacity {
		return 0, false
	}
	return max(ownLoad/ownCapacity/(load/capacity), 0.01), true // 0 would mean unknown
}

// nextWeight returns the weight after a step from the weight was. The step goes half of the way on a logarithmic
// scale, because the load of a node is about proportional to its weight.
func nextWeight(base, was uint32, ratio float64) uint32 {
	if math.Abs(ratio-1) <= weightBand {
		return was
	}
	factor := min(max(1/math.Sqrt(ratio), 1/weightStep), weightStep)
	next := uint64(math.Round(float64(was) * factor))
	if next == uint64(was) { // a small weight
		if next++; ratio > 1 {
			next -= 2
		}
	}
	low, high := (uint64(base)+weightRange-1)/weightRange, min(uint64(base)*weightRange, lease.MaxWeight)
	return uint32(min(max(next, low), high))
}
