package lease_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

// composeOne returns the next message of s. Use it only for sets that are small enough for the ages of all leases to
// fit into one message.
func composeOne(s *lease.Set, now time.Time, recipients int) *lease.Message {
	if messages := s.Compose(now, 1400, recipients); messages != nil {
		return messages[0]
	}
	return nil
}

// fullMessage returns the largest message that fits into a packet. It contains no records, but the load of every node
// has changed.
func fullMessage(s *lease.Set) *lease.Message {
	for s.Compose(epoch, 1400, 100) != nil { // all news is sent
	}
	changeLoads(s, epoch)
	return composeOne(s, epoch, 100)
}

// changeLoads makes s receive a new load of every node.
func changeLoads(s *lease.Set, now time.Time) {
	m := messageFrom(now, s.View().Members[1].Record, nil)
	for _, other := range s.View().Members[1:] {
		b := sent(other.Record, now)
		b.Load = other.Load + 1
		m.Heartbeats = append(m.Heartbeats, b)
	}
	s.Apply(now, m)
}

// No encoded message exceeds its budget.
func TestComposeKeepsItsBudget(t *testing.T) {
	odd := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64())
	rapid.Check(t, func(t *rapid.T) {
		table := rapid.Uint32Range(0, 2)
		self := rec("a", 1)
		self.Zone = rapid.StringN(0, -1, lease.MaxZoneBytes).Draw(t, "zone")
		s := newSet(self)
		s.Heartbeat(epoch, odd.Draw(t, "load"), table.Draw(t, "table"))
		for i := range rapid.IntRange(0, 60).Draw(t, "peers") {
			r := rec(lease.NodeID(fmt.Sprintf("n%d", i)), 1)
			r.Labels = manyLabels(rapid.IntRange(0, 8).Draw(t, "labels"), 40)
			b := sent(r, epoch.Add(-time.Duration(rapid.IntRange(0, 6000).Draw(t, "age"))*ms))
			b.Table, b.Load = table.Draw(t, "its table"), max(0, odd.Draw(t, "its load"))
			b.Clock = -time.Duration(max(0, odd.Draw(t, "clock")))
			s.Apply(epoch, messageFrom(epoch, r, []lease.Heartbeat{b}, r))
		}
		budget := rapid.IntRange(0, 3000).Draw(t, "budget")
		grown := manyLabels(8, rapid.IntRange(0, 40).Draw(t, "later labels"))
		for round := range 100 {
			messages := s.Compose(epoch.Add(time.Second), budget, 1)
			if messages == nil {
				return
			}
			if round%20 == 10 { // records grow after the set has measured them
				s.Update(func(r *lease.Record) { r.Labels = grown })
				for _, e := range s.View().Members {
					s.Apply(epoch, messageFrom(epoch, e.Record, nil, with(e.Record, func(r *lease.Record) { r.Labels = grown })))
				}
			}
			for _, m := range messages {
				wire := lease.Encode(m)
				if len(wire) > budget {
					t.Fatalf("%d heartbeats, %d records, %d ages: %d bytes of %d", len(m.Heartbeats), len(m.Records), len(m.Ages), len(wire), budget)
				}
				if _, err := lease.Decode(wire); err != nil {
					t.Fatal(err)
				}
				if m.Heartbeats[0].Handle != s.Handle() {
					t.Fatal("the own heartbeat does not come first")
				}
			}
		}
	})
}

// A message contains another row if the row fits. A message with a record that has grown omits the rows that
// no longer fit.
func TestComposeFillsItsBudget(t *testing.T) {
	s := crowd(500)
	m := fullMessage(s)
	size := len(lease.Encode(m))
	if size < 1400-lease.MessageOverhead-24 || size > 1400 {
		t.Errorf("%d heartbeats: %d bytes of 1400", len(m.Heartbeats), size)
	}
	t.Logf("%d rows and %d buckets in %d bytes", len(m.Heartbeats), len(m.Ages), size)

	s.Update(func(r *lease.Record) { r.Labels = manyLabels(10, 40) })
	m = s.Compose(epoch, 1400, 1)[0]
	size = len(lease.Encode(m))
	if len(m.Records) != 1 || size > 1400 {
		t.Errorf("%d records, %d heartbeats: %d bytes of 1400", len(m.Records), len(m.Heartbeats), size)
	}
}

// If there is more news than fits, Compose sends every row, age and record about equally often, and often
// enough. Then Compose returns nothing until there is more news.
func TestComposeIsFair(t *testing.T) {
	const recipients = 3
	s := crowd(200)
	rows, ages, records := make(map[lease.Handle]int), make(map[lease.Handle]int), make(map[lease.Handle]int)
	counts := func(sent map[lease.Handle]int) (least, spread int) {
		least, most := math.MaxInt, 0
		for _, h := range s.Handles() {
			if h != s.Handle() {
				least, most = min(least, sent[h]), max(most, sent[h])
			}
		}
		return least, most - least
	}
	messages := 0
	for m := composeOne(s, epoch, recipients); m != nil; m = composeOne(s, epoch, recipients) {
		messages++
		for i := range m.Heartbeats {
			rows[m.Heartbeats[i].Handle] += recipients
		}
		for i := range m.Ages {
			for _, h := range inBucket(s, m.Ages[i].BucketID) {
				ages[h] += recipients
			}
		}
		for _, r := range m.Records {
			records[r.Handle()] += recipients
		}
		for what, sent := range map[string]map[lease.Handle]int{"rows": rows, "ages": ages, "records": records} {
			if _, spread := counts(sent); spread > recipients {
				t.Fatalf("message %d: %s differ by %d", messages, what, spread)
			}
		}
		if messages > 10_000 {
			t.Fatal("Compose never returns nil")
		}
	}
	for what, tc := range map[string]struct {
		sent map[lease.Handle]int
		want int
	}{"rows": {rows, s.RowCopies()}, "ages": {ages, s.RowCopies()}, "records": {records, s.RecordCopies()}} {
		if least, _ := counts(tc.sent); least < tc.want {
			t.Errorf("%s: %d copies, want %d", what, least, tc.want)
		}
	}
	if s.Compose(epoch, 1400, recipients) != nil {
		t.Error("a message without news")
	}

	other := s.View().Members[100]
	now := epoch
	for _, tc := range []struct {
		name      string
		heartbeat func(b *lease.Heartbeat)
		record    *lease.Record
		copies    int // of the row
	}{
		{"the same again", func(*lease.Heartbeat) {}, nil, 0}, // the ages contain this news
		{"another load", func(b *lease.Heartbeat) { b.Load++ }, nil, s.RowCopies()},
		{"another table", func(b *lease.Heartbeat) { b.Table++ }, nil, 0}, // with 200 nodes, the ages contain this news, too
		{"a new record", func(*lease.Heartbeat) {}, heavier(other.Record), s.RowCopies()},
		{"draining", func(b *lease.Heartbeat) { b.State = lease.Draining }, nil, s.RowCopies()},
		{"left", func(b *lease.Heartbeat) { b.State = lease.Left }, nil, s.RowCopies()},
	} {
		now = now.Add(200 * ms) // no lease is old enough to be pulled
		heartbeat := sent(other.Record, now)
		known := member(s, other.ID)
		heartbeat.Load, heartbeat.Table, heartbeat.Version = known.Load, known.Table, known.Version
		tc.heartbeat(&heartbeat)
		m := messageFrom(now, other.Record, []lease.Heartbeat{heartbeat})
		if tc.record != nil {
			m.Records = []*lease.Record{tc.record}
		}
		s.Apply(now, m)
		copies, sent := 0, 0
		for m := composeOne(s, now, recipients); m != nil; m = composeOne(s, now, recipients) {
			if sent += recipients; sent > 1000 {
				t.Fatalf("%s: Compose never returns nil: %+v", tc.name, m)
			}
			for _, b := range m.Heartbeats[1:] {
				if b.Handle != other.Handle || b.State != heartbeat.State || b.Load != heartbeat.Load {
					t.Fatalf("%s: a row of another node, or an old one: %+v", tc.name, b)
				}
				copies += recipients
			}
			if hasRecord := len(m.Records) > 0; hasRecord != (tc.record != nil && sent <= s.RecordCopies()+recipients-1) {
				t.Fatalf("%s: %d records in the message for recipient %d", tc.name, len(m.Records), sent)
			}
		}
		if sent == 0 || copies < tc.copies || copies >= tc.copies+recipients {
			t.Errorf("%s: %d messages with %d copies of the row, want %d", tc.name, sent/recipients, copies, tc.copies)
		}
	}
}

// Compose sends each heartbeat of this node to as many recipients as the row of another node.
func TestOwnHeartbeatIsSentOften(t *testing.T) {
	for _, n := range []int{2, 3, 100} {
		s := crowd(n)
		for s.Compose(epoch, 1400, 1) != nil {
		}
		s.Heartbeat(epoch.Add(time.Second), 0, 0)
		sent := 0
		for s.Compose(epoch.Add(time.Second), 1400, 1) != nil {
			sent++
		}
		if sent != s.RowCopies() {
			t.Errorf("%d nodes: %d copies, want %d", n, sent, s.RowCopies())
		}
	}
}

// If Compose has sent several heartbeats equally often, it sends the newest first.
func TestComposeSendsTheFreshestFirst(t *testing.T) {
	s := newSet(rec("a", 1))
	for i, age := range []time.Duration{3, 1, 2} {
		r := rec(lease.NodeID(fmt.Sprintf("n%d", i)), 1)
		s.Apply(epoch, messageFrom(epoch, r, []lease.Heartbeat{sent(r, epoch.Add(-age*time.Second))}, r))
	}
	m := s.Compose(epoch, 1400, 1)[0]
	for i, want := range []time.Duration{0, 1, 2, 3} {
		if age := millis(m.Stamp - m.Heartbeats[i].At); age != want*time.Second {
			t.Errorf("row %d is %v old", i, age)
		}
	}
}

// Messages contain only live nodes and recent leave messages, including a leave message that is the only heartbeat a
// set received of a node.
func TestComposeLeavesOutTheDead(t *testing.T) {
	now := epoch.Add(testParams.TTL + ms)
	s := newSet(rec("a", 1))
	names := map[lease.Handle]lease.NodeID{s.Handle(): "a"}
	node := func(id lease.NodeID) *lease.Record {
		r := rec(id, 1)
		names[r.Handle()] = id
		return r
	}
	s.Apply(epoch, hello(epoch, node("dead")))
	s.Apply(epoch, messageFrom(epoch, node("unborn"), nil, node("unborn")))
	s.Apply(epoch, hello(epoch, node("left long ago")))
	s.Apply(epoch, leave(epoch, node("left long ago")))
	s.Apply(now, hello(now, node("left")))
	s.Apply(now, leave(now, node("left")))
	s.Apply(now, messageFrom(now, node("stillborn"), []lease.Heartbeat{as(sent(node("stillborn"), now), lease.Left)}, node("stillborn")))
	s.Apply(now, leave(now, node("unknown")))
	expect := func(when string) {
		t.Helper()
		m := s.Compose(now, 1400, 1)[0]
		var records, rows []string
		for _, r := range m.Records {
			records = append(records, string(r.ID))
		}
		for _, b := range m.Heartbeats {
			rows = append(rows, fmt.Sprintf("%s %v", names[b.Handle], b.State))
		}
		slices.Sort(records)
		slices.Sort(rows)
		want := []string{"a"}
		if when == "before Expire" {
			want = []string{"a", "dead"} // harmless without its heartbeat
		}
		if !slices.Equal(records, want) {
			t.Errorf("%s: records %v", when, records)
		}
		if want := []string{"a active", "left left", "stillborn left"}; !slices.Equal(rows, want) {
			t.Errorf("%s: rows %v", when, rows)
		}
	}
	expect("before Expire")
	s.Expire(now)
	expect("after Expire")
}

func TestAnswer(t *testing.T) {
	s := crowd(60)
	dead := rec("dead", 1)
	s.Apply(epoch.Add(-testParams.TTL), hello(epoch.Add(-testParams.TTL), dead))
	s.Expire(epoch.Add(ms))
	var records []lease.Handle
	for _, m := range s.View().Members {
		records = append(records, m.Handle)
	}
	want := len(records)
	records = append(records, dead.Handle(), 4711)
	for i, budget := range []int{400, 1400, 60_000} {
		ask := messageFrom(epoch, s.View().Members[i+1].Record, nil)
		ask.PullRecords = records
		got := make(map[lease.NodeID]bool)
		for _, m := range answer(s, epoch, ask, budget) {
			if size := len(lease.Encode(m)); size > budget {
				t.Errorf("budget %d: %d records in %d bytes", budget, len(m.Records), size)
			}
			newcomer := newSet(rec("z", 1))
			newcomer.Apply(epoch, carry(t, m))
			for _, r := range m.Records {
				got[r.ID] = true
				if member(newcomer, r.ID) == nil {
					t.Fatalf("budget %d: the record of %s came without its heartbeat", budget, r.ID)
				}
			}
		}
		if len(got) != want {
			t.Errorf("budget %d: %d of %d answered", budget, len(got), want)
		}
	}
	for name, from := range map[string]*lease.Record{"not live": dead, "unknown": rec("x", 1)} {
		ask := messageFrom(epoch, from, nil)
		ask.PullRecords = records
		for _, m := range answer(s, epoch, ask, 1400) {
			if len(m.Records) > 0 {
				t.Errorf("a sender that is %s gets %d records", name, len(m.Records))
			}
		}
	}
	if m := carry(t, s.Request(epoch, records, nil)); !slices.Equal(m.PullRecords, records) || m.From != s.Handle() {
		t.Errorf("Request over the wire: %+v", m)
	}
}

// A full sync of the largest possible set fits into a message unless most records are much longer than usual.
func TestSyncFits(t *testing.T) {
	for name, tc := range map[string]struct {
		labels, most int
		api          string
	}{
		"usual records":       {0, lease.MaxNodes, "https://10.0.0.1:8401"},
		"the longest records": {lease.MaxLabels, 4000, strings.Repeat("x", 40)},
	} {
		s, labels := newSet(rec("a", 1)), manyLabels(tc.labels, 40)
		flood(s, epoch, s.Self(), lease.MaxNodes-1, func(i int, m *lease.Message) {
			r := rec(lease.NodeID(fmt.Sprintf("%s%04d", strings.Repeat("n", 50), i)), lease.MaxIncarnation)
			r.Labels, r.APIAddr = labels, tc.api
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			if tc.labels > 0 {
				r.Keys, r.Weight, r.Unhealthy = strings.Repeat("k", lease.MaxKeysBytes), lease.MaxWeight, true
				r.RecentReturns, r.FlappingUntil, r.Drains = lease.MaxStamp, lease.MaxStamp, lease.MaxStamp
			}
			m.Records, m.Heartbeats = append(m.Records, r), append(m.Heartbeats, sent(r, epoch))
		})
		if m := carry(t, s.Sync(epoch)); len(m.Records) < tc.most || len(m.Heartbeats) != len(m.Records) {
			t.Errorf("%s: %d records, %d heartbeats", name, len(m.Records), len(m.Heartbeats))
		}
	}
}

// Rows that were not sent in time are due again with the next whole heartbeat.
func TestRowsBecomeDueAgain(t *testing.T) {
	s := newSet(rec("a", 1))
	now := epoch.Add(testParams.TTL + 100*ms)
	for i := range 100 {
		r := rec(lease.NodeID(fmt.Sprintf("n%03d", i)), 1)
		s.Apply(epoch, hello(epoch, r))
	}
	s.Compose(now, 64<<10, 1) // all rows are too old
	for i := range 100 {
		r := rec(lease.NodeID(fmt.Sprintf("n%03d", i)), 1)
		s.Apply(now, messageFrom(now, r, []lease.Heartbeat{sent(r, now)}))
	}
	if rows := s.Compose(now, 64<<10, 1)[0].Heartbeats; len(rows) != 1+100 {
		t.Errorf("%d rows are sent", len(rows))
	}
}
