package lease_test

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/roost-cluster/roost/lease"
)

// Node a knows a heartbeat of b/5 with record version 2. It was sent at the epoch, unless a row of the table says that
// it was sent earlier. A message arrives one second after the epoch.
func TestApplyBoundaries(t *testing.T) {
	b := rec("b", 5)
	b.Version = 2
	c := rec("c", 1)
	later := rec("b", 6)
	now := epoch.Add(time.Second)
	from := func(heartbeats ...lease.Heartbeat) *lease.Message { return messageFrom(now, b, heartbeats) }
	aged := func(age time.Duration) lease.Heartbeat { return sent(b, now.Add(-age)) }
	skewed := func(d time.Duration, heartbeat lease.Heartbeat) *lease.Message { return by(from(heartbeat), d) }
	// relayed returns a row with the content of one heartbeat and the age of a later heartbeat.
	relayed := func(content, latest time.Duration) lease.Heartbeat {
		heartbeat := aged(content)
		heartbeat.Renewed = stampAt(now.Add(-latest))
		return heartbeat
	}
	const ttl, before = 6 * time.Second, time.Second // before: the age of the known heartbeat
	type want struct {
		live    []string
		age     time.Duration // of b
		state   lease.State
		version uint32
		effect  lease.Effect
		pulls   []lease.Handle // records
		stats   lease.Stats    // what the message added
	}
	same := want{live: []string{"a/1", "b/5"}, age: before, state: lease.Active, version: 2}
	with := func(w want, change func(*want)) want {
		change(&w)
		return w
	}
	stale := with(same, func(w *want) { w.stats.HeartbeatsStale = 1 })
	renewed := func(age time.Duration) want {
		return with(same, func(w *want) { w.age, w.stats.HeartbeatsApplied = age, 1 })
	}
	skewRejected := with(same, func(w *want) { w.stats.SkewRejected = 1 })
	news := lease.Effect{Changed: true, Urgent: true}
	became := func(state lease.State, age time.Duration) want {
		return with(renewed(age), func(w *want) { w.state, w.effect = state, news })
	}
	pulls := func(w want, r *lease.Record) want {
		return with(w, func(w *want) { w.pulls = []lease.Handle{r.Handle()} })
	}
	old := func(age time.Duration) want { return with(stale, func(w *want) { w.age = age }) }
	gone := want{live: []string{"a/1"}, effect: news}
	goneStale := with(gone, func(w *want) { w.stats.HeartbeatsStale = 1 })
	remembered := forgetAfter(testParams)

	for _, tc := range []struct {
		name  string
		known time.Duration // the age of the known heartbeat, if it is not the constant before
		msg   *lease.Message
		want  want
	}{
		{"newer heartbeat", 0, from(aged(0)), renewed(0)},
		{"equal heartbeat", 0, from(aged(before)), stale},
		{"older heartbeat", 0, from(aged(before + ms)), stale},
		{"newer heartbeat, age TTL", ttl + 2*ms, from(aged(ttl)), renewed(ttl)}, // inclusive
		{"newer heartbeat, age TTL+1ms", ttl + 2*ms, from(aged(ttl + ms)), old(ttl + 2*ms)},
		{"skew MaxSkew", 0, skewed(testParams.MaxSkew, aged(0)), renewed(0)}, // exactly 5 s is accepted
		{"skew MaxSkew+1ms", 0, skewed(testParams.MaxSkew+ms, aged(0)), skewRejected},
		{"skew beyond measure", 0, skewed(1<<62, aged(0)), skewRejected},
		{"behind beyond measure", 0, skewed(-1<<62, aged(0)), renewed(0)},
		{"stale, and skewed", 0, skewed(testParams.MaxSkew+ms, aged(before)), stale},
		{"same record", 0, messageFrom(now, b, nil, b), same},
		{"older record", 0, messageFrom(now, b, nil, rec("b", 5)), same},
		{
			"newer record", 0, messageFrom(now, b, nil, heavier(b)),
			with(same, func(w *want) { w.version, w.effect = 3, news }),
		},
		{"older incarnation", 0, hello(now, rec("b", 4)), stale},
		{
			"newer incarnation", 0, hello(now, later), // a returning node sends its next heartbeat
			want{live: []string{"a/1", "b/6"}, state: lease.Active, version: 1, effect: news, stats: lease.Stats{HeartbeatsApplied: 1}},
		},
		{"newer incarnation, no heartbeat", 0, messageFrom(now, later, nil, later), same},
		{"newer incarnation, dead already", 0, messageFrom(now, later, []lease.Heartbeat{sent(later, now.Add(-ttl-ms))}, later), stale},
		{"another state", 0, from(as(aged(0), lease.Draining)), became(lease.Draining, 0)},
		{"an earlier state", 0, from(as(aged(0), lease.Settling)), became(lease.Settling, 0)},
		{
			"equal heartbeat, a greater state", 0, from(as(aged(before), lease.Draining)),
			became(lease.Draining, before),
		},
		{"equal heartbeat, a lesser state", 0, from(as(aged(before), lease.Settling)), stale},
		{"older heartbeat, another state", 0, from(as(aged(before+ms), lease.Draining)), stale},
		{"another state, age TTL+1ms", ttl + 2*ms, from(as(aged(ttl+ms), lease.Draining)), old(ttl + 2*ms)},
		{
			"another state, back again", 0, from(as(aged(ms), lease.Draining), aged(0)),
			with(became(lease.Active, 0), func(w *want) { w.stats.HeartbeatsApplied = 2 }),
		},
		{"another state, too far ahead", 0, skewed(testParams.MaxSkew+ms, as(aged(0), lease.Draining)), skewRejected},
		{
			"another state, with a record that is missing", 0, from(as(sent(heavier(b), now), lease.Draining)),
			pulls(became(lease.Draining, 0), b),
		},
		{"known content, a later age", 0, from(relayed(before, ms)), renewed(ms)},
		{"older content, a later age", 0, from(as(relayed(before+ms, 0), lease.Draining)), renewed(0)},
		{"older content, a later age of TTL+1ms", ttl + 3*ms, from(relayed(ttl+4*ms, ttl+ms)), old(ttl + 3*ms)},
		{"content of long ago, a later age", ttl + 3*ms, from(as(relayed(ttl+2*ms, ttl), lease.Draining)), became(lease.Draining, ttl)},
		{"leave", 0, from(as(aged(0), lease.Left)), gone},
		{"leave message, equal heartbeat", 0, from(as(aged(before), lease.Left)), gone},
		{"leave message, older heartbeat", 0, from(as(aged(before+ms), lease.Left)), stale},
		{"leave message, age TTL+1ms", ttl + 2*ms, from(as(aged(ttl+ms), lease.Left)), gone}, // valid at any age
		{"leave message, as old as is remembered", remembered + 2*ms, from(as(aged(remembered), lease.Left)), gone},
		{"leave message, older than is remembered", remembered + 2*ms, from(as(aged(remembered+ms), lease.Left)), old(remembered + 2*ms)},
		{"leave message, too far ahead", 0, skewed(testParams.MaxSkew+ms, as(aged(0), lease.Left)), skewRejected},
		{"leave message, with a record that is missing", 0, from(as(sent(heavier(b), now), lease.Left)), gone},
		{"leave message, then a later heartbeat", 0, from(as(aged(ms), lease.Left), aged(0)), goneStale},
		{"leave message, then an earlier heartbeat", 0, from(as(aged(0), lease.Left), aged(ms)), goneStale},
		{
			"leave message of an older incarnation", 0, messageFrom(now, b, []lease.Heartbeat{as(sent(rec("b", 4), now), lease.Left)}, rec("b", 4)),
			stale,
		},
		{"leave message of an incarnation without a record", 0, from(as(sent(later, now), lease.Left)), same},
		{"leave message of an unknown node", 0, from(as(sent(c, now), lease.Left)), same},
		{"leave message of a newcomer", 0, messageFrom(now, c, []lease.Heartbeat{as(sent(c, now), lease.Left)}, c), same},
		{
			"leave message of a newcomer, then an earlier heartbeat", 0,
			messageFrom(now, c, []lease.Heartbeat{as(sent(c, now), lease.Left), sent(c, epoch)}, c), stale,
		},
		{"leave message of a later incarnation", 0, messageFrom(now, later, []lease.Heartbeat{as(sent(later, now), lease.Left)}, later), gone},
		{"unknown handle", 0, from(sent(c, now)), pulls(same, c)},
		{"unknown handle, dead already", 0, from(sent(c, now.Add(-ttl-ms))), stale},
		{"unknown handle from an unknown sender", 0, messageFrom(now, c, []lease.Heartbeat{sent(c, now)}), same},
		{"newer record version in a newer heartbeat", 0, from(sent(heavier(b), now)), pulls(renewed(0), b)},
		{"newer record version in a known heartbeat", 0, from(sent(heavier(b), epoch)), pulls(stale, b)},
		{
			"newcomer", 0, hello(now, c), with(same, func(w *want) {
				w.live, w.effect, w.stats.HeartbeatsApplied = append(w.live, "c/1"), news, 1
			}),
		},
		{
			"other settings", 0, func() *lease.Message {
				m := hello(now, later)
				m.Settings++
				return m
			}(), with(same, func(w *want) { w.stats.SettingsRefused = 1 }),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sent := now.Add(-cmp.Or(tc.known, before))
			s := startSet(sent, rec("a", 1), testParams)
			s.Apply(sent, hello(sent, b))
			past := s.Stats()
			pulls := func(e lease.Effect) []lease.Handle {
				if ask := request(s, now, tc.msg.From, e); ask != nil {
					return ask.PullRecords
				}
				return nil
			}
			got := want{effect: s.Apply(now, tc.msg), live: ids(s)}
			if m := member(s, "b"); m != nil {
				got.age, got.state, got.version = now.Sub(m.Renewed), m.State, m.Version
			}
			got.stats = minus(s.Stats(), past)
			got.pulls = pulls(got.effect)
			tc.want.effect.Counts = tc.want.stats.SettingsRefused == 0
			diff := gocmp.Diff(tc.want, got, gocmp.AllowUnexported(want{}), cmpopts.IgnoreUnexported(lease.Effect{}), cmpopts.EquateEmpty())
			if diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again := s.Apply(now, tc.msg); again.Changed || again.Urgent || pulls(again) != nil {
				t.Errorf("the same message again: %+v", again)
			}
		})
	}
}

// minus returns the difference between two counts.
func minus(now, past lease.Stats) lease.Stats {
	for i, v := 0, reflect.ValueOf(&now).Elem(); i < v.NumField(); i++ {
		v.Field(i).SetUint(v.Field(i).Uint() - reflect.ValueOf(past).Field(i).Uint())
	}
	return now
}

// If two heartbeats have the same stamp, the greater state counts, no matter which heartbeat arrives first.
func TestTwoStatesInOneHeartbeat(t *testing.T) {
	b := rec("b", 5)
	copies := []lease.Heartbeat{as(sent(b, epoch), lease.Draining), sent(b, epoch)}
	for range 2 {
		s := newSet(rec("a", 1))
		s.Apply(epoch, messageFrom(epoch, b, copies, b))
		if m := member(s, "b"); m == nil || m.State != lease.Draining {
			t.Errorf("%v first: %+v", copies[0].State, m)
		}
		slices.Reverse(copies)
	}
}

// An expired lease is not revived by a second state for the same heartbeat, nor by a heartbeat within two ticks,
// because one node may know the exact stamp of a dead node's latest heartbeat, and another node only the rounded age. A
// leave message always counts.
func TestRevival(t *testing.T) {
	b, dead := rec("b", 5), epoch.Add(testParams.TTL+ms)
	slack := 2 * testParams.TTL / 16
	for _, tc := range []struct {
		name    string
		later   time.Duration
		state   lease.State
		revives bool
		next    bool // a heartbeat sent when the lease has expired revives it
	}{
		{"a second state", 0, lease.Draining, false, true},
		{"a leave message", 0, lease.Left, false, false},
		{"within two ticks", slack, lease.Active, false, true},
		{"within two ticks, another state", slack, lease.Draining, false, true},
		{"later", slack + ms, lease.Active, true, true},
		{"a later leave message", slack + ms, lease.Left, false, false},
	} {
		s := newSet(rec("a", 1))
		s.Apply(epoch, hello(epoch, b))
		s.Expire(dead)
		e := s.Apply(dead, messageFrom(dead, b, []lease.Heartbeat{as(sent(b, epoch.Add(tc.later)), tc.state)}))
		if e.Changed != tc.revives || (member(s, "b") != nil) != tc.revives {
			t.Errorf("%s: %+v, live %v", tc.name, e, ids(s))
		}
		s.Apply(dead, hello(dead, b))
		if m := member(s, "b"); (m != nil) != tc.next || (m != nil && m.State != lease.Active) {
			t.Errorf("%s: by the next heartbeat %+v", tc.name, m)
		}
	}
}

// A leave message ends an incarnation permanently, even if the set already has MaxNodes nodes.
func TestLeaveWithoutRoom(t *testing.T) {
	s, b, x := crowd(lease.MaxNodes-1), rec("b", 1), rec("x", 1)
	s.Apply(epoch, hello(epoch, x))
	s.Apply(epoch, leave(epoch, x))
	room := epoch.Add(forgetAfter(testParams) + 1) // by then, x is forgotten, and the other nodes are still remembered
	s.Expire(epoch.Add(testParams.TTL + time.Second))
	late := room.Add(-time.Second)
	s.Apply(late, messageFrom(late, b, []lease.Heartbeat{as(sent(b, late), lease.Left)}, b))
	if s.Knows("b") {
		t.Fatal("the set is not full")
	}
	s.Expire(room)
	s.Apply(room, messageFrom(room, b, []lease.Heartbeat{sent(b, late.Add(-ms))}))
	if member(s, "b") != nil {
		t.Error("an earlier heartbeat began a lease after the leave message")
	}
	if s.Apply(room, hello(room, rec("c", 1))); member(s, "c") == nil {
		t.Error("there is no room")
	}
}
