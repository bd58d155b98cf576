package lease

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// Cordon takes a node out for all members, until an end: it owns nothing and stays a
// member. A cordon concerns the id, so a restart of the node does not end it. The end
// is a moment of cluster time, so that it is the same for all nodes.
type Cordon struct {
	ID     NodeID
	At     Stamp  // when it was decided: of two cordons of a node, the later one counts
	Until  Stamp  // the end; At if this only ends an earlier cordon
	Keep   Stamp  // until when it is remembered, because it replaces a cordon with a later end
	Reason string // for people; one line

	rest string // fields of a later release, passed on
}

// Validate returns all problems of c, joined, or nil.
func (c *Cordon) Validate() error {
	var errs []error
	if err := c.ID.Validate(); err != nil {
		errs = append(errs, err)
	}
	reject := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("lease: cordon of %.80q: "+format, append([]any{string(c.ID)}, args...)...))
		}
	}
	ordered := c.At <= c.Until && c.Until <= c.Keep
	reject(!ordered, "it ends before it begins")
	reject(ordered && c.Keep-c.At > stamps(MaxCordonTime), "it lasts longer than %v", MaxCordonTime)
	reject(len(c.Reason) > MaxReasonBytes, "the reason has %d bytes, at most %d", len(c.Reason), MaxReasonBytes)
	reject(!utf8.ValidString(c.Reason) || strings.ContainsFunc(c.Reason, unicode.IsControl), "the reason is not one line of UTF-8")
	return errors.Join(errs...)
}

// compare orders cordons in a way that is the same for all nodes, the later ones last.
func (c Cordon) compare(o Cordon) int {
	return cmp.Or(
		cmp.Compare(c.At, o.At), cmp.Compare(c.Until, o.Until), cmp.Compare(c.Keep, o.Keep),
		cmp.Compare(c.ID, o.ID), cmp.Compare(c.Reason, o.Reason), cmp.Compare(c.rest, o.rest),
	)
}

// mergeCordons returns the latest cordon of each node, by id; of more than MaxCordons the
// latest ones. It is commutative, associative and idempotent, so all nodes arrive at the
// same cordons, in any order of messages.
func mergeCordons(a, b []Cordon) []Cordon {
	last := make(map[NodeID]Cordon, len(a)+len(b))
	for _, c := range slices.Concat(a, b) {
		if o, ok := last[c.ID]; !ok || c.compare(o) > 0 {
			last[c.ID] = c
		}
	}
	all := slices.SortedFunc(maps.Values(last), func(a, b Cordon) int { return b.compare(a) })
	all = all[:min(len(all), MaxCordons)]
	slices.SortFunc(all, func(a, b Cordon) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// digestOfCordons identifies cordons; it is 0 for none.
func digestOfCordons(all []Cordon) uint32 {
	if len(all) == 0 {
		return 0
	}
	var b []byte
	for i := range all {
		c := &all[i]
		for _, part := range []string{string(c.ID), c.Reason, c.rest} {
			b = append(binary.BigEndian.AppendUint64(b, uint64(len(part))), part...)
		}
		for _, at := range []Stamp{c.At, c.Until, c.Keep} {
			b = binary.BigEndian.AppendUint64(b, uint64(at))
		}
	}
	return max(1, uint32(xxhash.Sum64(b)))
}

// cordons is what a Set knows of cordoned nodes. News spreads like rows. Every message has a
// digest of all cordons, and a node that sees a digest other than its own for some time pulls
// what it lacks.
type cordons struct {
	all     []Cordon       // by id, also ended ones that are remembered; never modified
	digest  uint32         // of all
	sent    map[NodeID]int // copies of the latest cordon of each node that this node sent
	inForce []Cordon       // of all, as of the last look at the clock
	next    Stamp          // when the next one ends, or is forgotten; 0 = there is none

	differs time.Time // the first message with another digest, after the last with the same; zero = none
	pulled  time.Time // when this node last pulled what it lacks
}

// Cordon decides that a node owns nothing for some time, at most MaxCordonTime, from now
// on. A cordon of no time ends an earlier cordon. The caller sends the news.
func (s *Set) Cordon(now time.Time, id NodeID, d time.Duration, reason string) error {
	c := Cordon{ID: id, At: s.time.at(now), Reason: reason}
	i, known := s.cordons.search(id)
	if known {
		c.At = max(c.At, s.cordons.all[i].At+1)
	}
	c.Until = c.At + stamps(d)
	c.Keep = c.Until
	if known {
		c.Keep = max(c.Until, s.cordons.all[i].Keep)
	}
	if err := c.Validate(); err != nil || (d <= 0 && !known) {
		return err
	}
	if !known && len(s.cordons.all) >= MaxCordons {
		return ErrCordons
	}
	s.advance(now, max(0, c.At-s.time.at(now))) // two decisions within a millisecond
	s.mergeCordons(now, []Cordon{c})
	return nil
}

func (v *cordons) search(id NodeID) (int, bool) {
	return slices.BinarySearchFunc(v.all, id, func(c Cordon, id NodeID) int { return cmp.Compare(c.ID, id) })
}

// mergeCordons takes in cordons, and reports whether there was news among them.
func (s *Set) mergeCordons(now time.Time, received []Cordon) bool {
	at, v := s.time.at(now), &s.cordons
	all := mergeCordons(v.all, slices.DeleteFunc(slices.Clone(received), func(c Cordon) bool { return c.Keep <= at }))
	if slices.Equal(all, v.all) {
		return false
	}
	sent := make(map[NodeID]int, len(all))
	for _, c := range all {
		if i, known := v.search(c.ID); known && v.all[i] == c {
			sent[c.ID] = v.sent[c.ID]
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
	kept := slices.DeleteFunc(slices.Clone(v.all), func(c Cordon) bool { return c.Keep <= at })
	inForce := slices.DeleteFunc(slices.Clone(kept), func(c Cordon) bool { return c.Until <= at })
	if len(kept) < len(v.all) {
		v.all, v.digest = kept, digestOfCordons(kept)
	}
	v.next = 0
	for _, c := range kept {
		end := c.Keep
		if c.Until > at {
			end = c.Until
		}
		if v.next == 0 || end < v.next {
			v.next = end
		}
	}
	if slices.Equal(inForce, v.inForce) {
		return false
	}
	begun := slices.ContainsFunc(inForce, func(c Cordon) bool { return !isCordoned(v.inForce, c.ID) })
	s.lost = s.lost || begun
	v.inForce = inForce
	return true
}

// nextCordon returns the earlier of a deadline, if there is one, and the next end of a cordon.
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
	_, ok := slices.BinarySearchFunc(inForce, id, func(c Cordon, id NodeID) int { return cmp.Compare(c.ID, id) })
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

// applyCordons takes in the cordons of a message, and pulls what this node lacks.
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
	case now.Sub(v.differs) >= s.repairAfter() && now.Sub(v.pulled) >= s.repairAfter()/2 && s.AddrOf(m.From) != "":
		v.pulled = now
		e.Cordons = true
	}
}

// addCordons adds the cordons with too few copies, least sent ones first, and reports
// whether there were any.
func (s *Set) addCordons(m *Message, free *int, recipients int) bool {
	v, space := &s.cordons, *free/3
	due := slices.DeleteFunc(slices.Clone(v.all), func(c Cordon) bool { return v.sent[c.ID] >= s.rowCopies() })
	slices.SortStableFunc(due, func(a, b Cordon) int { return cmp.Compare(v.sent[a.ID], v.sent[b.ID]) })
	for i := range due {
		if c := &due[i]; c.size() <= space {
			space -= c.size()
			*free -= c.size()
			v.sent[c.ID] += recipients
			m.Cordons = append(m.Cordons, *c)
		}
	}
	return len(m.Cordons) > 0
}

// CordonsFor returns messages of at most budget bytes with all cordons that this node
// knows. With pull, they also ask the receiver for the cordons that this node lacks; see
// [Effect].
func (s *Set) CordonsFor(now time.Time, budget int, pull bool) (messages []*Message) {
	m, free := s.message(now), budget-messageOverhead
	for i := range s.cordons.all {
		c := &s.cordons.all[i]
		if c.size() > free && len(m.Cordons) > 0 {
			messages = append(messages, m)
			m, free = s.message(now), budget-messageOverhead
		}
		if c.size() <= free {
			m.Cordons = append(m.Cordons, *c)
			free -= c.size()
		}
	}
	m.PullCordons = pull
	return append(messages, m)
}

// size returns an upper bound of the encoded size of c.
func (c *Cordon) size() int {
	return maxCordonBytes - MaxIDBytes - MaxReasonBytes - maxRestBytes + len(c.ID) + len(c.Reason) + len(c.rest)
}

// Cordoned returns the cordons in force, by id. The result must not be modified.
func (s *Set) Cordoned() []Cordon { return s.cordons.inForce }

// Until returns how long it is until a moment of cluster time.
func (s *Set) Until(now time.Time, at Stamp) time.Duration { return millis(at - s.time.at(now)) }

// Knows reports whether a node is a member, or was one lately.
func (s *Set) Knows(id NodeID) bool { return s.latest(id) != nil }
