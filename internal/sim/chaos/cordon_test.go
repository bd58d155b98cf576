package chaos

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// decision is a node's decision to cordon a node.
type decision struct {
	at, end time.Duration
	over    bool              // a node has seen its end
	knownBy map[*process]bool // false = the process has seen the end of the cordon
}

// endsWithin is the maximum difference between the actual and the decided end of a cordon.
const endsWithin = 2 * time.Second

// cordon makes a node cordon another node for the time d, or end its cordon if d is 0.
func (w *world) cordon(by, id string, d time.Duration) {
	if !w.acts(by) {
		return
	}
	p := w.now[by]
	if err := p.Cordon(id, d); err != nil {
		return
	}
	w.lastDecision[id] = w.Elapsed()
	w.audit.order(w.Elapsed(), p, id, d)
	i := slices.IndexFunc(p.View().Live.Cordoned, func(e lease.Cordon) bool {
		decision := w.decisions[e]
		return string(e.ID) == id && (decision == nil || decision.end > w.Elapsed()) // otherwise its end is about to be seen
	})
	switch {
	case (i >= 0) != (d > 0):
		w.fail("cordon", "%s cordoned %s for %v, and knows %v", by, id, d, p.View().Live.Cordoned)
		return
	case d == 0:
		return
	}
	w.decisions[p.View().Live.Cordoned[i]] = &decision{at: w.Elapsed(), end: w.Elapsed() + d, knownBy: make(map[*process]bool)}
}

// replaced reports whether there was a later decision on the same node.
func (w *world) replaced(e lease.Cordon) bool {
	return w.lastDecision[string(e.ID)] > w.decisions[e].at
}

// checkCordoned checks which cordons have begun and ended in the view of a node.
func (w *world) checkCordoned(p *process, cordoned []lease.Cordon) {
	for _, e := range cordoned {
		decision := w.decisions[e]
		if decision == nil {
			w.fail("cordon", "%s knows a cordon that was not decided: %+v", p.ID, e)
			return
		}
		knows, known := decision.knownBy[p]
		if known && !knows {
			w.fail("cordon", "%s knows a cordon again: %+v", p.ID, e)
		}
		decision.knownBy[p] = true
		if !w.stepped && !w.lags(p, decision) && w.Elapsed()-max(decision.end, p.active) > endsWithin {
			w.fail("cordon", "%s knows a cordon that ended %v ago: %+v", p.ID, w.Elapsed()-decision.end, e)
		}
	}
	for _, e := range p.cordoned {
		if decision := w.decisions[e]; !slices.Contains(cordoned, e) {
			decision.knownBy[p] = false
			if !decision.over && !w.replaced(e) {
				decision.over = true
				w.changed, w.checked = w.Elapsed(), false // partitions move
			}
		}
	}
	p.cordoned = cordoned
}

// lags reports whether a process may not know how late it is. This is the case if it was suspended after a decision and
// then cut off, or if most other nodes were stopped or suspended as well.
func (w *world) lags(p *process, d *decision) bool {
	return p.woke > d.at && max(w.calm.cut, w.calm.network) >= p.woke
}

// checkSameCordons compares the cordons that the nodes of a side know.
func (w *world) checkSameCordons(side []*process) {
	known := side[0].cordoned
	for _, p := range side {
		if !slices.Equal(p.cordoned, known) && !p.Stopped() {
			w.fail("cordon", "%s knows %+v, %s knows %+v", p.ID, p.cordoned, side[0].ID, known)
		}
		for e, decision := range w.decisions {
			_, ok := decision.knownBy[p]
			if ok && !w.stepped && !w.replaced(e) && w.Elapsed()+endsWithin < decision.end && !slices.Contains(known, e) {
				w.fail("cordon", "%s has forgotten %+v, which %s knew", side[0].ID, e, p.ID)
			}
		}
	}
}

// cordonedFor returns how long it takes until all cordons have ended.
func (w *world) cordonedFor() (d time.Duration) {
	for _, decision := range w.decisions {
		d = max(d, decision.end-w.Elapsed())
	}
	return d
}

// withoutCordoned returns the candidates that are not cordoned, or all candidates if all are cordoned.
func withoutCordoned(candidates []placement.Node, cordoned []lease.Cordon) []placement.Node {
	left := slices.DeleteFunc(slices.Clone(candidates), func(n placement.Node) bool {
		return slices.ContainsFunc(cordoned, func(e lease.Cordon) bool { return e.ID == n.ID })
	})
	if len(left) == 0 {
		return candidates
	}
	return left
}
