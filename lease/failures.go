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

// FailureReport reports that an incarnation has ended. A watcher creates the report, and all nodes relay it.
//
// Two watchers together confirm the failure, unless the incarnation sent a heartbeat after At. A set's
// conclusion depends on which failure reports and heartbeats it has received, but not on their order.
type FailureReport struct {
	Subject, Watcher Handle
	At               Stamp // the subject sent no heartbeat after this time
	Evidence         Evidence
}

const (
	// watchers is how many nodes watch each node.
	watchers = 4

	// enough is how many watchers must report the failure of an incarnation to confirm it.
	enough = 2

	// maxReporters is how many failure reports a set keeps per incarnation.
	maxReporters = 4

	// silentFor is the minimum time that passes between the end of a Silent node and its failure report. The stream of
	// a stopped node ends after two unanswered probes, at least two seconds after the node stopped. Subtracting half a
	// second allows for delays.
	silentFor = 1500 * time.Millisecond
)

// Watched returns the nodes that this node watches. A node watches the next four nodes in the order of
// handles, and the first handle follows the last. Because a handle is a hash, nodes of the same host or zone
// don't watch each other more often than other nodes do. A join or a leave changes what four nodes watch.
// Watched costs O(log n).
func (f *failures) Watched() []Handle {
	own, _ := slices.BinarySearch(f.order, f.self.handle)
	watched := make([]Handle, min(watchers, len(f.order)-1))
	for i := range watched {
		watched[i] = f.order[(own+1+i)%len(f.order)]
	}
	return watched
}

// ReportFailure reports that an incarnation has ended, with evidence that this node found at the given time.
// It has no effect if the set knows a later heartbeat of the incarnation.
func (f *failures) ReportFailure(now time.Time, subject Handle, found time.Time, evidence Evidence) (e Effect) {
	at := f.time.at(found)
	if evidence == Silent {
		at -= stamps(silentFor)
	}
	f.merge(now, FailureReport{subject, f.self.handle, at, evidence}, &e)
	return e
}

// failureReport is a FailureReport that the entry of its subject stores.
type failureReport struct {
	FailureReport
	id   NodeID // id of the watcher
	sent int    // number of copies that this node sent
}

// compare orders failure reports by time, latest first, because a later report remains valid for longer.
func (a FailureReport) compare(b FailureReport) int {
	return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.Evidence, b.Evidence), cmp.Compare(a.Watcher, b.Watcher))
}

// failures is the protocol of failure reports.
type failures struct {
	*core
	reported []*entry // entries with failure reports
}

// counts reports whether a failure report from time at is valid for an incarnation whose latest heartbeat has
// the given stamp. It rounds both times to ticks, so that sets that only know the rounded age of the
// heartbeat reach the same conclusion. Because of the rounding, a node can only refute a failure report with
// a heartbeat in the next tick.
func (f *failures) counts(at, heartbeat Stamp) bool {
	return heartbeat/f.params.tick() <= at/f.params.tick()
}

// outdated reports whether a failure report is so old that it no longer matters, because every heartbeat that
// can still begin or renew a lease is later.
func (f *failures) outdated(now time.Time, at Stamp) bool {
	return f.time.at(now)-at > stamps(f.params.TTL)+f.params.tick()
}

// apply merges the failure reports of a message.
func (f *failures) apply(now time.Time, m *Message, e *Effect) {
	for _, a := range m.FailureReports {
		f.merge(now, a, e)
	}
}

// merge accepts a failure report only if its watcher has or had a lease in this set. Otherwise an attacker
// could invent watchers.
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

// reportFailure adds a failure report, or replaces an earlier report by the same watcher, and returns whether
// the report is new. It keeps the latest reports, so the order in which reports arrive does not matter.
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

// confirmed reports whether enough watchers have reported e, given the stamp of its latest heartbeat.
func (f *failures) confirmed(e *entry, heartbeat Stamp) bool {
	all, refusals := f.reporters(e, heartbeat)
	return all >= enough || refusals > 0 && f.fewOthers(e)
}

// reporters counts the valid failure reports against e, and how many of them are refusals.
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

// crashed returns the incarnations that have certainly ended, because watchers were Refused or found another
// incarnation. It leaves out incarnations of Silent hosts, which may only be unreachable.
func (f *failures) crashed() (ended []Incarnation) {
	for _, e := range f.reported {
		if e.dead() {
			ended = append(ended, e.incarnation())
		}
	}
	return ended
}

// wasRefused reports whether refusals alone confirm the failure of e. A single refusal is enough only if no
// other node could be watching e. Otherwise it takes two, because the few remaining members may be one side
// of a split. Nodes that have certainly ended are not considered to be watching, although such a node may
// have restarted on the other side.
func (f *failures) wasRefused(e *entry) bool {
	_, refusals := f.reporters(e, e.at)
	return refusals >= enough || refusals > 0 && !slices.ContainsFunc(f.nodes, func(o *entry) bool {
		return o != e && o != f.self && o.status != retired && !o.dead()
	})
}

// dead reports whether the process has certainly ended, because watchers were Refused.
func (e *entry) dead() bool { return e.status == expired && e.crashed && e.refused }

// Reported reports whether there are failure reports against a live node, but too few to confirm its failure.
func (f *failures) Reported() bool {
	return slices.ContainsFunc(f.reported, func(e *entry) bool {
		return e.status == live && slices.ContainsFunc(e.failureReports(), func(a failureReport) bool { return f.counts(a.At, e.at) })
	})
}

// fewOthers reports whether fewer than two nodes other than e are live, so that e has only one watcher.
func (f *failures) fewOthers(e *entry) bool {
	others := len(f.live) + len(f.begun)
	if e.status == live {
		others--
	}
	return others < enough
}

// confirm ends the lease of e if enough watchers have reported e. Reports that arrive later can still prove
// that the process was refused.
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

// review checks all reported nodes again, because a smaller live set needs fewer watchers. It also removes
// failure reports that no longer matter. Without failure reports, review costs O(1).
func (f *failures) review(now time.Time, effect *Effect) {
	for _, e := range f.reported {
		f.confirm(now, e, effect)
		e.more().failureReports = slices.DeleteFunc(e.failureReports(), func(a failureReport) bool {
			return e.status == retired || f.outdated(now, a.At) || !f.counts(a.At, e.at)
		})
	}
	f.reported = slices.DeleteFunc(f.reported, func(e *entry) bool { return len(e.failureReports()) == 0 })
}

// allows reports whether a heartbeat sent at the given time can begin or renew the lease of e despite the
// failure reports against e.
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

// revives reports whether a heartbeat sent at the given time shows that an expired node is still running. Some nodes
// receive the exact time of a dead node's latest heartbeat, and other nodes only receive its rounded age. The
// difference must not revive the node.
func (f *failures) revives(known *entry, at Stamp) bool { return at-known.at > 2*f.params.tick() }

// drop removes all failure reports, because their stamps refer to a wrong cluster time.
func (f *failures) drop() {
	for _, e := range f.reported {
		e.more().failureReports = nil
	}
	f.reported = nil
}

// refute handles a failure report against this node. It schedules the next heartbeat for the next tick, so
// that rounding does not make the heartbeat look older than the failure report.
func (f *failures) refute(a FailureReport, e *Effect) {
	if f.counts(a.At, f.self.at) {
		e.Refute = f.time.local((a.At/f.params.tick() + 1) * f.params.tick())
	}
}

// add adds the failure reports that this node has not sent often enough, least sent first, up to half of the
// draft. Per incarnation, it adds only as many reports as are needed to confirm the failure. Without failure
// reports, add costs O(1).
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

// sufficient returns how many failure reports against e a receiver needs to reach the same conclusion as this
// node.
func (f *failures) sufficient(e *entry) int {
	if e.crashed && !f.fewOthers(e) {
		return min(enough, len(e.failureReports()))
	}
	return len(e.failureReports())
}

// addAgainst adds all failure reports against e that fit, for a receiver that considers e live.
func (f *failures) addAgainst(d *draft, e *entry) {
	for _, a := range e.failureReports() {
		if d.free >= maxFailureReportBytes {
			d.FailureReports = append(d.FailureReports, a.FailureReport)
			d.free -= maxFailureReportBytes
		}
	}
}
