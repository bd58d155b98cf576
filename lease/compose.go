package lease

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// messageOverhead is more than a message without beats, records and wants takes.
const messageOverhead = 48

// How often a node passes one piece of news on. After 3·log2(n) random
// recipients per node, the chance that a given node heard it from nobody is
// far below one in a million even if every fifth packet is lost. Records are
// longer, and are asked for where they are missing.
func (s *Set) beatCopies() int   { return 3 * bits.Len(uint(len(s.byID))) }
func (s *Set) recordCopies() int { return bits.Len(uint(len(s.byID))) }

// Compose returns a digest of at most budget bytes once encoded, which the
// caller sends to the given number of peers: the own beat, new records in up to
// half of the space, then the beats that were passed on least, freshest first.
// A farewell is passed on like any other beat. Compose returns nil when there is
// no news: every beat and record was passed on often enough, or when not even
// the own beat fits. O(n log n).
func (s *Set) Compose(now time.Time, budget, recipients int) *Message {
	news := s.self.beats < s.beatCopies()
	room := budget - messageOverhead
	m := s.message(now)
	if !s.addBeat(now, m, s.self, &room, recipients) {
		return nil // the sizes below count on its table digest
	}
	if s.addRecords(m, room/2, &room, recipients) {
		news = true
	}
	rows := s.rows[:0]
	for _, e := range s.byID {
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

// addRecords adds the records that were passed on least, in space bytes of the
// room, and reports whether there were any.
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
		add(s.self) // nobody else can tell of it first
	}
	fresh := s.rows[:0]
	for _, e := range s.byID {
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

// Sync returns everything that is live, for a joining node or an anti-entropy
// exchange. Of the nodes whose leases were over lately it tells the records, too,
// and the farewells of those that said one: they mean something to whoever holds
// an earlier life of such a node for live, and to a later life, which learns that
// it has to outbid them if its clock has been set back. A farewell states its
// age, so that all forget it at about the same time. There is room left for Extra.
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
	for _, e := range s.byID {
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

// hadLease reports whether this set saw a beat of e. News of a lease that was
// over before is not passed on, or it would go round for ever.
func (e *entry) hadLease() bool { return e.seq > 0 }

// left reports whether e said farewell.
func (e *entry) left() bool { return e.status == retired && e.state == Left }

// spreads reports whether the latest beat of e is for others to know: e is live,
// or it is over by its own word.
func (e *entry) spreads() bool { return e.status == live || e.left() }

func (s *Set) message(now time.Time) *Message {
	return &Message{Settings: s.params.Settings, From: s.self.handle, SentAt: now}
}

// addBeat adds the beat of e if there is room for it.
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
	copies := uint64(max(1, recipients)) // what is asked for goes to one, and spreads nothing
	if e == s.self {
		s.stats.BeatsSent += copies
	} else {
		s.stats.BeatsRelayed += copies
	}
	return true
}

const maxBeatBytes = 48

// beatBytes is the encoded size of b.
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
