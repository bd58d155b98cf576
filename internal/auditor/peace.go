package auditor

import (
	"slices"
	"time"
)

const (
	mostLoss  = 0.2             // of packets, that leases survive
	mostSkew  = 2 * time.Second // of a clock; nodes reject a clock that is 5 s ahead
	tolerance = 200 * time.Millisecond
)

// trouble records when there was last a fault that may end a lease.
type trouble struct {
	fleet time.Duration
	cut   time.Duration // of any link
	seeds time.Duration // when no seed ran, or all had faults
	slept time.Duration // for how long hosts were suspended while no process ran
	loss  float64       // now
	links map[Cut]time.Duration
}

// disturbed reports whether a process has a fault of its own.
func (t *track) disturbed() bool {
	return t.now.Status != Running || t.now.Lossy || t.now.Clock.Abs() > mostSkew
}

// note records the faults that exist now.
func (a *Auditor) note(o *Observation) {
	tr := &a.trouble
	tr.loss = o.Loss
	running, right, seed := 0, 0, false
	for _, t := range a.running {
		if t.disturbed() || t.twin != nil {
			t.trouble = a.at
		} else {
			seed = seed || t.now.Seed
		}
		if t.now.Status == Running {
			running++
		}
		if !t.disturbed() {
			right++
		}
	}
	if !seed {
		tr.seeds = a.at
	}
	// A single link that is cut affects only its two nodes, because one node alone cannot prove that another has ended.
	// If few nodes run, news spread slowly. If half of the clocks are wrong, the right clocks may be rejected.
	if tr.cutLinks(o.Cuts, a.at) > 1 || o.Loss > mostLoss || 2*running < o.Hosts || 2*right <= running {
		tr.fleet = a.at
	}
}

// noteSleep adds up the time in which cluster time stands still, because hosts are suspended and no process runs.
func (a *Auditor) noteSleep(passed time.Duration) {
	is := func(s Status) bool {
		return slices.ContainsFunc(a.running, func(t *track) bool { return t.now.Status == s })
	}
	if is(Suspended) && !is(Running) {
		a.trouble.slept += passed
	}
}

// cutLinks records the links that are cut in at least one direction, and returns their number.
func (tr *trouble) cutLinks(cuts []Cut, at time.Duration) int {
	links := make(map[Cut]bool, len(cuts))
	for _, c := range cuts {
		c = Cut{min(c.From, c.To), max(c.From, c.To)}
		links[c], tr.links[c], tr.cut = true, at, at
	}
	return len(links)
}

// cutOff reports whether a link of t was cut within the last two TTLs.
func (a *Auditor) cutOff(t *track) bool {
	for l, at := range a.trouble.links {
		if (l.From == t.now.ID || l.To == t.now.ID) && a.at-at <= 2*a.TTL {
			return true
		}
	}
	return false
}

// outlived returns how much longer than another member the last of t's members ran. It is 0 while one of them runs.
func (t *track) outlived(since time.Duration) time.Duration {
	last := since
	for _, other := range t.known {
		switch {
		case other == t:
		case other == nil || other.ended == 0 && other.stopped == 0:
			return 0
		default:
			last = max(last, other.ended, other.stopped)
		}
	}
	return last - since
}

// peace returns for how long neither of two processes had a reason to lose the other.
func (a *Auditor) peace(x, y *track) time.Duration {
	link := Cut{min(x.now.ID, y.now.ID), max(x.now.ID, y.now.ID)}
	return a.at - max(a.trouble.fleet, x.trouble, y.trouble, a.trouble.links[link])
}

func (a *Auditor) atPeace(x, y *track) bool { return a.peace(x, y) > 2*a.TTL }
