package lease

import (
	"testing"
	"time"
)

func TestExpireBoundaries(t *testing.T) {
	b := rec("b", 5)
	for _, tc := range []struct {
		name string
		age  time.Duration // when the beat arrives
		wait time.Duration // until Expire
		live bool
	}{
		{"fresh, TTL later", 0, testParams.TTL, true}, // S3.2: inclusive
		{"fresh, TTL+1ms later", 0, testParams.TTL + ms, false},
		{"fresh, TTL+1ns later", 0, testParams.TTL + 1, false},
		{"old, as old as TTL", 2 * time.Second, testParams.TTL - 2*time.Second, true},
		{"old, older than TTL", 2 * time.Second, testParams.TTL - 2*time.Second + ms, false},
		{"admitted at TTL", testParams.TTL, 0, true},
		{"admitted at TTL, 1ms later", testParams.TTL, ms, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSet(rec("a", 1))
			s.Apply(epoch, messageFrom(epoch, b, []Beat{b.beat(1, tc.age)}, b))
			at, ok := s.NextDeadline()
			if want := epoch.Add(-tc.age + testParams.TTL + 1); !ok || !at.Equal(want) { // S3.6
				t.Errorf("NextDeadline() = %v, %v, want %v", at, ok, want)
			}
			changed := s.Expire(epoch.Add(tc.wait))
			if live := member(s, "b") != nil; live != tc.live || changed == tc.live {
				t.Errorf("live %v, changed %v, want live %v", live, changed, tc.live)
			}
			if got := s.Stats().Expired; (got == 0) != tc.live {
				t.Errorf("Stats.Expired = %d", got)
			}
			if s.Expire(epoch.Add(tc.wait)) {
				t.Error("expired twice")
			}
		})
	}
}

// The deadline is the first instant at which Expire does something.
func TestNextDeadlineIsExact(t *testing.T) {
	s := newSet(rec("a", 1))
	if at, ok := s.NextDeadline(); ok {
		t.Fatalf("alone, but a deadline at %v", at)
	}
	for i, id := range []NodeID{"b", "c", "d"} {
		r := rec(id, 1)
		s.Apply(epoch, messageFrom(epoch, r, []Beat{r.beat(1, time.Duration(3-i)*time.Second)}, r))
	}
	for range 3 { // S3.6
		at, ok := s.NextDeadline()
		if !ok || s.Expire(at.Add(-1)) || !s.Expire(at) {
			t.Fatalf("deadline %v, %v is not exact", at, ok)
		}
	}
	wantIDs(t, s, "a/1")
}

// A renewal before a late Expire does not change the live set (S3.5).
func TestRenewalBeforeLateExpire(t *testing.T) {
	s, b := newSet(rec("a", 1)), rec("b", 5)
	s.Apply(epoch, hello(epoch, b, 1))
	late := epoch.Add(testParams.TTL + time.Second)
	if e := s.Apply(late, messageFrom(late, b, []Beat{b.beat(2, 0)})); e.Changed {
		t.Error("a renewed lease changed the live set")
	}
	if s.Expire(late) {
		t.Error("a renewed lease expired")
	}
}

// After a pause, no node counts as live by old beats.
func TestExpireOthers(t *testing.T) {
	s, b, c := newSet(rec("a", 1)), rec("b", 5), rec("c", 1)
	s.Apply(epoch, hello(epoch, b, 7))
	s.Apply(epoch, hello(epoch, c, 7))
	now := epoch.Add(time.Hour)
	s.ExpireOthers(now)
	wantIDs(t, s, "a/1")
	if len(s.ExpiredAddrs(nil)) != 2 || len(s.Peers(nil)) != 0 {
		t.Errorf("ExpiredAddrs() = %v, Peers() = %v", s.ExpiredAddrs(nil), s.Peers(nil))
	}
	s.Apply(now, hello(now, b, 7)) // delayed in a socket's buffer
	wantIDs(t, s, "a/1")
	s.Expire(now.Add(testParams.forgetAfter()))
	s.Apply(now, hello(now, b, 6))
	wantIDs(t, s, "a/1")
	if e := s.Apply(now, hello(now, b, 8)); !e.Changed || !e.Urgent {
		t.Errorf("return of b: %+v", e)
	}
	wantIDs(t, s, "a/1", "b/5")
}

func TestUpdateKeepsIdentity(t *testing.T) {
	self := rec("a", 3)
	self.Labels = map[string]string{"role": "sfu"}
	s := newSet(self)
	before := s.Self()
	s.Update(func(r *Record) {
		r.ID, r.Incarnation, r.Version = "z", 9, 9
		r.Weight, r.Labels["role"] = 7, "relay"
	})
	if r := s.Self(); r.ID != "a" || r.Incarnation != 3 || r.Version != 2 || r.Weight != 7 {
		t.Errorf("Self() = %+v", r)
	}
	if before.Labels["role"] != "sfu" || before.Weight != 1 || self.Labels["role"] != "sfu" {
		t.Error("a record that was handed out has changed")
	}
}

// A change of state gets a beat of its own: no Seq is sent with two states.
func TestOwnState(t *testing.T) {
	s := NewSet(epoch, *rec("a", 1), testParams)
	expect := func(seq uint32, state State) {
		t.Helper()
		for what, m := range map[string]*Message{"Compose": s.Compose(epoch, 1400, 1), "Sync": s.Sync(epoch)} {
			if b := m.Beats[0]; b.Seq != seq || b.State != state {
				t.Errorf("%s sends %v in beat %d, want %v by %d", what, b.State, b.Seq, state, seq)
			}
		}
		if m := member(s, "a"); m.State != state || m.Seq != seq {
			t.Errorf("the own view shows %v in beat %d, want %v in %d", m.State, m.Seq, state, seq)
		}
	}
	if s.State() != Settling {
		t.Errorf("State() = %v at first", s.State())
	}
	expect(1, Settling)
	s.SetState(Draining)
	if s.State() != Draining {
		t.Errorf("State() = %v", s.State())
	}
	expect(1, Settling)
	s.Beat(epoch, 0, 0)
	expect(2, Draining)
	s.Update(func(r *Record) { r.Weight = 5 })
	s.Beat(epoch, 0, 0)
	expect(3, Draining)
	clone := messageFrom(epoch, rec("a", 1), []Beat{rec("a", 1).beat(9, 0)})
	if s.Apply(epoch, clone); s.Self().Incarnation == 1 {
		t.Fatal("the clone was not noticed")
	}
	expect(1, Draining)
}

func TestCandidate(t *testing.T) {
	for state, want := range map[State]bool{Settling: false, Active: true, Draining: false, Left: false} {
		for _, weight := range []uint32{0, 1} {
			m := Member{Record: &Record{Weight: weight}, State: state}
			if got := m.Candidate(); got != (want && weight > 0) {
				t.Errorf("%v with weight %d: Candidate() = %v", state, weight, got)
			}
		}
	}
}

// Views have equal digests exactly if their live sets are equal.
func TestViewDigest(t *testing.T) {
	viewDigest := func(state State, self *Record, peers ...*Record) uint64 {
		s := newSet(self)
		for _, r := range peers {
			s.Apply(epoch, hello(epoch, r, 1))
		}
		last := peers[len(peers)-1]
		s.Apply(epoch, messageFrom(epoch, last, []Beat{last.beat(2, 0).as(state)}))
		return s.View().Digest()
	}
	build := func(self *Record, peers ...*Record) uint64 { return viewDigest(Active, self, peers...) }
	a, b, c := rec("a", 1), rec("b", 1), rec("c", 1)
	same := build(a, b, c)
	if got := build(c, b, a); got != same {
		t.Error("another viewer, another digest")
	}
	for name, other := range map[string]uint64{
		"one less":            build(a, b),
		"another incarnation": build(a, b, rec("c", 2)),
		"another version":     build(a, b, c.heavier()),
		"another state":       viewDigest(Draining, a, b, c),
		"another id":          build(a, b, rec("d", 1)),
		"ids run together":    build(a, rec("bc", 1)),
	} {
		if other == same {
			t.Errorf("%s: the same digest", name)
		}
	}
}
