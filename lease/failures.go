package lease

import (
	"cmp"
	"slices"
	"time"
)

// Evidence is what a watcher found when its stream to a node ended.
type Evidence uint8

// The kinds of evidence.
const (
	Refused Evidence = iota + 1 // the node's address refused a connection, or another incarnation answered there
	Silent                      // the stream ended without an answer, and the address did not answer either
)

// FailureReport says that an incarnation has ended. A watcher makes it; all nodes relay it.
//
// Two watchers together confirm the failure, unless the incarnation sent a heartbeat after At.
// What a set concludes follows from the failure reports and heartbeats that it has received, in
// any order.
type FailureReport struct {
	Subject, Watcher Handle
	At               Stamp // the subject sent no heartbeat after this time
	Evidence         Evidence
}

const (
	// watchers is how many other nodes watch each node.
	watchers = 4

	// enough is how many watchers confirm the failure of an incarnation.
	enough = 2

	// maxReporters is how many failure reports against one incarnation are kept.
	maxReporters = 4

	// silentFor is for how long, at least, a node has not run that was found Silent. Its
	// kernel answered the last probe of the stream at most a second before it stopped; two
	// probes later, after two more seconds, the stream ended. Half a second is left for delays.
	silentFor = 1500 * time.Millisecond
)

// Watched returns the nodes that this node watches: the next four in the order of
// handles, after the last one from the first on. A handle is a hash, so nodes of one host or
// zone watch each other no more than others. A node that comes or goes changes what four
// nodes watch. O(log n).
func (f *failures) Watched() []Handle {
	own, _ := slices.BinarySearch(f.order, f.self.handle)
	watched := make([]Handle, min(watchers, len(f.order)-1))
	for i := range watched {
		watched[i] = f.order[(own+1+i)%len(f.order)]
	}
	return watched
}

// ReportFailure says that an incarnation has ended, on evidence found at an instant. Without
// effect if a later heartbeat of the incarnation is known.
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

// compare orders failure reports: later ones count for longer.
func (a FailureReport) compare(b FailureReport) int {
	return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.Evidence, b.Evidence), cmp.Compare(a.Watcher, b.Watcher))
}

// failures is what watchers report.
type failures struct {
	*core
	reported []*entry // those with failure reports
}

// counts reports whether a failure report made at a time holds against an incarnation with
// a latest heartbeat of the given stamp. Both are rounded to ticks: the sets that know the
// heartbeat by its age alone come to the same conclusion as the others. So a node refutes a
// failure report by a heartbeat of the next tick.
func (f *failures) counts(at, heartbeat Stamp) bool {
	return heartbeat/f.params.tick() <= at/f.params.tick()
}

// outdated reports whether no heartbeat that could still begin or renew a lease is as old as a
// failure report.
func (f *failures) outdated(now time.Time, at Stamp) bool {
	return f.time.at(now)-at > stamps(f.params.TTL)+f.params.tick()
}

// apply takes in the failure reports of a message.
func (f *failures) apply(now time.Time, m *Message, e *Effect) {
	for _, a := range m.FailureReports {
		f.merge(now, a, e)
	}
}

// merge takes in a failure report. Its watcher must have, or have had, a lease here;
// otherwise anyone could invent watchers.
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

// reportFailure adds a failure report, in place of an earlier one by the same node, and reports
// whether it is news. The latest ones are kept, so their order of arrival does not matter.
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

// confirmed reports whether enough watchers report e, if its latest heartbeat was sent at a time.
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

// crashed returns the incarnations that have ended because watchers were Refused, or found
// another incarnation. The incarnations of Silent hosts may merely be out of reach.
func (f *failures) crashed() (ended []Incarnation) {
	for _, e := range f.reported {
		if e.status == expired && e.crashed && e.refused {
			ended = append(ended, e.incarnation())
		}
	}
	return ended
}

// wasRefused reports whether refusals alone confirm the failure of e. The report of one watcher
// is enough where there never was another watcher: a set that has become small may be cut off.
func (f *failures) wasRefused(e *entry) bool {
	_, refusals := f.reporters(e, e.at)
	return refusals >= enough || refusals > 0 && !slices.ContainsFunc(f.nodes, func(o *entry) bool {
		return o != e && o != f.self && o.status != retired
	})
}

// Reported reports whether too few watchers report a live node.
func (f *failures) Reported() bool {
	return slices.ContainsFunc(f.reported, func(e *entry) bool {
		return e.status == live && slices.ContainsFunc(e.failureReports(), func(a failureReport) bool { return f.counts(a.At, e.at) })
	})
}

// fewOthers reports whether fewer than three nodes are live, e among them: then there is
// only one watcher.
func (f *failures) fewOthers(e *entry) bool {
	others := len(f.live) + len(f.begun)
	if e.status == live {
		others--
	}
	return others < enough
}

// confirm ends the lease of e if enough watchers report e. Later reports may add refusals.
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

// review looks at all reported nodes again: a live set that became smaller needs fewer
// watchers. It also forgets the failure reports that matter no more. O(1) without any.
func (f *failures) review(now time.Time, effect *Effect) {
	for _, e := range f.reported {
		f.confirm(now, e, effect)
		e.more().failureReports = slices.DeleteFunc(e.failureReports(), func(a failureReport) bool {
			return e.status == retired || f.outdated(now, a.At) || !f.counts(a.At, e.at)
		})
	}
	f.reported = slices.DeleteFunc(f.reported, func(e *entry) bool { return len(e.failureReports()) == 0 })
}

// allows reports whether a heartbeat sent at a time begins or continues the lease of e
// in spite of the failure reports against e.
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

// revives reports whether a heartbeat sent at the given time is news of an expired
// node. The latest heartbeat of a dead node reaches some nodes whole, and others as an
// age rounded down: it must not revive the node there.
func (f *failures) revives(known *entry, at Stamp) bool { return at-known.at > 2*f.params.tick() }

// drop forgets all failure reports: their stamps are of a time that was wrong.
func (f *failures) drop() {
	for _, e := range f.reported {
		e.more().failureReports = nil
	}
	f.reported = nil
}

// refute notes a failure report against this node: its next heartbeat must not be rounded down to
// before the failure report.
func (f *failures) refute(a FailureReport, e *Effect) {
	if f.counts(a.At, f.self.at) {
		e.Refute = f.time.local((a.At/f.params.tick() + 1) * f.params.tick())
	}
}

// add adds the failure reports that were not sent often enough, least sent ones
// first, up to half of the draft. Of the reports against
// one incarnation, no more are sent than confirm its failure. O(1) without any.
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

// sufficient returns how many of the failure reports against e show what this node knows.
func (f *failures) sufficient(e *entry) int {
	if e.crashed && !f.fewOthers(e) {
		return min(enough, len(e.failureReports()))
	}
	return len(e.failureReports())
}

// addAgainst adds all failure reports against e that fit, for a node that takes e for live.
func (f *failures) addAgainst(d *draft, e *entry) {
	for _, a := range e.failureReports() {
		if d.free >= maxFailureReportBytes {
			d.FailureReports = append(d.FailureReports, a.FailureReport)
			d.free -= maxFailureReportBytes
		}
	}
}
