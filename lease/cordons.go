package lease

import (
	"cmp"
	"slices"
	"time"
)

// cordons is what a Set knows of cordoned nodes. News spreads like rows. Every message
// has a digest, and a node that sees another one for some time requests what it lacks.
type cordons struct {
	all     []Cordon       // by id, also ended ones that are remembered; never modified
	digest  uint32         // of all
	sent    map[NodeID]int // copies of the latest word on each node sent by this node
	inForce []Cordon       // of all, as of the last look at the clock
	next    Stamp          // when the next one ends, or is forgotten; 0 = there is none

	differs  time.Time // the first message with another digest, after the last with the same; zero = none
	requests time.Time // when this node requested what it lacks last
}

// Cordon decides that a node owns nothing for some time, at most MaxCordonTime, from now
// on. A cordon of no time ends an earlier one. The caller has this spread.
func (s *Set) Cordon(now time.Time, id NodeID, d time.Duration, reason string) error {
	e := Cordon{ID: id, At: s.time.at(now), Reason: reason}
	i, known := s.cordons.search(id)
	if known {
		e.At = max(e.At, s.cordons.all[i].At+1)
	}
	e.Until = e.At + stamps(d)
	e.Keep = e.Until
	if known {
		e.Keep = max(e.Until, s.cordons.all[i].Keep)
	}
	if err := e.Validate(); err != nil || (d <= 0 && !known) {
		return err
	}
	if !known && len(s.cordons.all) >= MaxCordons {
		return ErrCordons
	}
	s.advance(now, max(0, e.At-s.time.at(now))) // two decisions within a millisecond
	s.mergeCordons(now, []Cordon{e})
	return nil
}

func (v *cordons) search(id NodeID) (int, bool) {
	return slices.BinarySearchFunc(v.all, id, func(e Cordon, id NodeID) int { return cmp.Compare(e.ID, id) })
}

// mergeCordons takes in cordons, and reports whether there was news among them.
func (s *Set) mergeCordons(now time.Time, received []Cordon) bool {
	at, v := s.time.at(now), &s.cordons
	all := mergeCordons(v.all, slices.DeleteFunc(slices.Clone(received), func(e Cordon) bool { return e.Keep <= at }))
	if slices.Equal(all, v.all) {
		return false
	}
	sent := make(map[NodeID]int, len(all))
	for _, e := range all {
		if i, known := v.search(e.ID); known && v.all[i] == e {
			sent[e.ID] = v.sent[e.ID]
		}
	}
	v.all, v.sent, v.digest = all, sent, digestOfCordons(all)
	s.endCordons(now)
	return true
}

// endCordons ends and forgets cordons when it is time, and reports whether others are
// in force now.
func (s *Set) endCordons(now time.Time) (changed bool) {
	at, v := s.time.at(now), &s.cordons
	if v.next == 0 && len(v.all) == 0 {
		return false
	}
	kept := slices.DeleteFunc(slices.Clone(v.all), func(e Cordon) bool { return e.Keep <= at })
	inForce := slices.DeleteFunc(slices.Clone(kept), func(e Cordon) bool { return e.Until <= at })
	if len(kept) < len(v.all) {
		v.all, v.digest = kept, digestOfCordons(kept)
	}
	v.next = 0
	for _, e := range kept {
		end := e.Keep
		if e.Until > at {
			end = e.Until
		}
		if v.next == 0 || end < v.next {
			v.next = end
		}
	}
	if slices.Equal(inForce, v.inForce) {
		return false
	}
	begun := slices.ContainsFunc(inForce, func(e Cordon) bool { return !isCordoned(v.inForce, e.ID) })
	s.lost = s.lost || begun
	v.inForce = inForce
	return true
}

// nextCordon returns the earlier one of a deadline, if there is one, and of the next end
// of a cordon.
func (s *Set) nextCordon(deadline time.Time, ok bool) (time.Time, bool) {
	if s.cordons.next == 0 {
		return deadline, ok
	}
	end := s.time.local(s.cordons.next)
	if ok && deadline.Before(end) {
		end = deadline
	}
	return end, true
}

// isCordoned reports whether a node is cordoned.
func isCordoned(inForce []Cordon, id NodeID) bool {
	_, ok := slices.BinarySearchFunc(inForce, id, func(e Cordon, id NodeID) int { return cmp.Compare(e.ID, id) })
	return ok
}

// spared reports whether cordons have no effect because they would leave no node that
// may own anything.
func (s *Set) spared() bool {
	candidates := 0
	for _, e := range s.live {
		if e.state == Active && e.rec.Weight > 0 && !s.drains.begun(e.rec) {
			if !isCordoned(s.cordons.inForce, e.rec.ID) {
				return false
			}
			candidates++
		}
	}
	return candidates > 0
}

// applyCordons takes in the cordons of a message, and requests what this node lacks.
func (s *Set) applyCordons(now time.Time, m *Message, e *Effect) {
	v := &s.cordons
	if len(m.Cordons) > 0 && s.mergeCordons(now, m.Cordons) {
		e.Changed, e.Urgent = true, true
	}
	switch {
	case m.Cordoned == v.digest:
		v.differs = time.Time{}
	case v.differs.IsZero():
		v.differs = now
	case now.Sub(v.differs) >= s.repairAfter() && now.Sub(v.requests) >= s.repairAfter()/2 && s.AddrOf(m.From) != "":
		v.requests = now
		e.Cordons = true
	}
}

// addCordons adds the cordons with too few copies, least sent ones first, and reports
// whether there were any.
func (s *Set) addCordons(m *Message, free *int, recipients int) bool {
	v, space := &s.cordons, *free/3
	due := slices.DeleteFunc(slices.Clone(v.all), func(e Cordon) bool { return v.sent[e.ID] >= s.rowCopies() })
	slices.SortStableFunc(due, func(a, b Cordon) int { return cmp.Compare(v.sent[a.ID], v.sent[b.ID]) })
	for i := range due {
		if e := &due[i]; e.size() <= space {
			space -= e.size()
			*free -= e.size()
			v.sent[e.ID] += recipients
			m.Cordons = append(m.Cordons, *e)
		}
	}
	return len(m.Cordons) > 0
}

// CordonsFor returns messages of at most budget bytes with all cordons that this node
// knows. Those to a node that seems to know more request them; see [Effect].
func (s *Set) CordonsFor(now time.Time, budget int, request bool) (messages []*Message) {
	m, free := s.message(now), budget-messageOverhead
	for i := range s.cordons.all {
		e := &s.cordons.all[i]
		if e.size() > free && len(m.Cordons) > 0 {
			messages = append(messages, m)
			m, free = s.message(now), budget-messageOverhead
		}
		if e.size() <= free {
			m.Cordons = append(m.Cordons, *e)
			free -= e.size()
		}
	}
	m.PullCordons = request
	return append(messages, m)
}

// size returns an upper bound of the encoded size of e.
func (e *Cordon) size() int {
	return maxCordonBytes - MaxIDBytes - MaxReasonBytes - maxRestBytes + len(e.ID) + len(e.Reason) + len(e.rest)
}

// Cordoned returns the cordons in force, by id. The result must not be modified.
func (s *Set) Cordoned() []Cordon { return s.cordons.inForce }

// Until returns how long it is until a moment of cluster time.
func (s *Set) Until(now time.Time, at Stamp) time.Duration { return millis(at - s.time.at(now)) }

// Knows reports whether a node is a member, or was one lately.
func (s *Set) Knows(id NodeID) bool { return s.latest(id) != nil }
