package lease

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// messageOverhead is an upper bound for a message without beats, records and wants.
const messageOverhead = 48

// How often a node sends one beat or record. After 3·log2(n) random recipients per
// node, the chance that a given node has not received the beat is far below one in a
// million, even at a packet loss of 20 %. Records are longer, and nodes request the
// records that they miss.
func (s *Set) beatCopies() int   { return 3 * bits.Len(uint(len(s.nodes))) }
func (s *Set) recordCopies() int { return bits.Len(uint(len(s.nodes))) }

// Compose returns a digest of at most budget encoded bytes, for the given number of
// recipients. It has this node's beat, new records in up to half of the space, then
// the least relayed beats, freshest first, farewells included. Compose returns nil
// if there is no news, because every beat and record was sent often enough, or if not
// even this node's beat fits. O(n log n).
func (s *Set) Compose(now time.Time, budget, recipients int) *Message {
	news := s.self.beats < s.beatCopies()
	room := budget - messageOverhead
	m := s.message(now)
	if !s.addBeat(now, m, s.self, &room, recipients) {
		return nil // the row sizes below assume its table digest
	}
	if s.addRecords(m, room/2, &room, recipients) {
		news = true
	}
	rows := s.rows[:0]
	for _, e := range s.nodes {
		if e != s.self && e.spreads() && e.beats < s.beatCopies() && now.Sub(e.renewed) <= s.params.TTL {
			rows = append(rows, e)
		}
	}
	slices.SortFunc(rows, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.beats, b.beats), b.renewed.Compare(a.renewed), cmp.Compare(a.handle, b.handle))
	})
	for _, e := range rows {
		if !s.addBeat(now, m, e, &room, recipients) {
			break
		}
		news = true
	}
	clear(rows)
	s.rows = rows[:0]
	if !news {
		return nil
	}
	return m
}

// addRecords adds the least sent records, up to space bytes, and reports whether
// there were any.
func (s *Set) addRecords(m *Message, space int, room *int, recipients int) bool {
	add := func(e *entry) {
		if size := e.recordSize(); size <= space {
			m.Records = append(m.Records, e.rec)
			e.copies += recipients
			space -= size
			*room -= size
		}
	}
	if s.self.copies < s.recordCopies() {
		add(s.self) // only this node can be the first to send it
	}
	fresh := s.rows[:0]
	for _, e := range s.nodes {
		if e != s.self && e.copies < s.recordCopies() && e.status == live {
			fresh = append(fresh, e)
		}
	}
	slices.SortFunc(fresh, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.copies, b.copies), cmp.Compare(a.handle, b.handle))
	})
	for _, e := range fresh {
		add(e)
	}
	clear(fresh)
	return len(m.Records) > 0
}

// Sync returns all live nodes, for a joining node or an anti-entropy exchange. It
// also has the records of recently ended leases, and their farewells. A receiver
// that takes an earlier incarnation of such a node for live needs them; so does a
// later process of the node, which has to outbid them if its clock was set back. A
// farewell states its age, so that all sets forget it at about the same time. The
// message leaves room for Extra.
func (s *Set) Sync(now time.Time) *Message {
	m := s.message(now)
	room := MaxMessageBytes - MaxExtraBytes - messageOverhead
	add := func(e *entry) {
		if e.recordSize()+maxBeatBytes > room {
			return
		}
		m.Records = append(m.Records, e.rec)
		room -= e.recordSize()
		if e.spreads() {
			s.addBeat(now, m, e, &room, 0)
		}
	}
	add(s.self)
	rows := s.rows[:0]
	for _, e := range s.nodes {
		if e != s.self && (e.status == live || e.hadLease()) {
			rows = append(rows, e)
		}
	}
	slices.SortFunc(rows, func(a, b *entry) int { return cmp.Compare(a.handle, b.handle) })
	for _, e := range rows {
		add(e)
	}
	clear(rows)
	s.rows = rows[:0]
	return m
}

// hadLease reports whether this set received a beat of e. A lease that had ended
// before is not relayed, or it would circulate without end.
func (e *entry) hadLease() bool { return e.seq > 0 }

// left reports whether e sent a farewell.
func (e *entry) left() bool { return e.status == retired && e.state == Left }

// spreads reports whether the latest beat of e is relayed: e is live, or the beat is a
// farewell.
func (e *entry) spreads() bool { return e.status == live || e.left() }

func (s *Set) message(now time.Time) *Message {
	return &Message{Settings: s.params.Settings, From: s.self.handle, SentAt: now}
}

// addBeat adds the beat of e if it fits.
func (s *Set) addBeat(now time.Time, m *Message, e *entry, room *int, recipients int) bool {
	b := Beat{
		Handle: e.handle, Seq: e.seq, State: e.state, Version: e.rec.Version,
		Age: now.Sub(e.renewed), Clock: e.clock, Load: e.load, Table: e.table,
	}
	size := beatBytes(&b, s.self.table)
	if size > *room {
		return false
	}
	*room -= size
	m.Beats = append(m.Beats, b)
	e.beats += recipients
	copies := uint64(max(1, recipients)) // an answer goes to one node and does not count as relayed
	if e == s.self {
		s.stats.BeatsSent += copies
	} else {
		s.stats.BeatsRelayed += copies
	}
	return true
}

const maxBeatBytes = 48

// beatBytes returns the encoded size of b.
func beatBytes(b *Beat, table uint32) int {
	var scratch [maxBeatBytes]byte
	return len(appendBeat(scratch[:0], b, table))
}

func (e *entry) recordSize() int {
	if e.size == 0 {
		e.size = recordBytes(e.rec)
	}
	return e.size
}
