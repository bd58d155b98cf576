package lease_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

func TestExpireBoundaries(t *testing.T) {
	b := rec("b", 5)
	for _, tc := range []struct {
		name string
		age  time.Duration // when the heartbeat arrives
		wait time.Duration // until Expire
		live bool
	}{
		{"fresh, TTL later", 0, testParams.TTL, true}, // inclusive
		{"fresh, TTL+1ms later", 0, testParams.TTL + ms, false},
		{"old, as old as TTL", 2 * time.Second, testParams.TTL - 2*time.Second, true},
		{"old, older than TTL", 2 * time.Second, testParams.TTL - 2*time.Second + ms, false},
		{"admitted at TTL", testParams.TTL, 0, true},
		{"admitted at TTL, 1ms later", testParams.TTL, ms, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSet(rec("a", 1))
			s.Apply(epoch, messageFrom(epoch, b, []lease.Heartbeat{sent(b, epoch.Add(-tc.age))}, b))
			at, ok := s.NextDeadline()
			if want := epoch.Add(-tc.age + testParams.TTL + ms); !ok || !at.Equal(want) {
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
	for i, id := range []lease.NodeID{"b", "c", "d"} {
		r := rec(id, 1)
		s.Apply(epoch, messageFrom(epoch, r, []lease.Heartbeat{sent(r, epoch.Add(time.Duration(i-3)*time.Second))}, r))
	}
	for range 3 {
		at, ok := s.NextDeadline()
		if age := s.OldestAge(at); age != testParams.TTL+ms {
			t.Errorf("the oldest lease is of %v at the deadline", age)
		}
		if !ok || s.Expire(at.Add(-1)) || !s.Expire(at) {
			t.Fatalf("deadline %v, %v is not exact", at, ok)
		}
	}
	if age := s.OldestAge(epoch); age != 0 {
		t.Errorf("alone, but a lease of %v", age)
	}
	wantIDs(t, s, "a/1")
}

// After any event, the deadline is never later than the first expiry.
func TestNextDeadlineIsNeverLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := newSet(rec("a", 1)), epoch
		var ahead time.Duration // how far the cluster time of the other nodes is ahead
		millisUpTo := func(n int, label string) time.Duration {
			return time.Duration(rapid.IntRange(0, n).Draw(t, label)) * ms
		}
		for range 30 {
			now = now.Add(millisUpTo(1500, "wait"))
			r := rec(lease.NodeID(rapid.StringMatching("[a-d]").Draw(t, "id")), uint64(rapid.IntRange(1, 3).Draw(t, "life")))
			sent := stampAt(now.Add(ahead)) - stamps(millisUpTo(7000, "age"))
			state := rapid.SampledFrom([]lease.State{lease.Active, lease.Active, lease.Draining, lease.Left}).Draw(t, "state")
			m := messageFrom(now, r, []lease.Heartbeat{{Handle: r.Handle(), At: sent, State: state, Version: 1}}, r)
			m.Stamp = stampAt(now.Add(ahead))
			switch rapid.IntRange(0, 6).Draw(t, "event") {
			case 0:
				s.Expire(now)
			case 1:
				s.ExpireOthers(now)
			case 2:
				ahead += millisUpTo(2000, "step")
				s.Apply(now, m)
			case 3:
				at := now.Add(ahead)
				peer := startSet(at, rec("z", 1), testParams)
				peer.Apply(at, s.Sync(now))
				s.Apply(now, by(peer.Compose(at, 1400, 1)[0], -ahead))
			default:
				s.Apply(now, m)
			}
			first, any := time.Time{}, false
			for _, m := range s.View().Members {
				if at := m.Renewed.Add(testParams.TTL + ms); m.ID != "a" && (!any || at.Before(first)) {
					first, any = at, true
				}
			}
			if at, ok := s.NextDeadline(); any && (!ok || at.After(first)) {
				t.Fatalf("the deadline is %v, %v; the first lease ends at %v", at, ok, first)
			}
		}
	})
}

// If a renewal arrives before a late call of Expire, the live set does not change.
func TestRenewalBeforeLateExpire(t *testing.T) {
	s, b := newSet(rec("a", 1)), rec("b", 5)
	s.Apply(epoch, hello(epoch, b))
	late := epoch.Add(testParams.TTL + time.Second)
	if e := s.Apply(late, messageFrom(late, b, []lease.Heartbeat{sent(b, late)})); e.Changed {
		t.Error("a renewed lease changed the live set")
	}
	if s.Expire(late) {
		t.Error("a renewed lease expired")
	}
}

// After a pause, heartbeats from before the pause do not make a node live.
func TestExpireOthers(t *testing.T) {
	s, b, c := newSet(rec("a", 1)), rec("b", 5), rec("c", 1)
	s.Apply(epoch, hello(epoch, b))
	s.Apply(epoch, hello(epoch, c))
	now := epoch.Add(time.Hour)
	s.ExpireOthers(now)
	wantIDs(t, s, "a/1")
	if len(s.ExpiredAddrs(nil)) != 2 || len(s.Peers(nil)) != 0 || len(s.ExpiredHandles()) != 2 {
		t.Errorf("ExpiredAddrs() = %v, Peers() = %v", s.ExpiredAddrs(nil), s.Peers(nil))
	}
	for _, late := range []*lease.Message{hello(epoch, b), messageFrom(now, b, hello(epoch, b).Heartbeats, b)} { // from a socket's buffer
		s.Apply(now, late)
		wantIDs(t, s, "a/1")
	}
	s.Expire(now.Add(forgetAfter(testParams)))
	s.Apply(now, hello(epoch.Add(-time.Second), b))
	wantIDs(t, s, "a/1")
	if e := s.Apply(now, hello(now, b)); !e.Changed || !e.Urgent {
		t.Errorf("return of b: %+v", e)
	}
	wantIDs(t, s, "a/1", "b/5")
}

func TestUpdateKeepsIdentity(t *testing.T) {
	self := rec("a", 3)
	self.Labels = map[string]string{"role": "sfu"}
	s := newSet(self)
	before := s.Self()
	s.Update(func(r *lease.Record) {
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

// After a change of state, the new state is sent only with the next heartbeat, so no heartbeat is sent with two states.
func TestOwnState(t *testing.T) {
	s := lease.NewSet(epoch, *rec("a", 1), testParams)
	first, now := stampAt(epoch), epoch
	expect := func(later lease.Stamp, state lease.State) {
		t.Helper()
		for what, m := range map[string]*lease.Message{"Compose": s.Compose(now, 1400, 1)[0], "Sync": s.Sync(now)} {
			if b := m.Heartbeats[0]; b.At-first != later || b.State != state {
				t.Errorf("%s sends %v in heartbeat %d, want %v in %d", what, b.State, b.At-first, state, later)
			}
		}
		if m := member(s, "a"); m.State != state {
			t.Errorf("the own view shows %v in heartbeat %d, want %v", m.State, later, state)
		}
	}
	if s.State() != lease.Settling {
		t.Errorf("State() = %v at first", s.State())
	}
	expect(0, lease.Settling)
	s.SetState(lease.Draining)
	if s.State() != lease.Draining {
		t.Errorf("State() = %v", s.State())
	}
	expect(0, lease.Settling)
	s.Heartbeat(now, 0, 0)
	expect(1, lease.Draining) // within the same millisecond
	s.Update(func(r *lease.Record) { r.Weight = 5 })
	s.Heartbeat(now, 0, 0)
	expect(2, lease.Draining)
	now = now.Add(time.Second)
	s.Apply(now, messageFrom(now, rec("a", 1), []lease.Heartbeat{sent(rec("a", 1), now)}))
	if s.Self().Incarnation == 1 {
		t.Fatal("the clone was not noticed")
	}
	expect(1000, lease.Draining)
}

func TestCandidate(t *testing.T) {
	for state, want := range map[lease.State]bool{lease.Settling: false, lease.Active: true, lease.Draining: false, lease.Left: false} {
		for _, weight := range []uint32{0, 1} {
			m := lease.Member{Record: &lease.Record{Profile: lease.Profile{Weight: weight}}, State: state}
			if got := m.Candidate(); got != (want && weight > 0) {
				t.Errorf("%v with weight %d: Candidate() = %v", state, weight, got)
			}
		}
	}
}

// Views have equal digests exactly if their live sets are equal.
func TestViewDigest(t *testing.T) {
	viewDigest := func(state lease.State, self *lease.Record, peers ...*lease.Record) uint64 {
		s := newSet(self)
		for _, r := range peers {
			s.Apply(epoch, hello(epoch.Add(-ms), r))
		}
		last := peers[len(peers)-1]
		s.Apply(epoch, messageFrom(epoch, last, []lease.Heartbeat{as(sent(last, epoch), state)}))
		return s.View().Digest()
	}
	build := func(self *lease.Record, peers ...*lease.Record) uint64 {
		return viewDigest(lease.Active, self, peers...)
	}
	a, b, c := rec("a", 1), rec("b", 1), rec("c", 1)
	same := build(a, b, c)
	if got := build(c, b, a); got != same {
		t.Error("another viewer, another digest")
	}
	for name, other := range map[string]uint64{
		"one less":            build(a, b),
		"another incarnation": build(a, b, rec("c", 2)),
		"another version":     build(a, b, heavier(c)),
		"another state":       viewDigest(lease.Draining, a, b, c),
		"another id":          build(a, b, rec("d", 1)),
		"ids run together":    build(a, rec("bc", 1)),
	} {
		if other == same {
			t.Errorf("%s: the same digest", name)
		}
	}
}

// Recorded messages do not keep an ended lease in memory.
func TestRecordingIsForgotten(t *testing.T) {
	s, b := newSet(rec("a", 1)), rec("b", 1)
	m := hello(epoch, b)
	s.Apply(epoch, m)
	for now := epoch; now.Sub(epoch) < 2*forgetAfter(testParams); now = now.Add(time.Second) {
		s.Expire(now)
		e := s.Apply(now, m)
		s.Replies(now, m, e, 1400)
	}
	if s.Knows("b") {
		t.Error("still known")
	}
}
