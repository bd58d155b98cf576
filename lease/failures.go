package lease

import (
	"cmp"
	"slices"
	"time"
)

// Evidence is what a watcher found when its stream to a node broke.
type Evidence uint8

// The kinds of evidence.
const (
	Refused Evidence = iota + 1 // the node's address refused a connection, or another incarnation answered there
	Silent                      // the stream ended without an answer, and the address does not answer either
)

// FailureReport says that an incarnation has ended. A watcher makes it; all nodes relay it.
//
// Two watchers together confirm the failure, unless the incarnation sent a heartbeat after At. A set's
// conclusion only depends on which failure reports and heartbeats it has received, and not on their order.
type FailureReport struct {
	Subject, Watcher Handle
	At               Stamp // the subject sent no heartbeat after this time
	Evidence         Evidence
}

const (
	// watchers is how many nodes watch each node.
	watchers = 4

	// enough is how many watchers confirm the failure of an incarnation.
	enough = 2

	// maxReporters is how many failure reports against one incarnation are kept.
	maxReporters = 4

	// silentFor is for how long a Silent node has at least not run. Its kernel answered the last probe of the
	// stream at most a second before it stopped. Two probes and two seconds later, the stream ended. The
	// rest, half a second, allows for delays.
	silentFor = 1500 * time.Millisecond
)

// Watched returns the nodes that this node watches. These are the next four in the order of handles, where
// the first handle follows the last. Because a handle is a hash, nodes of the same host or zone don't watch
// each other more often than others do. A node that comes or goes changes what four nodes watch. It costs
// O(log n).
func (f *failures) Watched() []Handle {
	own, _ := slices.BinarySearch(f.order, f.self.handle)
	watched := make([]Handle, min(watchers, len(f.order)-1))
	for i := range watched {
		watched[i] = f.order[(own+1+i)%len(f.order)]
	}
	return watched
}

// ReportFailure reports that an incarnation has ended, with evidence that was found at the given time. It has
// no effect if a later heartbeat of the incarnation is known.
func (f *failures) ReportFailure(now time.Time, subject Handle, found time.Time, evidence Evidence) (e Effect) {
	at := f.time.at(found)
	if evidence == Silent {
		at -= stamps(silentFor)
	}
	f.merge(now, FailureReport{subject, f.self.handle, at, evidence}, &e)
	return e
}

// failureReport is a FailureReport in the entry of its subject.
type failureReport struct {
	FailureReport
	id   NodeID // of the watcher
	sent int    // copies sent by this node
}

// compare orders failure reports by time, because later ones count for longer.
func (a FailureReport) compare(b FailureReport) int {
	return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.Evidence, b.Evidence), cmp.Compare(a.Watcher, b.Watcher))
}

// failures handles the failure reports of watchers.
type failures struct {
	*core
	reported []*entry // those with failure reports
}

// counts reports whether a failure report of time at holds against an incarnation whose latest heartbeat has
// the given stamp. It rounds both to ticks, so that sets that only know the age of the heartbeat come to the
// same conclusion as the others. So a node refutes a failure report with a heartbeat in the next tick.
func (f *failures) counts(at, heartbeat Stamp) bool {
	return heartbeat/f.params.tick() <= at/f.params.tick()
}

// outdated reports whether a failure report is so old that every heartbeat which can still begin or renew a
// lease is later.
func (f *failures) outdated(now time.Time, at Stamp) bool {
	return f.time.at(now)-at > stamps(f.params.TTL)+f.params.tick()
}

// apply merges the failure reports of a message.
func (f *failures) apply(now time.Time, m *Message, e *Effect) {
	for _, a := range m.FailureReports {
		f.merge(now, a, e)
	}
}

// merge accepts a failure report if its watcher has or had a lease here. Otherwise anyone could invent
// watchers.
func (f *failures) merge(now time.Time, a FailureReport, e *Effect) {
	if a.Subject == f.self.handle {
		f.refute(a, e)
		return
	}
	subject, watcher := f.known[a.Subject], f.known[a.Watcher]
	if subject == nil || subject.status == retired || watcher == nil || !watcher.hadLease() ||
		watcher.rec.ID == subject.rec.ID || f.outdated(now, a.At) || !f.counts(a.At, subject.at) {
		return
	}
	unreported := len(subject.failureReports()) == 0
	if !subject.reportFailure(failureReport{FailureReport: a, id: watcher.rec.ID}) {
		return
	}
	if unreported {
		f.reported = append(f.reported, subject)
	}
	e.Urgent = true
	f.confirm(now, subject, e)
}

// reportFailure adds a failure report, or replaces an earlier one by the same node, and reports whether it is
// new. It keeps the latest ones, so the order in which they arrive does not matter.
func (e *entry) reportFailure(a failureReport) (news bool) {
	all := slices.Clone(e.failureReports())
	if i := slices.IndexFunc(all, func(b failureReport) bool { return b.id == a.id }); i >= 0 {
		if a.compare(all[i].FailureReport) >= 0 {
			return false
		}
		all = slices.Delete(all, i, i+1)
	}
	i, _ := slices.BinarySearchFunc(all, a, func(b, a failureReport) int { return b.compare(a.FailureReport) })
	if i >= maxReporters {
		return false
	}
	all = slices.Insert(all, i, a)
	e.more().failureReports = all[:min(len(all), maxReporters)]
	return true
}

// confirmed reports whether enough watchers report e, whose latest heartbeat has the given stamp.
func (f *failures) confirmed(e *entry, heartbeat Stamp) bool {
	all, refusals := f.reporters(e, heartbeat)
	return all >= enough || refusals > 0 && f.fewOthers(e)
}

// reporters counts the failure reports that hold against e, and the refusals among them.
func (f *failures) reporters(e *entry, heartbeat Stamp) (all, refusals int) {
	for _, a := range e.failureReports() {
		if f.counts(a.At, heartbeat) {
			all++
			if a.Evidence == Refused {
				refusals++
			}
		}
	}
	return all, refusals
}

// crashed returns the incarnations whose end is certain, because watchers were Refused or found another
// incarnation. Incarnations of Silent hosts may only be out of reach.
func (f *failures) crashed() (ended []Incarnation) {
	for _, e := range f.reported {
		if e.dead() {
			ended = append(ended, e.incarnation())
		}
	}
	return ended
}

// wasRefused reports whether refusals alone confirm the failure of e. A single report is enough only if no other
// node could be watching. Otherwise two reports are needed, because the few members left in view may be one side
// of a split. A node whose own end is certain is on no other side, unless it has restarted there already.
func (f *failures) wasRefused(e *entry) bool {
	_, refusals := f.reporters(e, e.at)
	return refusals >= enough || refusals > 0 && !slices.ContainsFunc(f.nodes, func(o *entry) bool {
		return o != e && o != f.self && o.status != retired && !o.dead()
	})
}

// dead reports whether the process has ended for certain, because watchers were Refused.
func (e *entry) dead() bool { return e.status == expired && e.crashed && e.refused }

// Reported reports whether a live node has failure reports, but too few of them.
func (f *failures) Reported() bool {
	return slices.ContainsFunc(f.reported, func(e *entry) bool {
		return e.status == live && slices.ContainsFunc(e.failureReports(), func(a failureReport) bool { return f.counts(a.At, e.at) })
	})
}

// fewOthers reports whether fewer than three nodes are live, including e, so that there is only one watcher.
func (f *failures) fewOthers(e *entry) bool {
	others := len(f.live) + len(f.begun)
	if e.status == live {
		others--
	}
	return others < enough
}

// confirm ends the lease of e if enough watchers report e. Later reports may still add refusals.
func (f *failures) confirm(now time.Time, e *entry, effect *Effect) {
	switch {
	case e.status == live && f.confirmed(e, e.at):
		f.end(now, e, expired)
		e.crashed, e.refused = true, f.wasRefused(e)
		f.stats.Crashed++
		effect.Changed, effect.Urgent = true, true
	case e.crashed && !e.refused && f.wasRefused(e):
		e.refused, effect.Changed = true, true
	}
}

// review checks all reported nodes again, because a smaller live set needs fewer watchers. It also forgets
// failure reports that no longer matter. It costs O(1) if there are none.
func (f *failures) review(now time.Time, effect *Effect) {
	for _, e := range f.reported {
		f.confirm(now, e, effect)
		e.more().failureReports = slices.DeleteFunc(e.failureReports(), func(a failureReport) bool {
			return e.status == retired || f.outdated(now, a.At) || !f.counts(a.At, e.at)
		})
	}
	f.reported = slices.DeleteFunc(f.reported, func(e *entry) bool { return len(e.failureReports()) == 0 })
}

// allows reports whether a heartbeat of time at begins or renews the lease of e in spite of the failure
// reports against e.
func (f *failures) allows(e *entry, at Stamp) bool {
	switch latest := max(e.at, at); {
	case f.confirmed(e, latest):
		return false
	case e.crashed:
		return !f.counts(e.at, at)
	default:
		return e.status != expired || f.revives(e, at)
	}
}

// revives reports whether a heartbeat of the given time is news of an expired node. Some nodes receive the
// latest heartbeat of a dead node itself, and others only its rounded age, and the difference must not revive
// the node.
func (f *failures) revives(known *entry, at Stamp) bool { return at-known.at > 2*f.params.tick() }

// drop forgets all failure reports, because their stamps are of a wrong cluster time.
func (f *failures) drop() {
	for _, e := range f.reported {
		e.more().failureReports = nil
	}
	f.reported = nil
}

// refute handles a failure report against this node. It delays the next heartbeat so that rounding does not
// make it older than the failure report.
func (f *failures) refute(a FailureReport, e *Effect) {
	if f.counts(a.At, f.self.at) {
		e.Refute = f.time.local((a.At/f.params.tick() + 1) * f.params.tick())
	}
}

// add adds failure reports that were not sent often enough, least sent first, up to half of the draft. It
// adds only as many reports against an incarnation as confirm its failure. It costs O(1) if there are none.
func (f *failures) add(now time.Time, d *draft) {
	if len(f.reported) == 0 {
		return
	}
	var due []*failureReport
	copies := f.rowCopies()
	f.spread.begin()
	for _, e := range f.reported {
		for i := range e.failureReports()[:f.sufficient(e)] {
			if a := &e.failureReports()[i]; a.sent < copies && !f.outdated(now, a.At) {
				f.spread.offer(candidate{sent: int32(a.sent), place: len(due)})
				due = append(due, a)
			}
		}
	}
	for _, c := range f.spread.candidates[:min(len(f.spread.candidates), d.free/2/maxFailureReportBytes)] {
		a := due[c.place]
		d.FailureReports = append(d.FailureReports, a.FailureReport)
		a.sent += d.recipients
		d.free -= maxFailureReportBytes
		d.news = true
	}
}

// sufficient returns how many of the failure reports against e are needed to show what this node knows.
func (f *failures) sufficient(e *entry) int {
	if e.crashed && !f.fewOthers(e) {
		return min(enough, len(e.failureReports()))
	}
	return len(e.failureReports())
}

// addAgainst adds all failure reports against e that fit, for a node that treats e as live.
func (f *failures) addAgainst(d *draft, e *entry) {
	for _, a := range e.failureReports() {
		if d.free >= maxFailureReportBytes {
			d.FailureReports = append(d.FailureReports, a.FailureReport)
			d.free -= maxFailureReportBytes
		}
	}
}
