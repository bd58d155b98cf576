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
func (s *Set) Watched() []Handle {
	own, _ := slices.BinarySearch(s.order, s.self.handle)
	watched := make([]Handle, min(watchers, len(s.order)-1))
	for i := range watched {
		watched[i] = s.order[(own+1+i)%len(s.order)]
	}
	return watched
}

// ReportFailure says that an incarnation has ended, on evidence found at an instant. Without
// effect if a later heartbeat of the incarnation is known.
func (s *Set) ReportFailure(now time.Time, subject Handle, found time.Time, evidence Evidence) (e Effect) {
	at := s.time.at(found)
	if evidence == Silent {
		at -= stamps(silentFor)
	}
	s.applyFailureReport(now, FailureReport{subject, s.self.handle, at, evidence}, &e)
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

// counts reports whether a failure report made at a time holds against an incarnation with
// a latest heartbeat of the given stamp. Both are rounded to ticks: the sets that know the
// heartbeat by its age alone come to the same conclusion as the others. So a node refutes a
// failure report by a heartbeat of the next tick.
func (s *Set) counts(at, heartbeat Stamp) bool { return heartbeat/s.tick() <= at/s.tick() }

// outdated reports whether no heartbeat that could still begin or renew a lease is as old as a
// failure report.
func (s *Set) outdated(now time.Time, at Stamp) bool {
	return s.time.at(now)-at > stamps(s.params.TTL)+s.tick()
}

// applyFailureReport merges a failure report. Its watcher must have, or have had, a lease here;
// otherwise anyone could invent watchers.
func (s *Set) applyFailureReport(now time.Time, a FailureReport, e *Effect) {
	if a.Subject == s.self.handle {
		s.refute(a, e)
		return
	}
	subject, watcher := s.known[a.Subject], s.known[a.Watcher]
	if subject == nil || subject.status == retired || watcher == nil || !watcher.hadLease() ||
		watcher.rec.ID == subject.rec.ID || s.outdated(now, a.At) || !s.counts(a.At, subject.at) {
		return
	}
	unreported := len(subject.failureReports()) == 0
	if !subject.reportFailure(failureReport{FailureReport: a, id: watcher.rec.ID}) {
		return
	}
	if unreported {
		s.reported = append(s.reported, subject)
	}
	e.Urgent = true
	s.confirmFailure(now, subject, e)
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
func (s *Set) confirmed(e *entry, heartbeat Stamp) bool {
	all, refusals := s.reporters(e, heartbeat)
	return all >= enough || refusals > 0 && s.fewOthers(e)
}

// reporters counts the failure reports that hold against e, and the refusals among them.
func (s *Set) reporters(e *entry, heartbeat Stamp) (all, refusals int) {
	for _, a := range e.failureReports() {
		if s.counts(a.At, heartbeat) {
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
func (s *Set) crashed() (ended []Incarnation) {
	for _, e := range s.reported {
		if e.status == expired && e.crashed && e.refused {
			ended = append(ended, Incarnation{e.rec.ID, e.rec.Incarnation})
		}
	}
	return ended
}

// wasRefused reports whether refusals alone confirm the failure of e. The report of one watcher
// is enough where there never was another watcher: a set that has become small may be cut off.
func (s *Set) wasRefused(e *entry) bool {
	_, refusals := s.reporters(e, e.at)
	return refusals >= enough || refusals > 0 && !slices.ContainsFunc(s.nodes, func(o *entry) bool {
		return o != e && o != s.self && o.status != retired
	})
}

// Reported reports whether too few watchers report a live node.
func (s *Set) Reported() bool {
	return slices.ContainsFunc(s.reported, func(e *entry) bool {
		return e.status == live && slices.ContainsFunc(e.failureReports(), func(a failureReport) bool { return s.counts(a.At, e.at) })
	})
}

// fewOthers reports whether fewer than three nodes are live, e among them: then there is
// only one watcher.
func (s *Set) fewOthers(e *entry) bool {
	others := len(s.live) + len(s.begun)
	if e.status == live {
		others--
	}
	return others < enough
}

// confirmFailure ends the lease of e if enough watchers report e. Later reports may add refusals.
func (s *Set) confirmFailure(now time.Time, e *entry, effect *Effect) {
	switch {
	case e.status == live && s.confirmed(e, e.at):
		s.end(now, e, expired)
		e.crashed, e.refused = true, s.wasRefused(e)
		s.stats.Crashed++
		effect.Changed, effect.Urgent = true, true
	case e.crashed && !e.refused && s.wasRefused(e):
		e.refused, effect.Changed = true, true
	}
}

// confirmFailures looks at all reported nodes again: a live set that became smaller needs fewer
// watchers. It also forgets the failure reports that matter no more. O(1) without any.
func (s *Set) confirmFailures(now time.Time, effect *Effect) {
	for _, e := range s.reported {
		s.confirmFailure(now, e, effect)
		e.more().failureReports = slices.DeleteFunc(e.failureReports(), func(a failureReport) bool {
			return e.status == retired || s.outdated(now, a.At) || !s.counts(a.At, e.at)
		})
	}
	s.reported = slices.DeleteFunc(s.reported, func(e *entry) bool { return len(e.failureReports()) == 0 })
}

// revivesReported reports whether a heartbeat sent at a time begins or continues the lease of e
// in spite of the failure reports against e.
func (s *Set) revivesReported(e *entry, at Stamp) bool {
	switch latest := max(e.at, at); {
	case s.confirmed(e, latest):
		return false
	case e.crashed:
		return !s.counts(e.at, at)
	default:
		return e.status != expired || s.revives(e, at)
	}
}

// dropFailureReports forgets all failure reports: their stamps are of a time that was wrong.
func (s *Set) dropFailureReports() {
	for _, e := range s.reported {
		e.more().failureReports = nil
	}
	s.reported = nil
}

// refute notes a failure report against this node: its next heartbeat must not be rounded down to
// before the failure report.
func (s *Set) refute(a FailureReport, e *Effect) {
	if s.counts(a.At, s.self.at) {
		e.Refute = s.time.local((a.At/s.tick() + 1) * s.tick())
	}
}

// addFailureReports adds the failure reports that were not sent often enough, least sent ones
// first, up to space bytes, and reports whether there were any. Of the reports against
// one incarnation, no more are sent than confirm its failure. O(1) without any.
func (s *Set) addFailureReports(now time.Time, m *Message, space int, free *int, recipients int) bool {
	var due []*failureReport
	copies := s.rowCopies()
	for _, e := range s.reported {
		for i := range e.failureReports()[:s.sufficient(e)] {
			if a := &e.failureReports()[i]; a.sent < copies && !s.outdated(now, a.At) {
				due = append(due, a)
			}
		}
	}
	slices.SortStableFunc(due, func(a, b *failureReport) int { return cmp.Compare(a.sent, b.sent) })
	for _, a := range due[:min(len(due), space/maxFailureReportBytes)] {
		m.FailureReports = append(m.FailureReports, a.FailureReport)
		a.sent += recipients
		*free -= maxFailureReportBytes
	}
	return len(m.FailureReports) > 0
}

// sufficient returns how many of the failure reports against e show what this node knows.
func (s *Set) sufficient(e *entry) int {
	if e.crashed && !s.fewOthers(e) {
		return min(enough, len(e.failureReports()))
	}
	return len(e.failureReports())
}

// addReportsAgainst adds all failure reports against e that fit, for a node that takes e for live.
func (s *Set) addReportsAgainst(m *Message, e *entry, free *int) {
	for _, a := range e.failureReports() {
		if *free >= maxFailureReportBytes {
			m.FailureReports = append(m.FailureReports, a.FailureReport)
			*free -= maxFailureReportBytes
		}
	}
}
