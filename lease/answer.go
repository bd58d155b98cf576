package lease

import (
	"cmp"
	"slices"
	"time"
)

// Answer returns the records and beats of the wanted nodes that are live, as
// far as they fit into budget bytes (one always does), and the wants that are
// left over. It returns nil when nothing is left to say.
func (s *Set) Answer(now time.Time, wants []Handle, budget int) (m *Message, rest []Handle) {
	room := budget - messageOverhead
	m = s.message(now)
	s.addBeat(now, m, s.self, &room, 0)
	for i, h := range wants {
		e := s.known[h]
		if e == nil || e.status != live {
			continue
		}
		if e.recordSize()+maxBeatBytes > room && len(m.Records) > 0 {
			return m, wants[i:]
		}
		m.Records = append(m.Records, e.rec)
		room -= e.recordSize()
		s.addBeat(now, m, e, &room, 0)
	}
	if len(m.Records) == 0 {
		return nil, nil
	}
	return m, nil
}

// Request returns the message that asks for the records of wants.
func (s *Set) Request(now time.Time, wants []Handle) *Message {
	m := s.message(now)
	m.Wants = wants
	return m
}

// AnswerExpired returns what to tell the sender of a message, and where, if this set
// does not hold it for live although it speaks: because a later incarnation of
// its node has taken its place, or because its clock is too far ahead. Nobody
// gossips to such a node, so it would hear nothing, take everybody else for
// dead, and believe that it owns everything. It gets the successor's record,
// whether that one lives (then it has to stop) or not (then it has to outbid it,
// at once if that one said farewell), and as many beats as fit into budget bytes,
// freshest first; at most twice a second.
func (s *Set) AnswerExpired(now time.Time, sender Handle, budget int) (addr string, m *Message) {
	e := s.known[sender]
	if e == nil || e.status == live || e.left() || e.rec.Addr == "" || now.Sub(e.answered) < requestInterval {
		return "", nil
	}
	e.answered, e.renewed = now, now // it is remembered for as long as it speaks
	room := budget - messageOverhead
	m = s.message(now)
	s.addBeat(now, m, s.self, &room, 0)
	if successor := s.byID[e.rec.ID]; successor != nil && successor != e {
		m.Records = append(m.Records, successor.rec)
		room -= successor.recordSize()
		if successor.spreads() {
			s.addBeat(now, m, successor, &room, 0)
		}
	}
	for _, other := range s.freshest() {
		if !s.addBeat(now, m, other, &room, 0) {
			break
		}
	}
	return e.rec.Addr, m
}

// freshest returns the live nodes but this one, the last to beat first.
func (s *Set) freshest() []*entry {
	var rows []*entry
	for _, e := range s.byID {
		if e.status == live && e != s.self {
			rows = append(rows, e)
		}
	}
	slices.SortFunc(rows, func(a, b *entry) int {
		return cmp.Or(b.renewed.Compare(a.renewed), cmp.Compare(a.handle, b.handle))
	})
	return rows
}
