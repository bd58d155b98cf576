package lease

import (
	"math/bits"
	"time"
)

// messageOverhead is an upper bound for a message without heartbeats, records, ages and
// pulls. Founders, a challenge or an echo, Extra and Handoff come on top of it.
const messageOverhead = 92

// How often a node sends one row, age or record. After 3·log2(n) random recipients per
// node, the chance that a given node has not received it is far below one in a
// million, even at a packet loss of 20 %. Records are longer, and nodes request the
// records that they miss.
func (s *Set) rowCopies() int    { return 3 * bits.Len(uint(len(s.nodes))) }
func (s *Set) ageCopies() int    { return s.rowCopies() }
func (s *Set) recordCopies() int { return bits.Len(uint(len(s.nodes))) }

// maxRows is more rows than a packet holds.
const maxRows = 100

// maxPullLeases is how many expiring leases one message pulls. While a tenth of a
// thousand nodes is dead, that is all of them.
const maxPullLeases = 100

// Compose returns messages of at most budget encoded bytes each, for the given number
// of recipients each: as many as the ages of all leases take. Each has this node's
// heartbeat. Space goes to new records, then to failure reports, then to rows with news, then to
// ages, then to the rest of the rows, least sent ones first; and to the leases that are
// about to expire, which the recipients may know better. Compose returns nothing if there
// is no news, because everything was sent often enough, or if not even this node's heartbeat
// fits. O(nodes).
func (s *Set) Compose(now time.Time, budget, recipients int) (messages []*Message) {
	for range s.agesRounds(budget) {
		if m := s.compose(now, budget, recipients); m != nil {
			messages = append(messages, m)
		}
	}
	return messages
}

func (s *Set) compose(now time.Time, budget, recipients int) *Message {
	news := s.self.agesSent < int32(s.ageCopies())
	free := budget - messageOverhead
	m := s.message(now)
	if !s.addHeartbeat(m, s.self, &free, recipients) {
		return nil // the row sizes below assume its table digest
	}
	s.self.agesSent += int32(recipients)
	news = s.addCordons(m, &free, recipients) || news
	news = s.addRecords(m, free/3, &free, recipients) || news
	news = s.addFailureReports(now, m, free/2, &free, recipients) || news
	rows := s.dueRows(now)
	some := free / 3
	rest := s.addRows(m, rows, &some, recipients)
	free -= free/3 - some
	news = len(rest) < len(rows) || news
	news = s.addPullLeases(now, m, &free) || news
	news = s.addAges(m, &free, recipients) || news
	news = len(s.addRows(m, rest, &free, recipients)) < len(rest) || news
	if !news {
		return nil
	}
	return m
}

// spread remembers that there was nothing to send when this node last looked.
type spread struct{ noRows, noRecords bool }

// rowNews has the row of e sent again. News that is part of bucket digests is sent until
// other nodes show that they have it.
func (s *Set) rowNews(e *entry, inDigest bool) {
	e.rowsSent, e.inDigest = 0, inDigest
	s.spread.noRows = false
}

// recordNews has the record of e sent again.
func (s *Set) recordNews(e *entry) {
	e.recordsSent = 0
	s.spread.noRecords = false
}

// acknowledged notes that another node knows the same of the node as this one. In a large set,
// that counts as three copies: a rumor ends when it meets nodes that know it, as in
// Demers et al., "Epidemic Algorithms for Replicated Database Maintenance" (1987). A
// node that missed the news is repaired.
func (v *vitals) acknowledged() {
	const enough = 1 << 20 // more than any news is sent; without a bound the counts overflow after years
	if v.recordsSent < enough {
		v.recordsSent += 3
	}
	if v.inDigest && v.rowsSent < enough {
		v.rowsSent += 3
	}
}

// dueRows returns the nodes whose rows have news that was not sent often enough.
func (s *Set) dueRows(now time.Time) []*entry {
	if s.spread.noRows {
		return nil
	}
	copies, oldest := int32(s.rowCopies()), s.time.at(now)-stamps(s.params.TTL)
	s.candidates = s.candidates[:0]
	for i, v := range s.vitals {
		if v.rowsSent < copies && v.at >= oldest && v != s.self.vitals {
			s.consider(candidate{sent: v.rowsSent, at: s.live[i].rowAt, handle: s.order[i], place: i})
		}
	}
	departed := s.departed()
	for i, e := range departed {
		if e.rowsSent < copies && e.at >= oldest {
			s.consider(candidate{sent: e.rowsSent, at: e.rowAt, handle: e.handle, place: len(s.live) + i})
		}
	}
	rows := s.selected(departed)
	s.spread.noRows = len(rows) == 0
	return rows
}

// addRows adds rows while they fit, and returns the others.
func (s *Set) addRows(m *Message, rows []*entry, free *int, recipients int) []*entry {
	for i, e := range rows {
		if !s.addHeartbeat(m, e, free, recipients) {
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
			e.recordsSent += int32(recipients)
			space -= size
			*free -= size
		}
	}
	if s.self.recordsSent < int32(s.recordCopies()) {
		space = max(space, min(*free, MaxRecordBytes)) // only this node can be the first to send it
		add(s.self)
	}
	if !s.spread.noRecords {
		copies := int32(s.recordCopies())
		s.candidates = s.candidates[:0]
		for i, v := range s.vitals {
			if v.recordsSent < copies && v != s.self.vitals {
				s.consider(candidate{sent: v.recordsSent, handle: s.order[i], place: i})
			}
		}
		records := s.selected(nil)
		s.spread.noRecords = len(records) == 0
		for _, e := range records {
			add(e)
		}
	}
	return len(m.Records) > 0
}

// addPullLeases pulls the leases that expire soon unless someone knows a later heartbeat:
// O(1) if there is none.
func (s *Set) addPullLeases(now time.Time, m *Message, free *int) bool {
	pullAt := s.params.TTL - s.params.TTL/4
	if deadline, ok := s.NextDeadline(); !ok || deadline.Sub(now) > s.params.TTL-pullAt {
		return false
	}
	space, latest := *free/3, s.time.at(now)-stamps(pullAt)
	for i := range s.vitals {
		next := (s.pullTurn + i) % len(s.vitals)
		v := s.vitals[next]
		if v == s.self.vitals || v.renewed() >= latest {
			continue
		}
		if len(m.PullLeases) >= maxPullLeases || space < handleBytes {
			s.pullTurn = next // begin here in the next message
			break
		}
		m.PullLeases = append(m.PullLeases, s.order[next])
		space -= handleBytes
		*free -= handleBytes
	}
	return len(m.PullLeases) > 0
}

// Sync returns all live nodes, for a joining node or an anti-entropy exchange. It
// also has the records of recently ended leases, and their leave messages. A receiver
// that takes an earlier incarnation of such a node for live needs them; so does a
// later process of the node, which has to outbid them if its clock was set back. A
// leave message states its age, so that all sets forget it at about the same time. The
// message leaves room for Extra.
func (s *Set) Sync(now time.Time) *Message {
	m := s.message(now)
	free := MaxMessageBytes - MaxExtraBytes - 2*messageOverhead // with founders and a challenge
	add := func(e *entry) {
		if e.recordSize()+maxHeartbeatBytes > free {
			return
		}
		m.Records = append(m.Records, e.rec)
		free -= e.recordSize()
		if e.spreads() {
			s.addHeartbeat(m, e, &free, 0)
		}
	}
	m.Cordons = s.cordons.all
	free -= MaxCordons * maxCordonBytes
	add(s.self)
	for _, e := range s.nodes {
		if e != s.self && (e.status == live || e.hadLease()) {
			add(e)
		}
	}
	for _, e := range s.reported {
		s.addReportsAgainst(m, e, &free)
	}
	return m
}

// hadLease reports whether this set received a heartbeat of e. A lease that had ended
// before is not relayed, or it would circulate without end.
func (e *entry) hadLease() bool { return e.rowAt != 0 }

// left reports whether e sent a leave message.
func (e *entry) left() bool { return e.status == retired && e.state == Left }

// spreads reports whether the latest heartbeat of e is relayed: e is live, or the heartbeat is a
// leave message.
func (e *entry) spreads() bool { return e.status == live || e.left() }

func (s *Set) message(now time.Time) *Message {
	at := s.time.at(now)
	if s.missing {
		s.missed = at
	}
	return &Message{
		Settings: s.params.Settings, From: s.self.handle,
		Stamp: at, Provisional: s.time.provisional, Missed: s.missed, SentAt: now,
		Cordoned: s.cordons.digest,
	}
}

// addHeartbeat adds the row of e if it fits.
func (s *Set) addHeartbeat(m *Message, e *entry, free *int, recipients int) bool {
	b := Heartbeat{
		Handle: e.handle, At: e.rowAt, Renewed: e.at, State: e.state, Version: e.rec.Version,
		Clock: e.clock, Load: e.load, Table: e.table, rest: e.rest(),
	}
	size := rowBytes(&b, m.Stamp, s.self.table)
	if size > *free {
		return false
	}
	*free -= size
	m.Heartbeats = append(m.Heartbeats, b)
	e.rowsSent += int32(recipients)
	copies := uint64(max(1, recipients)) // an answer goes to one node and does not count as relayed
	if e == s.self {
		s.stats.HeartbeatsSent += copies
	} else {
		s.stats.HeartbeatsRelayed += copies
	}
	return true
}

const maxHeartbeatBytes = maxRowFields + maxRestBytes

func (e *entry) recordSize() int {
	if e.size == 0 {
		e.size = int32(recordBytes(e.rec))
	}
	return int(e.size)
}
