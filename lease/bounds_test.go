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
		for ; i < n && len(m.Beats)+len(m.Records) < 1000; i++ {
			row(i, m)
		}
		s.Apply(now, m)
	}
}

// For any input from a member, memory stays within a small multiple of MaxNodes, and
// known nodes stay live (S3.6).
func TestFloodsAreBounded(t *testing.T) {
	const n = 5 * MaxNodes
	stranger := func(i int) *Record { return rec(NodeID(fmt.Sprintf("x%d", i)), 1) }
	for name, row := range map[string]func(i int, m *Message){
		"records": func(i int, m *Message) { m.Records = append(m.Records, stranger(i)) },
		"farewells": func(i int, m *Message) {
			m.Records = append(m.Records, stranger(i))
			m.Beats = append(m.Beats, stranger(i).beat(1, 0).as(Left))
		},
		"strangers' farewells": func(i int, m *Message) {
			m.Beats = append(m.Beats, Beat{Handle: Handle(i), Seq: 1, State: Left})
		},
		"nodes": func(i int, m *Message) {
			m.Records = append(m.Records, stranger(i))
			m.Beats = append(m.Beats, stranger(i).beat(1, 0))
		},
		"incarnations": func(i int, m *Message) {
			r := rec("x", uint64(i))
			m.Records = append(m.Records, r)
			m.Beats = append(m.Beats, r.beat(1, 0))
		},
		"own incarnations": func(i int, m *Message) { m.Records = append(m.Records, rec("a", uint64(i+2))) },
		"handles":          func(i int, m *Message) { m.Beats = append(m.Beats, Beat{Handle: Handle(i), Seq: 1}) },
		"handles ahead": func(i int, m *Message) {
			m.Beats = append(m.Beats, Beat{Handle: Handle(i), Seq: 1, Clock: time.Duration(i) * time.Hour})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := newSet(rec("a", 1)), rec("b", 1)
			s.Apply(epoch, hello(epoch, b, 1))
			flood(s, epoch, b, n, row)
			check := func(what string, size, limit int) {
				t.Helper()
				if size > limit {
					t.Errorf("%s holds %d, at most %d", what, size, limit)
				}
			}
			check("known", len(s.known), 2*MaxNodes+1)
			check("byID", len(s.byID), MaxNodes)
			check("asked", len(s.requested), MaxNodes)
			check("ahead", len(s.ahead), MaxNodes)

			now := epoch.Add(time.Second)
			s.Apply(now, messageFrom(now, b, []Beat{b.beat(2, 0)}))
			if m := member(s, "b"); m == nil || m.Seq != 2 {
				t.Errorf("b is not live: %+v", m)
			}
			for i := range 40 { // the stored handles expire
				now = now.Add(2 * time.Second)
				s.Beat(now, 0, 0)
				s.Apply(now, messageFrom(now, b, []Beat{b.beat(uint32(3+i), 0)}))
				s.Expire(now)
			}
			wantIDs(t, s, fmt.Sprintf("a/%d", s.Self().Incarnation), "b/1")
			if len(s.known) != 2 || len(s.byID) != 2 || len(s.requested) != 0 || len(s.ahead) != 0 {
				t.Errorf("a minute later: known %d, byID %d, requested %d, ahead %d",
					len(s.known), len(s.byID), len(s.requested), len(s.ahead))
			}
		})
	}
}

// A record is requested only from a live sender, and not twice at a time.
func TestWantsAreSpaced(t *testing.T) {
	s, b, c := newSet(rec("a", 1)), rec("b", 1), rec("c", 1)
	row := func(now time.Time, from *Record, seq uint32) []Handle {
		return s.Apply(now, messageFrom(now, from, []Beat{c.beat(seq, 0)})).Wants
	}
	s.Apply(epoch, hello(epoch, b, 1))
	if got := row(epoch, c, 1); got != nil {
		t.Errorf("requested %v from an unknown sender", got)
	}
	if got := row(epoch, b, 1); len(got) != 1 || got[0] != c.handle() {
		t.Errorf("requested %v from b", got)
	}
	if got := row(epoch.Add(requestInterval-1), b, 2); got != nil {
		t.Errorf("requested %v again at once", got)
	}
	if got := row(epoch.Add(requestInterval), b, 3); len(got) != 1 {
		t.Error("not requested again")
	}
	now := epoch.Add(time.Second)
	s.Apply(now, hello(now, c, 4))
	if len(s.requested) != 0 {
		t.Error("the received record is still requested")
	}
}

// Ended leases are remembered for forgetAfter, and no longer.
func TestForget(t *testing.T) {
	b := rec("b", 5)
	for name, end := range map[string]func(s *Set){
		"expired": func(s *Set) { s.Expire(epoch.Add(testParams.TTL + 1)) },
		"left":    func(s *Set) { s.Apply(epoch, farewell(epoch, b, 2)) },
		"left, known late": func(s *Set) {
			now := epoch.Add(30 * time.Second)
			s.Apply(now, messageFrom(now, b, []Beat{b.beat(2, 30*time.Second).as(Left)}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSet(rec("a", 1))
			s.Apply(epoch, hello(epoch, b, 1))
			end(s)
			s.Expire(epoch.Add(testParams.forgetAfter()))
			if s.known[b.handle()] == nil || s.byID["b"] == nil {
				t.Error("forgotten too early")
			}
			s.Expire(epoch.Add(testParams.forgetAfter() + 1))
			if s.known[b.handle()] != nil || s.byID["b"] != nil || len(s.ExpiredAddrs(nil)) != 0 {
				t.Error("not forgotten")
			}
		})
	}
	t.Run("a successor stays", func(t *testing.T) {
		s := newSet(rec("a", 1))
		s.Apply(epoch, hello(epoch, b, 1))
		next := rec("b", 6)
		s.Apply(epoch, hello(epoch, next, 1))
		now := epoch.Add(testParams.forgetAfter() + 1)
		s.Apply(now, messageFrom(now, next, []Beat{next.beat(2, 0)}))
		s.Expire(now)
		wantIDs(t, s, "a/1", "b/6")
		if s.known[b.handle()] != nil {
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
