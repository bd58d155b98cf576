package auditor

import (
	"slices"
	"time"
)

const cordonEnds = 2 * time.Second // the largest difference between the ordered and the actual end

// checkOrder checks that the node that got an order has obeyed. If an earlier cordon ends by itself in this moment, or
// ended while the node was paused until now, the node may not have noticed yet.
func (a *Auditor) checkOrder(o Order) {
	continued := time.Duration(0)
	for _, t := range a.running {
		switch {
		case t.now.ID != o.By:
		case t.stopped > 0:
			continued = a.at
		default:
			continued = max(continued, t.continued)
		}
	}
	ending := slices.ContainsFunc(a.orders[o.ID], func(e Order) bool {
		return e.Until > e.At && (o.At-max(e.Until, continued)).Abs() < cordonEnds
	})
	if cordons := o.Until > o.At; o.Knows != cordons && !ending {
		a.object("cordon", "%s was told to cordon %s for %v, and then knows a cordon: %v", o.By, o.ID, o.Until-o.At, o.Knows)
	}
	o.slept = a.trouble.slept
	a.orders[o.ID] = append(a.orders[o.ID], o)
}

// checkCordons checks which cordons have begun and ended in the view of a node.
func (a *Auditor) checkCordons(t *track) {
	cordons := make(map[string]Cordon, len(t.answer.Cordons))
	for _, c := range t.answer.Cordons {
		cordons[c.ID] = c
		if len(a.orders[c.ID]) == 0 {
			a.object("cordon", "%s knows a cordon of %s, which nobody has ordered", t.now.ID, c.ID)
		}
		before, known := t.cordons[c.ID]
		if known && c.same(before) {
			continue
		}
		a.shifted = a.at
		if known && !a.skewed { // a newer cordon has replaced it; with a wrong clock, its end may seem to move
			t.over = append(t.over, before)
		}
		if (!known || !a.skewed) && slices.ContainsFunc(t.over, c.same) {
			a.object("cordon", "%s knows a cordon of %s again, which it has seen end", t.now.ID, c.ID)
		}
	}
	for id, c := range t.cordons {
		if _, still := cordons[id]; !still {
			t.over = append(t.over, c)
			a.shifted = a.at
		}
	}
	t.cordons = cordons
}

// same reports whether c and o seem to be the same cordon.
func (c Cordon) same(o Cordon) bool {
	return c.ID == o.ID && c.Reason == o.Reason && (c.Until-o.Until).Abs() < 500*time.Millisecond
}

// checkLateCordons looks for cordons that should have ended. A node that was suspended and then cut off may not know
// how late it is, and a wrong clock may have moved the time of the cluster. While all hosts are suspended, cluster time
// stands still.
func (a *Auditor) checkLateCordons(t *track) {
	if a.skewed {
		return
	}
	for id := range t.cordons {
		last := time.Duration(0)
		for _, o := range a.orders[id] {
			last = max(last, o.Until+a.trouble.slept-o.slept)
		}
		lags := t.woke > 0 && max(a.trouble.cut, a.trouble.fleet) >= t.woke
		if late := a.at - max(last, t.active); late > cordonEnds && !lags {
			a.object("cordon", "%s knows a cordon of %s that ended %v ago", t.now.ID, id, late)
		}
	}
}
