package lease

import (
	"cmp"
	"reflect"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Node a knows b/5 by a heartbeat of record version 2, sent at the epoch unless a row says
// earlier. One second after the epoch a message arrives.
func TestApplyBoundaries(t *testing.T) {
	b := rec("b", 5)
	b.Version = 2
	c := rec("c", 1)
	later := rec("b", 6)
	now := epoch.Add(time.Second)
	from := func(heartbeats ...Heartbeat) *Message { return messageFrom(now, b, heartbeats) }
	aged := func(age time.Duration) Heartbeat { return b.sent(now.Add(-age)) }
	skewed := func(d time.Duration, heartbeat Heartbeat) *Message { return from(heartbeat).by(d) }
	// relayed is a row with the content of an earlier heartbeat than the latest known of.
	relayed := func(content, latest time.Duration) Heartbeat {
		heartbeat := aged(content)
		heartbeat.Renewed = stampAt(now.Add(-latest))
		return heartbeat
	}
	const ttl, before = 6 * time.Second, time.Second // before: the age of the known heartbeat
	type want struct {
		live    []string
		age     time.Duration // of b
		state   State
		version uint32
		effect  Effect
		stats   Stats // what the message added
	}
	same := want{live: []string{"a/1", "b/5"}, age: before, state: Active, version: 2}
	with := func(w want, change func(*want)) want {
		change(&w)
		return w
	}
	stale := with(same, func(w *want) { w.stats.HeartbeatsStale = 1 })
	renewed := func(age time.Duration) want {
		return with(same, func(w *want) { w.age, w.stats.HeartbeatsApplied = age, 1 })
	}
	skewRejected := with(same, func(w *want) { w.stats.SkewRejected = 1 })
	news := Effect{Changed: true, Urgent: true}
	became := func(state State, age time.Duration) want {
		return with(renewed(age), func(w *want) { w.state, w.effect = state, news })
	}
	pulls := func(w want, r *Record) want {
		return with(w, func(w *want) { w.effect.pullRecords = []Handle{r.Handle()} })
	}
	old := func(age time.Duration) want { return with(stale, func(w *want) { w.age = age }) }
	gone := want{live: []string{"a/1"}, effect: news}
	goneStale := with(gone, func(w *want) { w.stats.HeartbeatsStale = 1 })
	remembered := testParams.forgetAfter()

	for _, tc := range []struct {
		name  string
		known time.Duration // the age of the known heartbeat, if not before
		msg   *Message
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
			"newer record", 0, messageFrom(now, b, nil, b.heavier()),
			with(same, func(w *want) { w.version, w.effect = 3, news }),
		},
		{"older incarnation", 0, hello(now, rec("b", 4)), stale},
		{
			"newer incarnation", 0, hello(now, later), // a returning node sends its next heartbeat
			want{live: []string{"a/1", "b/6"}, state: Active, version: 1, effect: news, stats: Stats{HeartbeatsApplied: 1}},
		},
		{"newer incarnation, no heartbeat", 0, messageFrom(now, later, nil, later), same},
		{"newer incarnation, dead already", 0, messageFrom(now, later, []Heartbeat{later.sent(now.Add(-ttl - ms))}, later), stale},
		{"another state", 0, from(aged(0).as(Draining)), became(Draining, 0)},
		{"an earlier state", 0, from(aged(0).as(Settling)), became(Settling, 0)},
		{
			"equal heartbeat, a greater state", 0, from(aged(before).as(Draining)),
			became(Draining, before),
		},
		{"equal heartbeat, a lesser state", 0, from(aged(before).as(Settling)), stale},
		{"older heartbeat, another state", 0, from(aged(before + ms).as(Draining)), stale},
		{"another state, age TTL+1ms", ttl + 2*ms, from(aged(ttl + ms).as(Draining)), old(ttl + 2*ms)},
		{
			"another state, back again", 0, from(aged(ms).as(Draining), aged(0)),
			with(became(Active, 0), func(w *want) { w.stats.HeartbeatsApplied = 2 }),
		},
		{"another state, too far ahead", 0, skewed(testParams.MaxSkew+ms, aged(0).as(Draining)), skewRejected},
		{
			"another state, with a record that is missing", 0, from(b.heavier().sent(now).as(Draining)),
			pulls(became(Draining, 0), b),
		},
		{"known content, a later age", 0, from(relayed(before, ms)), renewed(ms)},
		{"older content, a later age", 0, from(relayed(before+ms, 0).as(Draining)), renewed(0)},
		{"older content, a later age of TTL+1ms", ttl + 3*ms, from(relayed(ttl+4*ms, ttl+ms)), old(ttl + 3*ms)},
		{"content of long ago, a later age", ttl + 3*ms, from(relayed(ttl+2*ms, ttl).as(Draining)), became(Draining, ttl)},
		{"leave", 0, from(aged(0).as(Left)), gone},
		{"leave message, equal heartbeat", 0, from(aged(before).as(Left)), gone},
		{"leave message, older heartbeat", 0, from(aged(before + ms).as(Left)), stale},
		{"leave message, age TTL+1ms", ttl + 2*ms, from(aged(ttl + ms).as(Left)), gone}, // valid at any age
		{"leave message, as old as is remembered", remembered + 2*ms, from(aged(remembered).as(Left)), gone},
		{"leave message, older than is remembered", remembered + 2*ms, from(aged(remembered + ms).as(Left)), old(remembered + 2*ms)},
		{"leave message, too far ahead", 0, skewed(testParams.MaxSkew+ms, aged(0).as(Left)), skewRejected},
		{"leave message, with a record that is missing", 0, from(b.heavier().sent(now).as(Left)), gone},
		{"leave message, then a later heartbeat", 0, from(aged(ms).as(Left), aged(0)), goneStale},
		{"leave message, then an earlier heartbeat", 0, from(aged(0).as(Left), aged(ms)), goneStale},
		{
			"leave message of an older incarnation", 0, messageFrom(now, b, []Heartbeat{rec("b", 4).sent(now).as(Left)}, rec("b", 4)),
			stale,
		},
		{"leave message of an incarnation without a record", 0, from(later.sent(now).as(Left)), same},
		{"leave message of an unknown node", 0, from(c.sent(now).as(Left)), same},
		{"leave message of a newcomer", 0, messageFrom(now, c, []Heartbeat{c.sent(now).as(Left)}, c), same},
		{
			"leave message of a newcomer, then an earlier heartbeat", 0,
			messageFrom(now, c, []Heartbeat{c.sent(now).as(Left), c.sent(epoch)}, c), stale,
		},
		{"leave message of a later incarnation", 0, messageFrom(now, later, []Heartbeat{later.sent(now).as(Left)}, later), gone},
		{"unknown handle", 0, from(c.sent(now)), pulls(same, c)},
		{"unknown handle, dead already", 0, from(c.sent(now.Add(-ttl - ms))), stale},
		{"unknown handle from an unknown sender", 0, messageFrom(now, c, []Heartbeat{c.sent(now)}), same},
		{"newer record version in a newer heartbeat", 0, from(b.heavier().sent(now)), pulls(renewed(0), b)},
		{"newer record version in a known heartbeat", 0, from(b.heavier().sent(epoch)), pulls(stale, b)},
		{
			"newcomer", 0, hello(now, c), with(same, func(w *want) {
				w.live, w.effect, w.stats.HeartbeatsApplied = append(w.live, "c/1"), news, 1
			}),
		},
		{
			"other settings", 0, func() *Message {
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
			past := s.stats
			got := want{effect: s.Apply(now, tc.msg), live: ids(s)}
			if m := member(s, "b"); m != nil {
				got.age, got.state, got.version = now.Sub(m.Renewed), m.State, m.Version
			}
			got.stats = minus(s.Stats(), past)
			tc.want.effect.Counts = tc.want.stats.SettingsRefused == 0
			if diff := gocmp.Diff(tc.want, got, gocmp.AllowUnexported(want{}, Effect{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again := s.Apply(now, tc.msg); again.Changed || again.Urgent || again.pullRecords != nil {
				t.Errorf("the same message again: %+v", again)
			}
		})
	}
}

// minus returns what was counted since past.
func minus(now, past Stats) Stats {
	for i, v := 0, reflect.ValueOf(&now).Elem(); i < v.NumField(); i++ {
		v.Field(i).SetUint(v.Field(i).Uint() - reflect.ValueOf(past).Field(i).Uint())
	}
	return now
}

// Of two heartbeats with one stamp, the greater state counts, in any order.
func TestTwoStatesInOneHeartbeat(t *testing.T) {
	b := rec("b", 5)
	copies := []Heartbeat{b.sent(epoch).as(Draining), b.sent(epoch)}
	for range 2 {
		s := newSet(rec("a", 1))
		s.Apply(epoch, messageFrom(epoch, b, copies, b))
		if m := member(s, "b"); m == nil || m.State != Draining {
			t.Errorf("%v first: %+v", copies[0].State, m)
		}
		slices.Reverse(copies)
	}
}

// Neither a second state for one heartbeat nor a heartbeat within two ticks revives an expired
// lease: the latest heartbeat of a dead node is known here rounded down, there exactly. A
// leave message counts.
func TestRevival(t *testing.T) {
	b, dead := rec("b", 5), epoch.Add(testParams.TTL+ms)
	slack := 2 * millis(newSet(b).params.tick())
	for _, tc := range []struct {
		name    string
		later   time.Duration
		state   State
		revives bool
		next    bool // a heartbeat sent when the lease has expired revives it
	}{
		{"a second state", 0, Draining, false, true},
		{"a leave message", 0, Left, false, false},
		{"within two ticks", slack, Active, false, true},
		{"within two ticks, another state", slack, Draining, false, true},
		{"later", slack + ms, Active, true, true},
		{"a later leave message", slack + ms, Left, false, false},
	} {
		s := newSet(rec("a", 1))
		s.Apply(epoch, hello(epoch, b))
		s.Expire(dead)
		e := s.Apply(dead, messageFrom(dead, b, []Heartbeat{b.sent(epoch.Add(tc.later)).as(tc.state)}))
		if e.Changed != tc.revives || (member(s, "b") != nil) != tc.revives {
			t.Errorf("%s: %+v, live %v", tc.name, e, ids(s))
		}
		s.Apply(dead, hello(dead, b))
		if m := member(s, "b"); (m != nil) != tc.next || (m != nil && m.State != Active) {
			t.Errorf("%s: by the next heartbeat %+v", tc.name, m)
		}
	}
}

// A leave message ends an incarnation for good even at MaxNodes.
func TestLeaveWithoutRoom(t *testing.T) {
	s := crowd(MaxNodes)
	b := rec("b", 1)
	s.Apply(epoch, messageFrom(epoch, b, []Heartbeat{b.sent(epoch).as(Left)}, b))
	if s.latest("b") != nil {
		t.Fatal("the set is not full")
	}
	i, _ := s.searchNode("node-0001")
	s.nodes = slices.Delete(s.nodes, i, i+1)
	s.Apply(epoch, messageFrom(epoch, b, []Heartbeat{b.sent(epoch.Add(-ms))}))
	if member(s, "b") != nil {
		t.Error("an earlier heartbeat began a lease after the leave message")
	}
}
