package lease

import (
	"slices"
	"time"
)

// Inform returns what to tell the sender of a message, and where, if this set
// does not hold it for live although it speaks: because a later incarnation of
// its node has taken its place, or because its clock is too far ahead. Nobody
// gossips to such a node, so it would hear nothing, take everybody else for
// dead, and believe that it owns everything. It gets the successor's record and
// as many beats as fit into budget bytes, freshest first; at most twice a second.
func (s *Set) Inform(now time.Time, sender Handle, budget int) (addr string, m *Message) {
	e := s.known[sender]
	if e == nil || e.status == live || e.left() || e.rec.Addr == "" || now.Sub(e.told) < askAgainAfter {
		return "", nil
	}
	e.told, e.born = now, now // it is remembered for as long as it speaks
	room := budget - messageOverhead
	m = s.message(now)
	s.addBeat(now, m, s.self, &room, 0)
	if successor := s.byID[e.rec.ID]; successor != nil && successor != e && successor.status == live {
		m.Records = append(m.Records, successor.rec)
		room -= successor.recordSize()
		s.addBeat(now, m, successor, &room, 0)
	}
	rows := s.rows[:0]
	for _, other := range s.byID {
		if other.status == live && other != s.self {
			rows = append(rows, other)
		}
	}
	slices.SortFunc(rows, func(a, b *entry) int { return b.born.Compare(a.born) })
	for _, other := range rows {
		if !s.addBeat(now, m, other, &room, 0) {
			break
		}
	}
	clear(rows)
	s.rows = rows[:0]
	return e.rec.Addr, m
}
