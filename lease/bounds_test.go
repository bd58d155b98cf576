package lease

import (
	"fmt"
	"testing"
	"time"
)

// flood makes a live member send n rows, in messages of 1,000.
func flood(s *Set, now time.Time, from *Record, n int, row func(i int, m *Message)) {
	for i := 0; i < n; {
		m := messageFrom(now, from, nil)
		for ; i < n && len(m.Heartbeats)+len(m.Records)+len(m.Ages) < 1000; i++ {
			row(i, m)
		}
		s.Apply(now, m)
	}
}

// For any input from a member, memory stays within a small multiple of MaxNodes, and
// known nodes stay live.
func TestFloodsAreBounded(t *testing.T) {
	const n = 5 * MaxNodes
	outsider := func(i int) *Record { return rec(NodeID(fmt.Sprintf("x%d", i)), 1) }
	for name, row := range map[string]func(i int, m *Message){
		"records": func(i int, m *Message) { m.Records = append(m.Records, outsider(i)) },
		"leave messages": func(i int, m *Message) {
			m.Records = append(m.Records, outsider(i))
			m.Heartbeats = append(m.Heartbeats, outsider(i).sent(epoch).as(Left))
		},
		"leave messages of unknown nodes": func(i int, m *Message) {
			m.Heartbeats = append(m.Heartbeats, Heartbeat{Handle: Handle(i), At: stampAt(epoch), State: Left})
		},
		"nodes": func(i int, m *Message) {
			m.Records = append(m.Records, outsider(i))
			m.Heartbeats = append(m.Heartbeats, outsider(i).sent(epoch))
		},
		"incarnations": func(i int, m *Message) {
			r := rec("x", uint64(i))
			m.Records = append(m.Records, r)
			m.Heartbeats = append(m.Heartbeats, r.sent(epoch))
		},
		"own incarnations": func(i int, m *Message) { m.Records = append(m.Records, rec("a", uint64(i+2))) },
		"handles": func(i int, m *Message) {
			m.Heartbeats = append(m.Heartbeats, Heartbeat{Handle: Handle(i), At: stampAt(epoch)})
		},
		"buckets": func(i int, m *Message) {
			m.Ages = append(m.Ages, Bucket{BucketID: BucketID{Bits: maxBits, Index: uint32(i % maxBuckets)}, Nodes: 1})
		},
		"failure reports": func(i int, m *Message) {
			m.Records = append(m.Records, rec("c", 1))
			m.Heartbeats = append(m.Heartbeats, rec("c", 1).sent(epoch))
			m.FailureReports = append(m.FailureReports, FailureReport{
				Subject:  rec("c", 1).Handle(),
				Watcher:  Handle(i),
				At:       stampAt(epoch),
				Evidence: Refused,
			})
			m.FailureReports = append(m.FailureReports, FailureReport{
				Subject:  Handle(i),
				Watcher:  rec("b", 1).Handle(),
				At:       stampAt(epoch),
				Evidence: Refused,
			})
		},
		"handles ahead": func(i int, m *Message) {
			m.Heartbeats = append(m.Heartbeats, Heartbeat{Handle: Handle(i), At: stampAt(epoch), Clock: time.Duration(i) * time.Hour})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := newSet(rec("a", 1)), rec("b", 1)
			s.Apply(epoch, hello(epoch, b))
			flood(s, epoch, b, n, row)
			check := func(what string, size, limit int) {
				t.Helper()
				if size > limit {
					t.Errorf("%s holds %d, at most %d", what, size, limit)
				}
			}
			check("known", len(s.known), 2*MaxNodes+1)
			check("nodes", len(s.nodes), MaxNodes)
			check("asked", len(s.requested), MaxNodes)
			check("ahead", len(s.ahead), MaxNodes)
			check("differs", len(s.ages.differs), maxDiffering)
			check("reported", len(s.reported), 1)

			now := epoch.Add(time.Second)
			s.Apply(now, messageFrom(now, b, []Heartbeat{b.sent(now)}))
			if m := member(s, "b"); m == nil || !m.Renewed.Equal(now) {
				t.Errorf("b is not live: %+v", m)
			}
			for range 40 { // the stored handles expire
				now = now.Add(2 * time.Second)
				s.Heartbeat(now, 0, 0)
				s.Apply(now, messageFrom(now, b, []Heartbeat{b.sent(now)}))
				s.Expire(now)
			}
			wantIDs(t, s, fmt.Sprintf("a/%d", s.Self().Incarnation), "b/1")
			if len(s.known) != 2 || len(s.nodes) != 2 || len(s.requested)+len(s.ahead)+len(s.ages.differs) != 0 {
				t.Errorf("a minute later: known %d, nodes %d, requested %d, ahead %d, differs %d",
					len(s.known), len(s.nodes), len(s.requested), len(s.ahead), len(s.ages.differs))
			}
		})
	}
}

// A record is requested only from a live sender, and not twice at a time.
func TestWantsAreSpaced(t *testing.T) {
	s, b, c := newSet(rec("a", 1)), rec("b", 1), rec("c", 1)
	row := func(now time.Time, from *Record) []Handle {
		return s.Apply(now, messageFrom(now, from, []Heartbeat{c.sent(now)})).pullRecords
	}
	s.Apply(epoch, hello(epoch, b))
	if got := row(epoch, c); got != nil {
		t.Errorf("requested %v from an unknown sender", got)
	}
	if got := row(epoch, b); len(got) != 1 || got[0] != c.Handle() {
		t.Errorf("requested %v from b", got)
	}
	if got := row(epoch.Add(requestInterval-1), b); got != nil {
		t.Errorf("requested %v again at once", got)
	}
	if got := row(epoch.Add(requestInterval), b); len(got) != 1 {
		t.Error("not requested again")
	}
	now := epoch.Add(time.Second)
	s.Apply(now, hello(now, c))
	if len(s.requested) != 0 {
		t.Error("the received record is still requested")
	}
}

// Ended leases are remembered for forgetAfter, and no longer.
func TestForget(t *testing.T) {
	b := rec("b", 5)
	for name, end := range map[string]func(s *Set) (ended time.Time){
		"expired": func(s *Set) time.Time {
			s.Expire(epoch.Add(testParams.TTL + ms))
			return epoch.Add(testParams.TTL + ms)
		},
		"left": func(s *Set) time.Time {
			s.Apply(epoch, leave(epoch, b))
			return epoch
		},
		"left, known late": func(s *Set) time.Time {
			now := epoch.Add(30 * time.Second)
			s.Apply(now, messageFrom(now, b, []Heartbeat{b.sent(epoch).as(Left)}))
			return epoch
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSet(rec("a", 1))
			s.Apply(epoch, hello(epoch, b))
			ended := end(s)
			s.Expire(ended.Add(testParams.forgetAfter()))
			if s.known[b.Handle()] == nil || s.latest("b") == nil {
				t.Error("forgotten too early")
			}
			s.Expire(ended.Add(testParams.forgetAfter() + 1))
			if s.known[b.Handle()] != nil || s.latest("b") != nil || len(s.ExpiredAddrs(nil)) != 0 {
				t.Error("not forgotten")
			}
		})
	}
	t.Run("a successor stays", func(t *testing.T) {
		s := newSet(rec("a", 1))
		s.Apply(epoch, hello(epoch, b))
		next := rec("b", 6)
		s.Apply(epoch, hello(epoch, next))
		now := epoch.Add(testParams.forgetAfter() + 1)
		s.Apply(now, messageFrom(now, next, []Heartbeat{next.sent(now)}))
		s.Expire(now)
		wantIDs(t, s, "a/1", "b/6")
		if s.known[b.Handle()] != nil {
			t.Error("the predecessor is not forgotten")
		}
	})
	t.Run("short leases are remembered for a minute", func(t *testing.T) {
		if got := (Params{TTL: 100 * ms}).forgetAfter(); got != time.Minute {
			t.Errorf("forgetAfter = %v", got)
		}
		if got := (Params{TTL: time.Minute}).forgetAfter(); got != 10*time.Minute {
			t.Errorf("forgetAfter = %v", got)
		}
	})
}
