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

// Accusation says that an incarnation has ended. A watcher makes it; all nodes relay it.
//
// Two watchers together prove the end, unless the incarnation sent a beat after At. What a
// set concludes follows from the accusations and beats that it has received, in any order.
type Accusation struct {
	Subject, Watcher Handle
	At               Stamp // the subject sent no beat after this time
	Evidence         Evidence
}

const (
	// watchers is how many other nodes watch each node.
	watchers = 4

	// enough is how many watchers prove the end of an incarnation.
	enough = 2

	// maxAccusers is how many accusations against one incarnation are kept.
	maxAccusers = 4

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

// Accuse says that an incarnation has ended, on evidence found at an instant. Without
// effect if a later beat of the incarnation is known.
func (s *Set) Accuse(now time.Time, subject Handle, found time.Time, evidence Evidence) (e Effect) {
	at := s.time.at(found)
	if evidence == Silent {
		at -= stamps(silentFor)
	}
	s.applyAccusation(now, Accusation{subject, s.self.handle, at, evidence}, &e)
	return e
}

// accusation is an Accusation in the entry of its subject.
type accusation struct {
	Accusation
	id   NodeID // of the watcher
	sent int    // copies sent by this node
}

// compare orders accusations: later ones count for longer.
func (a Accusation) compare(b Accusation) int {
	return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.Evidence, b.Evidence), cmp.Compare(a.Watcher, b.Watcher))
}

// counts reports whether an accusation made at a time holds against an incarnation with
// a latest beat of the given stamp. Both are rounded to the grid of ages: the sets that
// know the beat by its age alone come to the same conclusion as the others. So a node refutes
// an accusation by a beat of the next cell of the grid.
func (s *Set) counts(at, beat Stamp) bool { return beat/s.grain() <= at/s.grain() }

// outdated reports whether no beat that could still begin or renew a lease is as old as an
// accusation.
func (s *Set) outdated(now time.Time, at Stamp) bool {
	return s.time.at(now)-at > stamps(s.params.TTL)+s.grain()
}

// applyAccusation merges an accusation. Its watcher must have, or have had, a lease here;
// otherwise any number could accuse.
func (s *Set) applyAccusation(now time.Time, a Accusation, e *Effect) {
	if a.Subject == s.self.handle {
		s.refute(a, e)
		return
	}
	subject, watcher := s.known[a.Subject], s.known[a.Watcher]
	if subject == nil || subject.status == retired || watcher == nil || !watcher.hadLease() ||
		watcher.rec.ID == subject.rec.ID || s.outdated(now, a.At) || !s.counts(a.At, subject.at) {
		return
	}
	innocent := len(subject.accusations()) == 0
	if !subject.accuse(accusation{Accusation: a, id: watcher.rec.ID}) {
		return
	}
	if innocent {
		s.accused = append(s.accused, subject)
	}
	e.Urgent = true
	s.judge(now, subject, e)
}

// accuse adds an accusation, in place of an earlier one by the same node, and reports
// whether it is news. The latest ones are kept, so their order of arrival does not matter.
func (e *entry) accuse(a accusation) (news bool) {
	all := slices.Clone(e.accusations())
	if i := slices.IndexFunc(all, func(b accusation) bool { return b.id == a.id }); i >= 0 {
		if a.compare(all[i].Accusation) >= 0 {
			return false
		}
		all = slices.Delete(all, i, i+1)
	}
	i, _ := slices.BinarySearchFunc(all, a, func(b, a accusation) int { return b.compare(a.Accusation) })
	if i >= maxAccusers {
		return false
	}
	all = slices.Insert(all, i, a)
	e.more().accusations = all[:min(len(all), maxAccusers)]
	return true
}

// proven reports whether the end of e is proven, if its latest beat was sent at a time.
func (s *Set) proven(e *entry, beat Stamp) bool {
	all, refusals := s.accusers(e, beat)
	return all >= enough || refusals > 0 && s.fewOthers(e)
}

// accusers counts the accusations that hold against e, and the refusals among them.
func (s *Set) accusers(e *entry, beat Stamp) (all, refusals int) {
	for _, a := range e.accusations() {
		if s.counts(a.At, beat) {
			all++
			if a.Evidence == Refused {
				refusals++
			}
		}
	}
	return all, refusals
}

// crashed returns the incarnations that have ended by the word of watchers that were Refused,
// or that found another incarnation. Those of Silent hosts may be out of reach only.
func (s *Set) crashed() (ended []Incarnation) {
	for _, e := range s.accused {
		if e.status == expired && e.crashed && e.refused {
			ended = append(ended, Incarnation{e.rec.ID, e.rec.Incarnation})
		}
	}
	return ended
}

// wasRefused reports whether refusals alone prove the end of e. The word of one watcher is
// enough where there never was another: a set that has become small may be cut off.
func (s *Set) wasRefused(e *entry) bool {
	_, refusals := s.accusers(e, e.at)
	return refusals >= enough || refusals > 0 && !slices.ContainsFunc(s.nodes, func(o *entry) bool {
		return o != e && o != s.self && o.status != retired
	})
}

// Accused reports whether a live node is accused of having ended, by too few watchers.
func (s *Set) Accused() bool {
	return slices.ContainsFunc(s.accused, func(e *entry) bool {
		return e.status == live && slices.ContainsFunc(e.accusations(), func(a accusation) bool { return s.counts(a.At, e.at) })
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

// judge ends the lease of e if the end of e is proven. Later accusers may add refusals.
func (s *Set) judge(now time.Time, e *entry, effect *Effect) {
	switch {
	case e.status == live && s.proven(e, e.at):
		s.end(now, e, expired)
		e.crashed, e.refused = true, s.wasRefused(e)
		s.stats.Crashed++
		effect.Changed, effect.Urgent = true, true
	case e.crashed && !e.refused && s.wasRefused(e):
		e.refused, effect.Changed = true, true
	}
}

// judgeAll looks at all accused again: a live set that became smaller needs fewer
// watchers. It also forgets the accusations that matter no more. O(1) without any.
func (s *Set) judgeAll(now time.Time, effect *Effect) {
	for _, e := range s.accused {
		s.judge(now, e, effect)
		e.more().accusations = slices.DeleteFunc(e.accusations(), func(a accusation) bool {
			return e.status == retired || s.outdated(now, a.At) || !s.counts(a.At, e.at)
		})
	}
	s.accused = slices.DeleteFunc(s.accused, func(e *entry) bool { return len(e.accusations()) == 0 })
}

// revivesAccused reports whether a beat sent at a time begins or continues the lease of e
// in spite of what e is accused of.
func (s *Set) revivesAccused(e *entry, at Stamp) bool {
	switch latest := max(e.at, at); {
	case s.proven(e, latest):
		return false
	case e.crashed:
		return !s.counts(e.at, at)
	default:
		return e.status != expired || s.revives(e, at)
	}
}

// dropAccusations forgets all accusations: their stamps are of a time that was wrong.
func (s *Set) dropAccusations() {
	for _, e := range s.accused {
		e.more().accusations = nil
	}
	s.accused = nil
}

// refute notes an accusation against this node: its next beat must not be rounded to before
// the accusation.
func (s *Set) refute(a Accusation, e *Effect) {
	if s.counts(a.At, s.self.at) {
		e.Refute = s.time.local((a.At/s.grain() + 1) * s.grain())
	}
}

// addAccusations adds the accusations that were not sent often enough, least sent ones
// first, up to space bytes, and reports whether there were any. Of those against one
// incarnation, no more are sent than prove its end. O(1) without any.
func (s *Set) addAccusations(now time.Time, m *Message, space int, free *int, recipients int) bool {
	var due []*accusation
	copies := s.rowCopies()
	for _, e := range s.accused {
		for i := range e.accusations()[:s.sufficient(e)] {
			if a := &e.accusations()[i]; a.sent < copies && !s.outdated(now, a.At) {
				due = append(due, a)
			}
		}
	}
	slices.SortStableFunc(due, func(a, b *accusation) int { return cmp.Compare(a.sent, b.sent) })
	for _, a := range due[:min(len(due), space/maxAccusationBytes)] {
		m.Accusations = append(m.Accusations, a.Accusation)
		a.sent += recipients
		*free -= maxAccusationBytes
	}
	return len(m.Accusations) > 0
}

// sufficient returns how many of the accusations against e show what this node knows.
func (s *Set) sufficient(e *entry) int {
	if e.crashed && !s.fewOthers(e) {
		return min(enough, len(e.accusations()))
	}
	return len(e.accusations())
}

// addProof adds all accusations against e that fit, for a node that takes e for live.
func (s *Set) addProof(m *Message, e *entry, free *int) {
	for _, a := range e.accusations() {
		if *free >= maxAccusationBytes {
			m.Accusations = append(m.Accusations, a.Accusation)
			*free -= maxAccusationBytes
		}
	}
}
