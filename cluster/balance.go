package cluster

import (
	"math"
	"time"

	"github.com/roost-cluster/roost/placement"
)

// review is what the operator was told of the balance.
type review struct {
	of     *placement.Table // the last one that was looked at
	uneven bool             // what was told last
	told   time.Time
}

// reviewBalance tells the operator that the load varies too much between nodes,
// and when it does no longer: one line a minute at most, however often nodes come
// and go. A line that has to wait is told if it is still true by then.
func (l *loop) reviewBalance(now time.Time) {
	r := &l.balance
	if l.table == r.of || !l.placing() || now.Sub(r.told) < time.Minute {
		return
	}
	r.of = l.table
	if len(l.table.Nodes()) == 0 {
		return // uneven or not, there is nothing to say
	}
	b := l.table.Balance()
	advice := b.Advice()
	if r.uneven == (advice != "") {
		return
	}
	r.uneven, r.told = advice != "", now
	cv, maxMean := math.Round(100*b.CV)/100, math.Round(100*b.MaxMean)/100
	if r.uneven {
		l.log.Warn("partitions are spread unevenly", "cv", cv, "max_mean", maxMean, "advice", advice)
	} else {
		l.log.Info("partitions are spread evenly again", "cv", cv, "max_mean", maxMean)
	}
}
