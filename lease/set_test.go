package lease

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Node a knows b/5 by beat 10 of record version 2, sent at the epoch. One second
// later a message arrives.
func TestApplyBoundaries(t *testing.T) {
	b := rec("b", 5)
	b.Version = 2
	c := rec("c", 1)
	later := rec("b", 6)
	now := epoch.Add(time.Second)
	skewed := func(d time.Duration, seq uint32) *Message {
		return messageFrom(now.Add(d), b, []Beat{b.beat(seq, 0)})
	}
	beat := func(seq uint32, age time.Duration) *Message {
		return messageFrom(now, b, []Beat{b.beat(seq, age)})
	}
	type want struct {
		live    []string
		seq     uint32 // of b
		state   State
		version uint32
		effect  Effect
		stats   Stats // what the message added
	}
	same := want{live: []string{"a/1", "b/5"}, seq: 10, state: Active, version: 2}
	stale := same
	stale.stats = Stats{BeatsStale: 1}
	renewed := same
	renewed.seq, renewed.stats = 11, Stats{BeatsApplied: 1}
	skewRejected := same
	skewRejected.stats = Stats{SkewRejected: 1}
	news := Effect{Changed: true, Urgent: true}
	in := func(state State, seq uint32, age time.Duration) *Message {
		return messageFrom(now, b, []Beat{b.beat(seq, age).as(state)})
	}
	became := func(state State, seq uint32) want {
		w := renewed
		w.state, w.seq, w.effect = state, seq, news
		return w
	}
	gone := want{live: []string{"a/1"}, effect: news}
	remembered := testParams.forgetAfter()

	for _, tc := range []struct {
		name string
		msg  *Message
		want want
	}{
		{"newer seq", beat(11, 0), renewed}, // S3.2
		{"equal seq", beat(10, 0), stale},
		{"older seq", beat(9, 0), stale},
		{"newer seq, age TTL", beat(11, testParams.TTL), renewed}, // S3.2: inclusive
		{"newer seq, age TTL+1ms", beat(11, testParams.TTL+ms), stale},
		{"skew MaxSkew", skewed(testParams.MaxSkew, 11), renewed}, // S3.3: exactly 5 s is accepted
		{"skew MaxSkew+1ms", skewed(testParams.MaxSkew+ms, 11), skewRejected},
		{"skew beyond measure", skewed(1<<62, 11), skewRejected},
		{"behind beyond measure", skewed(-1<<62, 11), renewed},
		{"stale, and skewed", skewed(testParams.MaxSkew+ms, 10), stale},
		{"same record", messageFrom(now, b, nil, b), same},
		{"older record", messageFrom(now, b, nil, rec("b", 5)), same},
		{
			"newer record", messageFrom(now, b, nil, b.heavier()),
			want{live: same.live, seq: 10, state: Active, version: 3, effect: news},
		},
		{"older incarnation", hello(now, rec("b", 4), 99), stale},
		{
			"newer incarnation", hello(now, later, 1), // S3.5: a returning node sends its next beat
			want{live: []string{"a/1", "b/6"}, seq: 1, state: Active, version: 1, effect: news, stats: Stats{BeatsApplied: 1}},
		},
		{"newer incarnation, no beat", messageFrom(now, later, nil, later), same},
		{
			"newer incarnation, dead already", messageFrom(now, later, []Beat{later.beat(1, testParams.TTL+ms)}, later),
			stale,
		},
		{"newer seq, another state", in(Draining, 11, 0), became(Draining, 11)},
		{"newer seq, an earlier state", in(Settling, 11, 0), became(Settling, 11)},
		{"equal seq, a greater state", in(Draining, 10, 0), became(Draining, 10)},
		{"equal seq, a lesser state", in(Settling, 10, 0), stale},
		{"older seq, another state", in(Draining, 9, 0), stale},
		{"newer seq, another state, age TTL+1ms", in(Draining, 11, testParams.TTL+ms), stale},
		{"another state, back again", messageFrom(now, b, []Beat{b.beat(11, 0).as(Draining), b.beat(12, 0)}), func() want {
			w := became(Active, 12)
			w.stats.BeatsApplied = 2
			return w
		}()},
		{
			"another state, too far ahead", messageFrom(now.Add(testParams.MaxSkew+ms), b, []Beat{b.beat(11, 0).as(Draining)}),
			skewRejected,
		},
		{
			"another state, with a record that is missing", messageFrom(now, b, []Beat{b.heavier().beat(11, 0).as(Draining)}),
			func() want {
				w := became(Draining, 11)
				w.effect.Wants = []Handle{b.handle()}
				return w
			}(),
		},
		{"farewell", in(Left, 11, 0), gone},
		{"farewell, equal seq", in(Left, 10, 0), gone},
		{"farewell, older seq", in(Left, 9, 0), stale},
		{"farewell, age TTL+1ms", in(Left, 11, testParams.TTL+ms), gone}, // valid at any age
		{"farewell, as old as is remembered", in(Left, 11, remembered), gone},
		{"farewell, older than is remembered", in(Left, 11, remembered+ms), stale},
		{"farewell, too far ahead", messageFrom(now.Add(testParams.MaxSkew+ms), b, []Beat{b.beat(11, 0).as(Left)}), skewRejected},
		{"farewell, with a record that is missing", messageFrom(now, b, []Beat{b.heavier().beat(11, 0).as(Left)}), gone},
		{
			"farewell, then a later beat", messageFrom(now, b, []Beat{b.beat(11, 0).as(Left), b.beat(12, 0)}),
			want{live: gone.live, effect: news, stats: Stats{BeatsStale: 1}},
		},
		{
			"farewell, then an earlier beat", messageFrom(now, b, []Beat{b.beat(12, 0).as(Left), b.beat(11, 0)}),
			want{live: gone.live, effect: news, stats: Stats{BeatsStale: 1}},
		},
		{
			"farewell of an older incarnation", messageFrom(now, b, []Beat{rec("b", 4).beat(99, 0).as(Left)}, rec("b", 4)),
			stale,
		},
		{"farewell of an incarnation without a record", messageFrom(now, b, []Beat{later.beat(1, 0).as(Left)}), same},
		{"farewell of a stranger", messageFrom(now, b, []Beat{c.beat(1, 0).as(Left)}), same},
		{"farewell of a newcomer", messageFrom(now, c, []Beat{c.beat(1, 0).as(Left)}, c), same},
		{
			"farewell of a newcomer, then an earlier beat", messageFrom(now, c, []Beat{c.beat(2, 0).as(Left), c.beat(1, 0)}, c),
			stale,
		},
		{
			"farewell of a later incarnation", messageFrom(now, later, []Beat{later.beat(1, 0).as(Left)}, later),
			gone,
		},
		{
			"unknown handle", messageFrom(now, b, []Beat{c.beat(1, 0)}),
			want{live: same.live, seq: 10, state: Active, version: 2, effect: Effect{Wants: []Handle{c.handle()}}},
		},
		{
			"unknown handle, dead already", messageFrom(now, b, []Beat{c.beat(1, testParams.TTL+ms)}),
			stale,
		},
		{"unknown handle from an unknown sender", messageFrom(now, c, []Beat{c.beat(1, 0)}), same},
		{
			"newer record version in a newer beat", messageFrom(now, b, []Beat{b.heavier().beat(11, 0)}),
			want{
				live: same.live, seq: 11, state: Active, version: 2,
				effect: Effect{Wants: []Handle{b.handle()}}, stats: Stats{BeatsApplied: 1},
			},
		},
		{
			"newer record version in a known beat", messageFrom(now, b, []Beat{b.heavier().beat(10, 0)}),
			want{
				live: same.live, seq: 10, state: Active, version: 2,
				effect: Effect{Wants: []Handle{b.handle()}}, stats: Stats{BeatsStale: 1},
			},
		},
		{
			"newcomer", hello(now, c, 1),
			want{
				live: []string{"a/1", "b/5", "c/1"}, seq: 10, state: Active, version: 2,
				effect: news, stats: Stats{BeatsApplied: 1},
			},
		},
		{
			"other settings", func() *Message { // S3.10
				m := hello(now, later, 1)
				m.Settings++
				return m
			}(),
			want{live: same.live, seq: 10, state: Active, version: 2, stats: Stats{SettingsRefused: 1}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSet(rec("a", 1))
			s.Apply(epoch, messageFrom(epoch, b, []Beat{b.beat(10, 0)}, b))
			before := s.stats
			got := want{effect: s.Apply(now, tc.msg), live: ids(s)}
			if m := member(s, "b"); m != nil {
				got.seq, got.state, got.version = m.Seq, m.State, m.Version
			}
			got.stats = minus(s.Stats(), before)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(want{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again := s.Apply(now, tc.msg); again.Changed || again.Urgent || again.Wants != nil {
				t.Errorf("the same message again: %+v", again)
			}
		})
	}
}

func minus(a, b Stats) Stats {
	return Stats{
		BeatsApplied: a.BeatsApplied - b.BeatsApplied, BeatsStale: a.BeatsStale - b.BeatsStale,
		SkewRejected: a.SkewRejected - b.SkewRejected, SettingsRefused: a.SettingsRefused - b.SettingsRefused,
		RecordsRefused: a.RecordsRefused - b.RecordsRefused, Expired: a.Expired - b.Expired,
		Reincarnations: a.Reincarnations - b.Reincarnations,
	}
}

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

// Of two beats with one Seq, the greater state counts, and the age of the oldest copy,
// in any order.
func TestTwoStatesInOneBeat(t *testing.T) {
	b, now := rec("b", 5), epoch.Add(2*time.Second)
	copies := []Beat{b.beat(10, time.Second).as(Draining), b.beat(10, 2*time.Second)}
	for range 2 {
		s := newSet(rec("a", 1))
		s.Apply(now, messageFrom(now, b, copies, b))
		if m := member(s, "b"); m == nil || m.State != Draining || !m.Renewed.Equal(epoch) {
			t.Errorf("%v first: %+v", copies[0].State, m)
		}
		slices.Reverse(copies)
	}
}

// A second state for one Seq does not revive an expired lease, but a farewell counts.
func TestTwoStatesReviveNoLease(t *testing.T) {
	for _, state := range []State{Draining, Left} {
		s, b := newSet(rec("a", 1)), rec("b", 5)
		s.Apply(epoch, hello(epoch, b, 10))
		now := epoch.Add(testParams.TTL + ms)
		s.Expire(now)
		if e := s.Apply(now, messageFrom(now, b, []Beat{b.beat(10, 0).as(state)})); e.Changed {
			t.Errorf("%v: %+v", state, e)
		}
		wantIDs(t, s, "a/1")
		s.Apply(now, hello(now, b, 11))
		if back := member(s, "b") != nil; back != (state != Left) {
			t.Errorf("%v: by the next beat, live %v", state, back)
		}
	}
}

// A farewell ends an incarnation for good even at MaxNodes.
func TestFarewellWithoutRoom(t *testing.T) {
	s := crowd(MaxNodes)
	b := rec("b", 1)
	s.Apply(epoch, messageFrom(epoch, b, []Beat{b.beat(2, 0).as(Left)}, b))
	if s.byID["b"] != nil {
		t.Fatal("the set is not full")
	}
	delete(s.byID, "node-0001")
	s.Apply(epoch, messageFrom(epoch, b, []Beat{b.beat(1, 0)}))
	if member(s, "b") != nil {
		t.Error("an earlier beat began a lease after the farewell")
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
		return s.View().Digest
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
