package node

import (
	"math"
	"time"

	"github.com/roost-cluster/roost/placement"
)

// balance is what the log says about the spread of partitions.
type balance struct {
	of     *placement.Table // reviewed last
	uneven bool             // logged last
	limit  limiter
}

// review logs when the load begins to vary too much between nodes, and when it does
// no longer: at most one line a minute, however often nodes come and go. A line that
// has to wait is written if it is still true by then.
func (b *balance) review(now time.Time, t *placement.Table, log func(Level, string, ...any)) {
	if t == b.of || len(t.Nodes()) == 0 {
		return
	}
	figures := t.Balance()
	advice := figures.Advice()
	if b.uneven == (advice != "") {
		b.of = t
		return
	}
	if !b.limit.allow(now, time.Minute) {
		return
	}
	b.of, b.uneven = t, advice != ""
	cv, maxMean := math.Round(100*figures.CV)/100, math.Round(100*figures.MaxMean)/100
	if b.uneven {
		log(Warn, "partitions are spread unevenly", "cv", cv, "max_mean", maxMean, "advice", advice)
	} else {
		log(Info, "partitions are spread evenly again", "cv", cv, "max_mean", maxMean)
	}
}
