package lease

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// messageOverhead is an upper bound for a message without beats, records, ages and
// wants.
const messageOverhead = 96

// How often a node sends one row, age or record. After 3·log2(n) random recipients per
// node, the chance that a given node has not received it is far below one in a
// million, even at a packet loss of 20 %. Records are longer, and nodes request the
// records that they miss.
func (s *Set) rowCopies() int    { return 3 * bits.Len(uint(len(s.nodes))) }
func (s *Set) ageCopies() int    { return s.rowCopies() }
func (s *Set) recordCopies() int { return bits.Len(uint(len(s.nodes))) }

// maxRows is more rows than a packet holds.
const maxRows = 100

// maxAsks is how many expiring leases one message asks for. While a tenth of a
// thousand nodes is dead, that is all of them.
const maxAsks = 100

// Compose returns messages of at most budget encoded bytes each, for the given number
// of recipients each: as many as the ages of all leases take. Each has this node's
// beat. Space goes to new records, then to accusations, then to rows with news, then to ages, then to the
// rest of the rows, least sent ones first; and to the leases that are about to expire,
// which the recipients may know better. Compose returns nothing if there is no news,
// because everything was sent often enough, or if not even this node's beat fits.
// O(n log n).
func (s *Set) Compose(now time.Time, budget, recipients int) (messages []*Message) {
	for range s.agesRounds(budget) {
		if m := s.compose(now, budget, recipients); m != nil {
			messages = append(messages, m)
		}
	}
	return messages
}

func (s *Set) compose(now time.Time, budget, recipients int) *Message {
	news := s.self.agesSent < s.ageCopies()
	free := budget - messageOverhead
	m := s.message(now)
	if !s.addBeat(m, s.self, &free, recipients) {
		return nil // the row sizes below assume its table digest
	}
	s.self.agesSent += recipients
	news = s.addEvictions(m, &free, recipients) || news
	news = s.addRecords(m, free/3, &free, recipients) || news
	news = s.addAccusations(now, m, free/2, &free, recipients) || news
	rows := s.dueRows(now)
	some := free / 3
	rest := s.addRows(m, rows, &some, recipients)
	free -= free/3 - some
	news = len(rest) < len(rows) || news
	news = s.addAsks(now, m, &free) || news
	news = s.addAges(m, &free, recipients) || news
	news = len(s.addRows(m, rest, &free, recipients)) < len(rest) || news
	if !news {
		return nil
	}
	return m
}

// spread remembers that there was nothing to send when this node last looked.
type spread struct{ noRows, noRecords bool }

// rowNews has the row of e sent again. News that is part of digests is sent until other
// nodes show that they have it.
func (s *Set) rowNews(e *entry, inDigest bool) {
	e.rowsSent, e.inDigest = 0, inDigest
	s.spread.noRows = false
}

// recordNews has the record of e sent again.
func (s *Set) recordNews(e *entry) {
	e.recordsSent = 0
	s.spread.noRecords = false
}

// confirmed notes that another node holds the same of the node as this one. In a large set,
// that counts as three copies: a rumor ends when it meets nodes that know it, as in
// Demers et al., "Epidemic Algorithms for Replicated Database Maintenance" (1987). A
// node that missed the news is repaired.
func (v *vitals) confirmed() {
	v.recordsSent += 3
	if v.inDigest {
		v.rowsSent += 3
	}
}

// dueRows returns the nodes whose rows have news that was not sent often enough.
func (s *Set) dueRows(now time.Time) []*entry {
	if s.spread.noRows {
		return nil
	}
	copies, oldest := s.rowCopies(), s.time.at(now)-stamps(s.params.TTL)
	due := func(e *entry) bool { return e.rowsSent < copies && e.at >= oldest && e.spreads() }
	rows := s.others(maxRows, due, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.rowsSent, b.rowsSent), cmp.Compare(b.rowAt, a.rowAt))
	})
	s.spread.noRows = len(rows) == 0
	return rows
}

// addRows adds rows while they fit, and returns the others.
func (s *Set) addRows(m *Message, rows []*entry, free *int, recipients int) []*entry {
	for i, e := range rows {
		if !s.addBeat(m, e, free, recipients) {
			return rows[i:]
		}
	}
	return nil
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
		space = max(space, min(*free, MaxRecordBytes)) // only this node can be the first to send it
		add(s.self)
	}
	if !s.spread.noRecords {
		copies := s.recordCopies()
		due := func(e *entry) bool { return e.recordsSent < copies && e.status == live }
		records := s.others(maxRows, due, func(a, b *entry) int { return cmp.Compare(a.recordsSent, b.recordsSent) })
		s.spread.noRecords = len(records) == 0
		for _, e := range records {
			add(e)
		}
	}
	return len(m.Records) > 0
}

// addAsks adds the leases that expire soon unless someone knows a later beat: O(1)
// unless there is one.
func (s *Set) addAsks(now time.Time, m *Message, free *int) bool {
	asksAt := s.params.TTL - s.params.TTL/4
	if deadline, ok := s.NextDeadline(); !ok || deadline.Sub(now) > s.params.TTL-asksAt {
		return false
	}
	space, latest := *free/3, s.time.at(now)-stamps(asksAt)
	for i := range s.vitals {
		next := (s.askTurn + i) % len(s.vitals)
		v := s.vitals[next]
		if v == s.self.vitals || v.renewed() >= latest {
			continue
		}
		if len(m.Asks) >= maxAsks || space < handleBytes {
			s.askTurn = next // begin here in the next message
			break
		}
		m.Asks = append(m.Asks, s.order[next])
		space -= handleBytes
		*free -= handleBytes
	}
	return len(m.Asks) > 0
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
			s.addBeat(m, e, &free, 0)
		}
	}
	m.Evictions = s.evictions.all
	free -= MaxEvictions * maxEvictionBytes
	add(s.self)
	for _, e := range s.nodes {
		if e != s.self && (e.status == live || e.hadLease()) {
			add(e)
		}
	}
	for _, e := range s.accused {
		s.addProof(m, e, &free)
	}
	return m
}

// others returns the first nodes by order, and then by handle, of those other than this
// one that keep selects, at most as many as stated. The result is valid until the
// next call. O(nodes), mostly.
func (s *Set) others(most int, keep func(*entry) bool, order func(a, b *entry) int) []*entry {
	clear(s.rows) // do not keep forgotten nodes in memory
	s.rows = s.rows[:0]
	before := func(a, b *entry) int { return cmp.Or(order(a, b), cmp.Compare(a.handle, b.handle)) }
	for _, e := range s.nodes {
		full := len(s.rows) >= most
		if e == s.self || !keep(e) || (full && before(e, s.rows[most-1]) >= 0) {
			continue
		}
		if full {
			s.rows = s.rows[:most-1]
		}
		i, _ := slices.BinarySearchFunc(s.rows, e, before)
		s.rows = slices.Insert(s.rows, i, e)
	}
	return s.rows
}

// hadLease reports whether this set received a beat of e. A lease that had ended
// before is not relayed, or it would circulate without end.
func (e *entry) hadLease() bool { return e.rowAt != 0 }

// left reports whether e sent a farewell.
func (e *entry) left() bool { return e.status == retired && e.state == Left }

// spreads reports whether the latest beat of e is relayed: e is live, or the beat is a
// farewell.
func (e *entry) spreads() bool { return e.status == live || e.left() }

func (s *Set) message(now time.Time) *Message {
	at := s.time.at(now)
	if s.missing {
		s.missed = at
	}
	return &Message{
		Settings: s.params.Settings, From: s.self.handle,
		Stamp: at, Provisional: s.time.provisional, Missed: s.missed, SentAt: now,
		Evicted: s.evictions.digest,
	}
}

// addBeat adds the row of e if it fits.
func (s *Set) addBeat(m *Message, e *entry, free *int, recipients int) bool {
	b := Beat{
		Handle: e.handle, At: e.rowAt, Renewed: e.at, State: e.state, Version: e.rec.Version,
		Clock: e.clock, Load: e.load, Table: e.table, rest: e.rest,
	}
	s.row = appendRow(s.row[:0], &b, m.Stamp, s.self.table)
	size := len(s.row)
	if size > *free {
		return false
	}
	*free -= size
	m.Beats = append(m.Beats, b)
	e.rowsSent += recipients
	copies := uint64(max(1, recipients)) // an answer goes to one node and does not count as relayed
	if e == s.self {
		s.stats.BeatsSent += copies
	} else {
		s.stats.BeatsRelayed += copies
	}
	return true
}

const maxBeatBytes = 48 + maxRestBytes

func (e *entry) recordSize() int {
	if e.size == 0 {
		e.size = recordBytes(e.rec)
	}
	return e.size
}
