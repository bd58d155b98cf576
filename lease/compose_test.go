package lease

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// No encoded digest exceeds its budget.
func TestComposeKeepsItsBudget(t *testing.T) {
	odd := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64())
	rapid.Check(t, func(t *rapid.T) {
		table := rapid.Uint32Range(0, 2)
		self := rec("a", 1)
		self.Zone = rapid.StringN(0, -1, MaxZoneBytes).Draw(t, "zone")
		s := newSet(self)
		s.Beat(epoch, odd.Draw(t, "load"), table.Draw(t, "table"))
		for i := range rapid.IntRange(0, 60).Draw(t, "peers") {
			r := rec(NodeID(fmt.Sprintf("n%d", i)), 1)
			r.Labels = manyLabels(rapid.IntRange(0, 8).Draw(t, "labels"), 40)
			b := r.beat(rapid.Uint32().Draw(t, "seq"), time.Duration(rapid.IntRange(0, 6000).Draw(t, "age"))*ms)
			b.Table, b.Load = table.Draw(t, "its table"), max(0, odd.Draw(t, "its load"))
			b.Clock = -time.Duration(max(0, odd.Draw(t, "clock")))
			s.Apply(epoch, messageFrom(epoch, r, []Beat{b}, r))
		}
		budget := rapid.IntRange(0, 3000).Draw(t, "budget")
		grown := manyLabels(8, rapid.IntRange(0, 40).Draw(t, "later labels"))
		for round := range 100 {
			m := s.Compose(epoch.Add(time.Second), budget, 1)
			if m == nil {
				return
			}
			if round%20 == 10 { // records that were measured before grow
				s.Update(func(r *Record) { r.Labels = grown })
				for _, e := range s.View().Members {
					s.Apply(epoch, messageFrom(epoch, e.Record, nil, e.with(func(r *Record) { r.Labels = grown })))
				}
			}
			wire := Encode(m)
			if len(wire) > budget {
				t.Fatalf("%d beats, %d records: %d bytes of %d", len(m.Beats), len(m.Records), len(wire), budget)
			}
			if _, err := Decode(wire); err != nil {
				t.Fatal(err)
			}
			if m.Beats[0].Handle != s.Handle() {
				t.Fatal("the own beat does not come first")
			}
		}
	})
}

// A digest with room for another row takes it. A digest with a record that has grown
// leaves out the rows that no longer fit.
func TestComposeFillsItsBudget(t *testing.T) {
	s := crowd(500)
	m := digestOf(s)
	size := len(Encode(m))
	if size < 1400-messageOverhead-24 || size > 1400 {
		t.Errorf("%d beats: %d bytes of 1400", len(m.Beats), size)
	}
	t.Logf("%d rows in %d bytes", len(m.Beats), size)

	s.Update(func(r *Record) { r.Labels = manyLabels(10, 40) })
	m = s.Compose(epoch, 1400, 1)
	size = len(Encode(m))
	if len(m.Records) != 1 || size > 1400 {
		t.Errorf("%d records, %d beats: %d bytes of 1400", len(m.Records), len(m.Beats), size)
	}
}

// With more news than fits, every beat and record is sent about equally often, and
// often enough. Then Compose returns nil until the next news.
func TestComposeIsFair(t *testing.T) {
	const recipients = 3
	s := crowd(200)
	beats, records := make(map[Handle]int), make(map[NodeID]int)
	spread := func(counts []int) int { return slices.Max(counts) - slices.Min(counts) }
	counts := func() (b, r []int) {
		for _, m := range s.View().Members {
			if m.Handle != s.Handle() {
				b, r = append(b, beats[m.Handle]), append(r, records[m.ID])
			}
		}
		return b, r
	}
	digests := 0
	for m := s.Compose(epoch, 1400, recipients); m != nil; m = s.Compose(epoch, 1400, recipients) {
		digests++
		for i := range m.Beats {
			beats[m.Beats[i].Handle] += recipients
		}
		for _, r := range m.Records {
			records[r.ID] += recipients
		}
		if b, r := counts(); spread(b) > recipients || spread(r) > recipients {
			t.Fatalf("digest %d: spread of beats %d, of records %d", digests, spread(b), spread(r))
		}
		if digests > 10_000 {
			t.Fatal("Compose never returns nil")
		}
	}
	b, r := counts()
	if slices.Min(b) < s.beatCopies() || slices.Min(r) < s.recordCopies() {
		t.Errorf("least copies: beats %d of %d, records %d of %d",
			slices.Min(b), s.beatCopies(), slices.Min(r), s.recordCopies())
	}
	if s.Compose(epoch, 1400, recipients) != nil {
		t.Error("a message without news")
	}

	other := s.View().Members[100]
	now := epoch.Add(time.Second)
	s.Apply(now, messageFrom(now, other.Record, []Beat{other.beat(other.Seq+1, 0)}))
	m := s.Compose(now, 1400, recipients)
	if m == nil || len(m.Beats) != 2 || m.Beats[1].Handle != other.Handle || len(m.Records) != 0 {
		t.Errorf("after one new beat: %+v", m)
	}
	now = now.Add(time.Second)
	s.Apply(now, messageFrom(now, other.Record, nil, other.heavier()))
	m = s.Compose(now, 1400, recipients)
	if m == nil || len(m.Records) != 1 || m.Records[0].Weight != 2 {
		t.Errorf("after a new record: %+v", m)
	}
	for m != nil {
		m = s.Compose(now, 1400, recipients)
	}
	for i, state := range []State{Draining, Left} {
		now = now.Add(time.Second)
		s.Apply(now, messageFrom(now, other.Record, []Beat{other.beat(other.Seq+2+uint32(i), 0).as(state)}))
		copies := 0
		for m = s.Compose(now, 1400, recipients); m != nil; m = s.Compose(now, 1400, recipients) {
			if len(m.Beats) != 2 || m.Beats[1].Handle != other.Handle || m.Beats[1].State != state || len(m.Records) != 0 {
				t.Fatalf("after a change of state to %v: %+v", state, m)
			}
			copies += recipients
		}
		if copies < s.beatCopies() {
			t.Errorf("%d copies of a change of state to %v, want %d", copies, state, s.beatCopies())
		}
	}
}

// Of equally often relayed beats, the freshest go first.
func TestComposeSendsTheFreshestFirst(t *testing.T) {
	s := newSet(rec("a", 1))
	for i, age := range []time.Duration{3, 1, 2} {
		r := rec(NodeID(fmt.Sprintf("n%d", i)), 1)
		s.Apply(epoch, messageFrom(epoch, r, []Beat{r.beat(1, age*time.Second)}, r))
	}
	m := s.Compose(epoch, 1400, 1)
	for i, want := range []time.Duration{0, 1, 2, 3} {
		if m.Beats[i].Age != want*time.Second {
			t.Errorf("row %d is %v old", i, m.Beats[i].Age)
		}
	}
}

// Digests have live nodes, and recent farewells, including the farewell of a
// node without any other beat here.
func TestComposeLeavesOutTheDead(t *testing.T) {
	now := epoch.Add(testParams.TTL + ms)
	s := newSet(rec("a", 1))
	names := map[Handle]NodeID{s.Handle(): "a"}
	node := func(id NodeID) *Record {
		r := rec(id, 1)
		names[r.handle()] = id
		return r
	}
	s.Apply(epoch, hello(epoch, node("dead"), 1))
	s.Apply(epoch, messageFrom(epoch, node("unborn"), nil, node("unborn")))
	s.Apply(epoch, hello(epoch, node("left long ago"), 1))
	s.Apply(epoch, farewell(epoch, node("left long ago"), 2))
	s.Apply(now, hello(now, node("left"), 1))
	s.Apply(now, farewell(now, node("left"), 2))
	s.Apply(now, messageFrom(now, node("stillborn"), []Beat{node("stillborn").beat(1, 0).as(Left)}, node("stillborn")))
	s.Apply(now, farewell(now, node("stranger"), 1))
	expect := func(when string) {
		t.Helper()
		m := s.Compose(now, 1400, 1)
		var records, rows []string
		for _, r := range m.Records {
			records = append(records, string(r.ID))
		}
		for _, b := range m.Beats {
			rows = append(rows, fmt.Sprintf("%s %v", names[b.Handle], b.State))
		}
		slices.Sort(records)
		slices.Sort(rows)
		want := []string{"a"}
		if when == "before Expire" {
			want = []string{"a", "dead"} // harmless without its beat
		}
		if !slices.Equal(records, want) {
			t.Errorf("%s: records %v", when, records)
		}
		if want := []string{"a active", "left left", "stillborn left"}; !slices.Equal(rows, want) {
			t.Errorf("%s: rows %v", when, rows)
		}
	}
	expect("before Expire")
	s.Expire(now)
	expect("after Expire")
}

func TestAnswer(t *testing.T) {
	s := crowd(60)
	dead := rec("dead", 1)
	s.Apply(epoch.Add(-testParams.TTL), hello(epoch.Add(-testParams.TTL), dead, 1))
	s.Expire(epoch.Add(ms))
	var wants []Handle
	for _, m := range s.View().Members {
		wants = append(wants, m.Handle)
	}
	want := len(wants)
	wants = append(wants, dead.handle(), 4711)
	for _, budget := range []int{1, 400, 1400, 60_000} {
		got, rest := make(map[NodeID]bool), wants
		for parts := 0; ; parts++ {
			var m *Message
			if m, rest = s.Answer(epoch, rest, budget); m == nil {
				break
			}
			if size := len(Encode(m)); size > budget && len(m.Records) > 1 {
				t.Errorf("budget %d: %d records in %d bytes", budget, len(m.Records), size)
			}
			newcomer := newSet(rec("z", 1))
			newcomer.Apply(epoch, carry(t, m))
			for _, r := range m.Records {
				got[r.ID] = true
				if member(newcomer, r.ID) == nil && budget > 1 {
					t.Fatalf("budget %d: the record of %s came without its beat", budget, r.ID)
				}
			}
			if parts > want {
				t.Fatalf("budget %d: Answer never returns nil", budget)
			}
		}
		if len(got) != want || rest != nil {
			t.Errorf("budget %d: %d of %d answered, %d left over", budget, len(got), want, len(rest))
		}
	}
	if m := carry(t, s.Request(epoch, wants)); !slices.Equal(m.Wants, wants) || m.From != s.Handle() {
		t.Errorf("Request over the wire: %+v", m)
	}
}

// A full sync of the largest possible set fits into a message.
func TestSyncFits(t *testing.T) {
	s := newSet(rec("a", 1))
	labels := manyLabels(MaxLabels, 40)
	for i := range MaxNodes {
		r := rec(NodeID(fmt.Sprintf("%s%04d", strings.Repeat("n", 50), i)), math.MaxUint64)
		r.Labels, r.APIAddr = labels, strings.Repeat("x", 110)
		if i == 0 {
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
		}
		s.Apply(epoch, hello(epoch, r, math.MaxUint32))
	}
	m := carry(t, s.Sync(epoch))
	if len(m.Records) < MaxNodes/2 || len(m.Beats) != len(m.Records) {
		t.Errorf("%d records, %d beats", len(m.Records), len(m.Beats))
	}
}
