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
	news := s.self.beatsSent < s.beatCopies()
	free := budget - messageOverhead
	m := s.message(now)
	if !s.addBeat(now, m, s.self, &free, recipients) {
		return nil // the row sizes below assume its table digest
	}
	if s.addRecords(m, free/2, &free, recipients) {
		news = true
	}
	due := func(e *entry) bool {
		return e.spreads() && e.beatsSent < s.beatCopies() && now.Sub(e.renewed) <= s.params.TTL
	}
	leastSent := func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.beatsSent, b.beatsSent), b.renewed.Compare(a.renewed))
	}
	for _, e := range s.others(due, leastSent) {
		if !s.addBeat(now, m, e, &free, recipients) {
			break
		}
		news = true
	}
	if !news {
		return nil
	}
	return m
}

// addRecords adds the least sent records, up to space bytes, and reports whether
// there were any.
func (s *Set) addRecords(m *Message, space int, free *int, recipients int) bool {
	add := func(e *entry) {
		if size := e.recordSize(); size <= space {
			m.Records = append(m.Records, e.rec)
			e.recordsSent += recipients
			space -= size
			*free -= size
		}
	}
	if s.self.recordsSent < s.recordCopies() {
		add(s.self) // only this node can be the first to send it
	}
	due := func(e *entry) bool { return e.recordsSent < s.recordCopies() && e.status == live }
	leastSent := func(a, b *entry) int { return cmp.Compare(a.recordsSent, b.recordsSent) }
	for _, e := range s.others(due, leastSent) {
		add(e)
	}
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
	free := MaxMessageBytes - MaxExtraBytes - messageOverhead
	add := func(e *entry) {
		if e.recordSize()+maxBeatBytes > free {
			return
		}
		m.Records = append(m.Records, e.rec)
		free -= e.recordSize()
		if e.spreads() {
			s.addBeat(now, m, e, &free, 0)
		}
	}
	add(s.self)
	worthSending := func(e *entry) bool { return e.status == live || e.hadLease() }
	for _, e := range s.others(worthSending, func(_, _ *entry) int { return 0 }) {
		add(e)
	}
	return m
}

// others returns the nodes other than this one that keep selects, by order and then by
// handle. The result is valid until the next call.
func (s *Set) others(keep func(*entry) bool, order func(a, b *entry) int) []*entry {
	clear(s.rows) // do not keep forgotten nodes in memory
	s.rows = s.rows[:0]
	for _, e := range s.nodes {
		if e != s.self && keep(e) {
			s.rows = append(s.rows, e)
		}
	}
	slices.SortFunc(s.rows, func(a, b *entry) int { return cmp.Or(order(a, b), cmp.Compare(a.handle, b.handle)) })
	return s.rows
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
func (s *Set) addBeat(now time.Time, m *Message, e *entry, free *int, recipients int) bool {
	b := Beat{
		Handle: e.handle, Seq: e.seq, State: e.state, Version: e.rec.Version,
		Age: now.Sub(e.renewed), Clock: e.clock, Load: e.load, Table: e.table,
	}
	size := beatBytes(&b, s.self.table)
	if size > *free {
		return false
	}
	*free -= size
	m.Beats = append(m.Beats, b)
	e.beatsSent += recipients
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
