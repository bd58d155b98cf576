package lease

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// accused returns the set of a, with the members b to e and the subject s, which all beat at
// the epoch.
func accused(t interface{ Helper() }, members ...NodeID) (s *Set, subject *Record) {
	t.Helper()
	s, subject = newSet(rec("a", 1)), rec("s", 1)
	for _, id := range append(members, "s") {
		s.Apply(epoch, hello(epoch, rec(id, 1)))
	}
	return s, subject
}

func accuses(by *Record, subject *Record, at time.Time, evidence Evidence) Accusation {
	return Accusation{Subject: subject.Handle(), Watcher: by.Handle(), At: stampAt(at), Evidence: evidence}
}

func TestAccusations(t *testing.T) { // S5.4
	b, c, stranger := rec("b", 1), rec("c", 1), rec("x", 1)
	s, later := rec("s", 1), epoch.Add(3*time.Second)
	for _, tc := range []struct {
		name    string
		members []NodeID
		all     []Accusation
		ends    bool
	}{
		{"two watchers", []NodeID{"b", "c"}, []Accusation{accuses(b, s, later, Refused), accuses(c, s, later, Silent)}, true},
		{"two silent ones", []NodeID{"b", "c"}, []Accusation{accuses(b, s, later, Silent), accuses(c, s, later, Silent)}, true},
		{"one", []NodeID{"b", "c"}, []Accusation{accuses(b, s, later, Refused)}, false},
		{"one, doubled", []NodeID{"b", "c"}, []Accusation{accuses(b, s, later, Refused), accuses(b, s, later, Silent), accuses(b, s, later.Add(ms), Refused)}, false},
		{"one, restarted", []NodeID{"b", "c"}, []Accusation{accuses(b, s, later, Refused), accuses(rec("b", 2), s, later, Refused)}, false},
		{"a stranger", []NodeID{"b", "c"}, []Accusation{accuses(b, s, later, Refused), accuses(stranger, s, later, Refused)}, false},
		{"itself", []NodeID{"b", "c"}, []Accusation{accuses(b, s, later, Refused), accuses(s, s, later, Refused)}, false},
		{"one before its heartbeat", []NodeID{"b", "c"}, []Accusation{accuses(b, s, later, Refused), accuses(c, s, epoch.Add(-time.Second), Refused)}, false},
		{"another incarnation", []NodeID{"b", "c"}, []Accusation{accuses(b, rec("s", 2), later, Refused), accuses(c, rec("s", 2), later, Refused)}, false},
		{"a kind of a later release", []NodeID{"b", "c"}, []Accusation{accuses(b, s, later, 9), accuses(c, s, later, 9)}, true},
		{"the only other one", nil, []Accusation{accuses(rec("a", 1), s, later, Refused)}, true},
		{"the only other one, silent", nil, []Accusation{accuses(rec("a", 1), s, later, Silent)}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set, _ := accused(t, tc.members...)
			if len(tc.members) > 0 { // a later run of b is live
				set.Apply(epoch, hello(epoch, rec("b", 2)))
			}
			m := messageFrom(later.Add(ms), rec("b", 2), nil)
			if len(tc.members) == 0 {
				m = messageFrom(later.Add(ms), s, nil)
			}
			m.Accusations = tc.all
			e := set.Apply(later.Add(ms), carry(t, m))
			if ended := set.AddrOf(s.Handle()) == ""; ended != tc.ends || e.Changed != tc.ends {
				t.Errorf("ended: %v, changed: %v", ended, e.Changed)
			}
			if why := set.Ended()[Incarnation{"s", 1}]; tc.ends && why != Crashed {
				t.Errorf("ended as %q", why)
			}
		})
	}
}

// The twin of proof of death is a sentence: the subject is live unless two watchers accuse it
// of having ended in the cell of its latest heartbeat or later. Order and doubles of what a
// set receives do not matter, nor whether it receives a heartbeat whole.
func TestAccusationsInAnyOrder(t *testing.T) { // S5.4
	grain := stamps(testParams.TTL) / 16
	rapid.Check(t, func(t *rapid.T) {
		watchers := []NodeID{"a", "b", "c", "d", "e"}
		set, s := accused(t, watchers[1:]...)
		now := epoch.Add(5 * time.Second)
		type fact struct {
			by NodeID // "" = a heartbeat
			at time.Time
		}
		var facts []fact
		for i := range rapid.IntRange(1, 10).Draw(t, "facts") {
			at := epoch.Add(time.Duration(rapid.IntRange(1, 4900).Draw(t, fmt.Sprint("ms ", i))) * ms)
			facts = append(facts, fact{rapid.SampledFrom(append(watchers, "")).Draw(t, fmt.Sprint("by ", i)), at})
		}
		facts = append(facts, facts[:rapid.IntRange(0, len(facts)).Draw(t, "doubled")]...)
		latest, by := stampAt(epoch), make(map[NodeID]Stamp)
		for _, f := range facts {
			m := messageFrom(now, rec("b", 1), nil)
			switch at := stampAt(f.at); {
			case f.by != "":
				by[f.by] = max(by[f.by], at)
				m.Accusations = []Accusation{accuses(rec(f.by, 1), s, f.at, Refused)}
			case rapid.Bool().Draw(t, "rounded"):
				latest = max(latest, at)
				b := s.sent(epoch)
				b.Renewed = max(b.At, at/grain*grain)
				m.Beats = []Beat{b}
			default:
				latest = max(latest, at)
				m.Beats = []Beat{s.sent(f.at)}
			}
			set.Apply(now, m)
		}
		accusers := 0
		for _, at := range by {
			if at/grain >= latest/grain {
				accusers++
			}
		}
		if isLive := set.AddrOf(s.Handle()) != ""; isLive != (accusers < 2) {
			t.Fatalf("live: %v, accused by %d of %v, latest heartbeat %d: %v", isLive, accusers, by, latest, facts)
		}
	})
}

// An accusation reaches a node that gossip does not tell it: the accused one, by the answer to
// its messages; a member that holds the accused one for live, by a repair.
func TestAccusationsArrive(t *testing.T) { // S5.4
	set, s := accused(t, "b", "c")
	now := epoch.Add(3 * time.Second)
	m := messageFrom(now, rec("b", 1), nil)
	m.Accusations = []Accusation{accuses(rec("b", 1), s, now, Refused), accuses(rec("c", 1), s, now, Refused)}
	set.Apply(now, m)
	has := func(what string, m *Message) {
		t.Helper()
		if m == nil || !slices.Contains(m.Accusations, accuses(rec("b", 1), s, now, Refused)) {
			t.Errorf("%s has no accusation: %+v", what, m)
		}
	}
	_, answer := set.AnswerExpired(now, s.Handle(), false, 1400)
	has("the answer to the accused", answer)
	has("a full exchange", set.Sync(now))
	has("gossip", set.Compose(now, 1400, 3)[0])
	other, _ := accused(t, "b", "c")
	other.self = other.known[rec("b", 1).Handle()] // of a member
	request := other.Request(now, nil, []Holding{other.holding(BucketID{})})
	answers := set.Answer(now, carry(t, request), 1400)
	if len(answers) == 0 {
		t.Fatal("no answer to a member that holds the accused for live")
	}
	has("the repair", answers[0])

	own := newSet(s)
	own.Apply(epoch, hello(epoch, rec("a", 1)))
	own.Apply(epoch, hello(epoch, rec("b", 1)))
	e := own.Apply(now, carry(t, answer))
	if e.Refute.IsZero() || e.Refute.Before(now) || e.Refute.After(now.Add(testParams.TTL/16)) {
		t.Errorf("the accused refutes at %v, it is %v", e.Refute, now)
	}
	own.Beat(e.Refute, 0, 0)
	set.Apply(e.Refute, messageFrom(e.Refute, s, []Beat{{Handle: s.Handle(), At: own.self.at, State: Active, Version: 1}}))
	if set.AddrOf(s.Handle()) == "" {
		t.Error("its next heartbeat does not refute the accusations")
	}
}

// Accusations are forgotten when no lease that they could end can hold any more. What they have
// ended stays ended.
func TestAccusationsAreForgotten(t *testing.T) {
	set, s := accused(t, "b", "c")
	now := epoch.Add(3 * time.Second)
	m := messageFrom(now, rec("b", 1), nil)
	m.Accusations = []Accusation{accuses(rec("b", 1), s, now, Refused), accuses(rec("c", 1), s, now, Refused)}
	set.Apply(now, m)
	now = now.Add(testParams.TTL + testParams.TTL/16 + time.Second)
	set.Beat(now, 0, 0)
	set.Apply(now, messageFrom(now, rec("b", 1), []Beat{rec("b", 1).sent(now)}))
	set.Expire(now)
	if len(set.accused) != 0 || len(set.known[s.Handle()].accusations()) != 0 {
		t.Error("accusations are kept")
	}
	set.Apply(now, carry(t, messageFrom(now, rec("b", 1), []Beat{s.sent(epoch.Add(2 * time.Second))})))
	if set.AddrOf(s.Handle()) != "" {
		t.Error("an old heartbeat revives it")
	}
}

// A node is proven dead by one watcher only where there are no others. Those count whose leases
// begin by the same message.
func TestOthersOfTheSameMessage(t *testing.T) { // S5.4
	for name, tt := range map[string]struct {
		others []NodeID
		state  State // of b, in a beat from before the accusation
		live   bool
	}{
		"none":          {nil, Active, false},
		"one":           {[]NodeID{"d"}, Active, true},
		"two":           {[]NodeID{"d", "e"}, Active, true},
		"another state": {nil, Draining, false},
	} {
		s, b, c := newSet(rec("a", 1)), rec("b", 1), rec("c", 1)
		s.Apply(epoch, hello(epoch, b))
		s.Apply(epoch, hello(epoch, c))
		m := messageFrom(epoch, c, []Beat{c.sent(epoch.Add(ms)).as(Left)})
		m.Accusations = []Accusation{{Subject: b.Handle(), Watcher: c.Handle(), At: stampAt(epoch.Add(2 * time.Second)), Evidence: Refused}}
		s.Apply(epoch.Add(2*time.Second), m)
		if got := ids(s); !slices.Equal(got, []string{"a/1"}) {
			t.Fatalf("%s: live: %v, want a alone", name, got)
		}
		now := epoch.Add(3 * time.Second)
		m = messageFrom(now, c, nil)
		for _, id := range tt.others {
			r := rec(id, 1)
			m.Records, m.Beats = append(m.Records, r), append(m.Beats, r.sent(now))
		}
		m.Beats = append(m.Beats, b.sent(epoch.Add(time.Second)).as(tt.state))
		s.Apply(now, m)
		wantLiveInOrder(t, s)
		if live := member(s, "b") != nil; live != tt.live {
			t.Errorf("%s: b is live: %v, want %v", name, live, tt.live)
		}
	}
}

// A beat may arrive with the farewell of the watcher that kept its node from being proven dead.
func TestBeatOfProvenNode(t *testing.T) { // S5.4
	s, b, c := newSet(rec("a", 1)), rec("b", 1), rec("c", 1)
	s.Apply(epoch, hello(epoch, b))
	s.Apply(epoch, hello(epoch, c))
	now := epoch.Add(2 * time.Second)
	m := messageFrom(now, c, nil)
	m.Accusations = []Accusation{{Subject: b.Handle(), Watcher: c.Handle(), At: stampAt(now), Evidence: Refused}}
	s.Apply(now, m)
	if got := ids(s); !slices.Equal(got, []string{"a/1", "b/1", "c/1"}) {
		t.Fatalf("live: %v: one watcher of two is enough", got)
	}
	s.Apply(now, messageFrom(now, c, []Beat{c.sent(now).as(Left), b.sent(epoch.Add(time.Second)).as(Settling)}))
	if got := ids(s); !slices.Equal(got, []string{"a/1"}) {
		t.Errorf("live: %v, want a alone", got)
	}
	wantLiveInOrder(t, s)
}
