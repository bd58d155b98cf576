package lease_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

// reported returns the set of a, which knows the given members and the subject s. All of them sent a heartbeat at the
// epoch.
func reported(t interface{ Helper() }, members ...lease.NodeID) (s *lease.Set, subject *lease.Record) {
	t.Helper()
	s, subject = newSet(rec("a", 1)), rec("s", 1)
	for _, id := range append(members, "s") {
		s.Apply(epoch, hello(epoch, rec(id, 1)))
	}
	return s, subject
}

func reports(by *lease.Record, subject *lease.Record, at time.Time, evidence lease.Evidence) lease.FailureReport {
	return lease.FailureReport{Subject: subject.Handle(), Watcher: by.Handle(), At: stampAt(at), Evidence: evidence}
}

func TestFailureReports(t *testing.T) {
	b, c, outsider := rec("b", 1), rec("c", 1), rec("x", 1)
	s, later := rec("s", 1), epoch.Add(3*time.Second)
	for _, tc := range []struct {
		name    string
		members []lease.NodeID
		all     []lease.FailureReport
		ends    bool
	}{
		{
			"two watchers",
			[]lease.NodeID{"b", "c"},
			[]lease.FailureReport{reports(b, s, later, lease.Refused), reports(c, s, later, lease.Silent)},
			true,
		},
		{
			"two silent ones",
			[]lease.NodeID{"b", "c"},
			[]lease.FailureReport{reports(b, s, later, lease.Silent), reports(c, s, later, lease.Silent)},
			true,
		},
		{"one", []lease.NodeID{"b", "c"}, []lease.FailureReport{reports(b, s, later, lease.Refused)}, false},
		{
			"one, doubled",
			[]lease.NodeID{"b", "c"},
			[]lease.FailureReport{
				reports(b, s, later, lease.Refused), reports(b, s, later, lease.Silent),
				reports(b, s, later.Add(ms), lease.Refused),
			},
			false,
		},
		{
			"one, restarted",
			[]lease.NodeID{"b", "c"},
			[]lease.FailureReport{reports(b, s, later, lease.Refused), reports(rec("b", 2), s, later, lease.Refused)},
			false,
		},
		{
			"an unknown watcher",
			[]lease.NodeID{"b", "c"},
			[]lease.FailureReport{reports(b, s, later, lease.Refused), reports(outsider, s, later, lease.Refused)},
			false,
		},
		{
			"itself",
			[]lease.NodeID{"b", "c"},
			[]lease.FailureReport{reports(b, s, later, lease.Refused), reports(s, s, later, lease.Refused)},
			false,
		},
		{
			"one before its heartbeat",
			[]lease.NodeID{"b", "c"},
			[]lease.FailureReport{reports(b, s, later, lease.Refused), reports(c, s, epoch.Add(-time.Second), lease.Refused)},
			false,
		},
		{
			"another incarnation",
			[]lease.NodeID{"b", "c"},
			[]lease.FailureReport{reports(b, rec("s", 2), later, lease.Refused), reports(c, rec("s", 2), later, lease.Refused)},
			false,
		},
		{"a kind of a later release", []lease.NodeID{"b", "c"}, []lease.FailureReport{reports(b, s, later, 9), reports(c, s, later, 9)}, true},
		{"the only other one", nil, []lease.FailureReport{reports(rec("a", 1), s, later, lease.Refused)}, true},
		{"the only other one, silent", nil, []lease.FailureReport{reports(rec("a", 1), s, later, lease.Silent)}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set, _ := reported(t, tc.members...)
			if len(tc.members) > 0 { // a later process of b is live
				set.Apply(epoch, hello(epoch, rec("b", 2)))
			}
			m := messageFrom(later.Add(ms), rec("b", 2), nil)
			if len(tc.members) == 0 {
				m = messageFrom(later.Add(ms), s, nil)
			}
			m.FailureReports = tc.all
			e := set.Apply(later.Add(ms), carry(t, m))
			if ended := set.AddrOf(s.Handle()) == ""; ended != tc.ends || e.Changed != tc.ends {
				t.Errorf("ended: %v, changed: %v", ended, e.Changed)
			}
			if why := set.Ended()[lease.Incarnation{"s", 1}]; tc.ends && why != lease.Crashed {
				t.Errorf("ended as %q", why)
			}
		})
	}
}

// This test compares a set with a simple rule: the subject is live unless two watchers report that it ended in the tick
// of its latest heartbeat or later. The set receives heartbeats and failure reports in any order, some of them twice,
// and some heartbeats only as rounded ages.
func TestFailureReportsInAnyOrder(t *testing.T) {
	tick := stamps(testParams.TTL) / 16
	rapid.Check(t, func(t *rapid.T) {
		watchers := []lease.NodeID{"a", "b", "c", "d", "e"}
		set, s := reported(t, watchers[1:]...)
		now := epoch.Add(5 * time.Second)
		type fact struct {
			by lease.NodeID // "" = a heartbeat
			at time.Time
		}
		var facts []fact
		for i := range rapid.IntRange(1, 10).Draw(t, "facts") {
			at := epoch.Add(time.Duration(rapid.IntRange(1, 4900).Draw(t, fmt.Sprint("ms ", i))) * ms)
			facts = append(facts, fact{rapid.SampledFrom(append(watchers, "")).Draw(t, fmt.Sprint("by ", i)), at})
		}
		facts = append(facts, facts[:rapid.IntRange(0, len(facts)).Draw(t, "doubled")]...)
		latest, by := stampAt(epoch), make(map[lease.NodeID]lease.Stamp)
		for _, f := range facts {
			m := messageFrom(now, rec("b", 1), nil)
			switch at := stampAt(f.at); {
			case f.by != "":
				by[f.by] = max(by[f.by], at)
				m.FailureReports = []lease.FailureReport{reports(rec(f.by, 1), s, f.at, lease.Refused)}
			case rapid.Bool().Draw(t, "rounded"):
				latest = max(latest, at)
				b := sent(s, epoch)
				b.Renewed = max(b.At, at/tick*tick)
				m.Heartbeats = []lease.Heartbeat{b}
			default:
				latest = max(latest, at)
				m.Heartbeats = []lease.Heartbeat{sent(s, f.at)}
			}
			set.Apply(now, m)
		}
		reporters := 0
		for _, at := range by {
			if at/tick >= latest/tick {
				reporters++
			}
		}
		if isLive := set.AddrOf(s.Handle()) != ""; isLive != (reporters < 2) {
			t.Fatalf("live: %v, reported by %d of %v, latest heartbeat %d: %v", isLive, reporters, by, latest, facts)
		}
	})
}

// A failure report also reaches nodes that missed the gossip. The reported node gets it in the answer to its
// messages, and a member that considers the reported node live gets it in a repair.
func TestFailureReportsArrive(t *testing.T) {
	set, s := reported(t, "b", "c")
	now := epoch.Add(3 * time.Second)
	m := messageFrom(now, rec("b", 1), nil)
	m.FailureReports = []lease.FailureReport{reports(rec("b", 1), s, now, lease.Refused), reports(rec("c", 1), s, now, lease.Refused)}
	set.Apply(now, m)
	has := func(what string, m *lease.Message) {
		t.Helper()
		if m == nil || !slices.Contains(m.FailureReports, reports(rec("b", 1), s, now, lease.Refused)) {
			t.Errorf("%s has no failure report: %+v", what, m)
		}
	}
	_, told := answerExpired(set, now, s.Handle(), false)
	has("the answer to the reported node", told)
	has("a full exchange", set.Sync(now))
	has("gossip", set.Compose(now, 1400, 3)[0])
	other, _ := reported(t, "b", "c")
	request := asksBack(other, now, rec("c", 1))
	request.From = rec("b", 1).Handle() // of a member
	answers := answer(set, now, carry(t, request), 1400)
	if len(answers) == 0 {
		t.Fatal("no answer to a member that holds the reported node for live")
	}
	has("the repair", answers[0])

	own := newSet(s)
	own.Apply(epoch, hello(epoch, rec("a", 1)))
	own.Apply(epoch, hello(epoch, rec("b", 1)))
	e := own.Apply(now, carry(t, told))
	if e.Refute.IsZero() || e.Refute.Before(now) || e.Refute.After(now.Add(testParams.TTL/16)) {
		t.Errorf("the reported node refutes at %v, it is %v", e.Refute, now)
	}
	own.Heartbeat(e.Refute, 0, 0)
	set.Apply(e.Refute, messageFrom(e.Refute, s,
		[]lease.Heartbeat{{Handle: s.Handle(), At: own.Sync(e.Refute).Heartbeats[0].At, State: lease.Active, Version: 1}}))
	if set.AddrOf(s.Handle()) == "" {
		t.Error("its next heartbeat does not refute the failure reports")
	}
}

// A set forgets failure reports as soon as every lease that they could end has expired. A lease that the reports have
// ended stays ended.
func TestFailureReportsAreForgotten(t *testing.T) {
	set, s := reported(t, "b", "c")
	now := epoch.Add(3 * time.Second)
	m := messageFrom(now, rec("b", 1), nil)
	m.FailureReports = []lease.FailureReport{reports(rec("b", 1), s, now, lease.Refused), reports(rec("c", 1), s, now, lease.Refused)}
	set.Apply(now, m)
	now = now.Add(testParams.TTL + testParams.TTL/16 + time.Second)
	set.Heartbeat(now, 0, 0)
	set.Apply(now, messageFrom(now, rec("b", 1), []lease.Heartbeat{sent(rec("b", 1), now)}))
	set.Expire(now)
	if set.Sizes()["reported"] != 0 || len(set.Sync(now).FailureReports) != 0 {
		t.Error("failure reports are kept")
	}
	set.Apply(now, carry(t, messageFrom(now, rec("b", 1), []lease.Heartbeat{sent(s, epoch.Add(2*time.Second))})))
	if set.AddrOf(s.Handle()) != "" {
		t.Error("an old heartbeat revives it")
	}
}

// The report of a single watcher confirms a failure only if there is no other watcher. Nodes whose leases begin with
// the same message also count as watchers.
func TestOthersOfTheSameMessage(t *testing.T) {
	for name, tt := range map[string]struct {
		others []lease.NodeID
		state  lease.State // of b, in a heartbeat from before the failure report
		live   bool
	}{
		"none":          {nil, lease.Active, false},
		"one":           {[]lease.NodeID{"d"}, lease.Active, true},
		"two":           {[]lease.NodeID{"d", "e"}, lease.Active, true},
		"another state": {nil, lease.Draining, false},
	} {
		s, b, c := newSet(rec("a", 1)), rec("b", 1), rec("c", 1)
		s.Apply(epoch, hello(epoch, b))
		s.Apply(epoch, hello(epoch, c))
		m := messageFrom(epoch, c, []lease.Heartbeat{as(sent(c, epoch.Add(ms)), lease.Left)})
		m.FailureReports = []lease.FailureReport{
			{Subject: b.Handle(), Watcher: c.Handle(), At: stampAt(epoch.Add(2 * time.Second)), Evidence: lease.Refused},
		}
		s.Apply(epoch.Add(2*time.Second), m)
		if got := ids(s); !slices.Equal(got, []string{"a/1"}) {
			t.Fatalf("%s: live: %v, want a alone", name, got)
		}
		now := epoch.Add(3 * time.Second)
		m = messageFrom(now, c, nil)
		for _, id := range tt.others {
			r := rec(id, 1)
			m.Records, m.Heartbeats = append(m.Records, r), append(m.Heartbeats, sent(r, now))
		}
		m.Heartbeats = append(m.Heartbeats, as(sent(b, epoch.Add(time.Second)), tt.state))
		s.Apply(now, m)
		wantLiveInOrder(t, s)
		if live := member(s, "b") != nil; live != tt.live {
			t.Errorf("%s: b is live: %v, want %v", name, live, tt.live)
		}
	}
}

// The report of watcher c does not confirm the failure of b while c is live, because a cluster of three needs two
// reports. When c leaves, its report is enough, even if an earlier heartbeat of b arrives in the same message.
func TestHeartbeatOfConfirmedFailure(t *testing.T) {
	s, b, c := newSet(rec("a", 1)), rec("b", 1), rec("c", 1)
	s.Apply(epoch, hello(epoch, b))
	s.Apply(epoch, hello(epoch, c))
	now := epoch.Add(2 * time.Second)
	m := messageFrom(now, c, nil)
	m.FailureReports = []lease.FailureReport{{Subject: b.Handle(), Watcher: c.Handle(), At: stampAt(now), Evidence: lease.Refused}}
	s.Apply(now, m)
	if got := ids(s); !slices.Equal(got, []string{"a/1", "b/1", "c/1"}) {
		t.Fatalf("live: %v: one watcher of two is enough", got)
	}
	s.Apply(now, messageFrom(now, c, []lease.Heartbeat{as(sent(c, now), lease.Left), as(sent(b, epoch.Add(time.Second)), lease.Settling)}))
	if got := ids(s); !slices.Equal(got, []string{"a/1"}) {
		t.Errorf("live: %v, want a alone", got)
	}
	wantLiveInOrder(t, s)
}

// A set lists a process as crashed only if two watchers report that a connection was refused, and only for about a TTL.
func TestCrashed(t *testing.T) {
	subject := lease.Incarnation{"d", 1}
	for _, c := range []struct {
		own, others lease.Evidence
		want        []lease.Incarnation
	}{
		{lease.Refused, lease.Refused, []lease.Incarnation{subject}},
		{lease.Refused, lease.Silent, nil},
		{lease.Silent, lease.Silent, nil},
	} {
		s := newSet(rec("a", 1))
		for _, id := range []lease.NodeID{"b", "c", "d"} {
			s.Apply(epoch, hello(epoch, rec(id, 1)))
		}
		now := epoch.Add(5 * time.Second / 2)
		d := subject.Handle()
		s.ReportFailure(now, d, now, c.own)
		if s.View().Crashed != nil {
			t.Errorf("%v: crashed by one word", c)
		}
		m := hello(now, rec("b", 1))
		m.FailureReports = []lease.FailureReport{{Subject: d, Watcher: m.From, At: m.Stamp, Evidence: c.others}}
		s.Apply(now, m)
		if s.AddrOf(d) != "" {
			t.Errorf("%v: d is live still", c)
		}
		if got := s.View().Crashed; !slices.Equal(got, c.want) {
			t.Errorf("%v: crashed are %v, want %v", c, got, c.want)
		}
		now = now.Add(testParams.TTL + testParams.TTL/8)
		s.Expire(now)
		if got := s.View().Crashed; got != nil {
			t.Errorf("%v: crashed are %v after a TTL", c, got)
		}
	}
}

// If the second watcher has certainly ended, the report of the remaining watcher is enough, as in a cluster of two. A
// watcher that is only silent may be on the other side of a split.
func TestCrashedOneAfterAnother(t *testing.T) {
	b, c := lease.Incarnation{"b", 1}, lease.Incarnation{"c", 1}
	for _, tt := range []struct {
		first lease.Evidence // evidence that b has ended
		want  []lease.Incarnation
	}{
		{lease.Refused, []lease.Incarnation{b, c}},
		{lease.Silent, nil},
	} {
		s := newSet(rec("a", 1))
		s.Apply(epoch, hello(epoch, rec("b", 1)))
		s.Apply(epoch, hello(epoch, rec("c", 1)))
		now := epoch.Add(5 * time.Second / 2)
		s.ReportFailure(now, b.Handle(), now, tt.first)
		m := hello(now, rec("c", 1))
		m.FailureReports = []lease.FailureReport{{Subject: b.Handle(), Watcher: m.From, At: m.Stamp, Evidence: tt.first}}
		s.Apply(now, m)
		now = now.Add(2 * time.Second)
		s.ReportFailure(now, c.Handle(), now, lease.Refused)
		if got := ids(s); !slices.Equal(got, []string{"a/1"}) {
			t.Fatalf("live: %v, want a alone", got)
		}
		got := s.View().Crashed
		slices.SortFunc(got, lease.Incarnation.Compare)
		if !slices.Equal(got, tt.want) {
			t.Errorf("b by %v: crashed are %v, want %v", tt.first, got, tt.want)
		}
	}
}
