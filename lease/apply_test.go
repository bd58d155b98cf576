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
