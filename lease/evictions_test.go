package lease

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// evictedIn returns the states of the members of s, and its evictions in force.
func evictedIn(s *Set) string {
	v, text := s.View(), ""
	for i := range v.Members {
		text += fmt.Sprintf("%s %v, ", v.Members[i].ID, v.Members[i].State)
	}
	for _, e := range v.Evicted {
		text += fmt.Sprintf("%s until %v, ", e.ID, v.Local(e.Until).Sub(epoch))
	}
	if v.Spared {
		text += "spared, "
	}
	return text
}

func wantEvicted(t *testing.T, s *Set, want string) {
	t.Helper()
	if got := evictedIn(s); got != want {
		t.Errorf("%s has %q, want %q", s.self.rec.ID, got, want)
	}
}

func evict(t *testing.T, s *Set, now time.Time, id NodeID, d time.Duration) {
	t.Helper()
	if err := s.Evict(now, id, d, "test"); err != nil {
		t.Fatal(err)
	}
}

// trio returns the sets of a and z, which know each other and b.
func trio() (a, z *Set) {
	a = newSet(rec("a", 1))
	a.Apply(epoch, hello(epoch, rec("b", 1)))
	z = twinOf(a, epoch)
	z.state, z.self.state = Active, Active
	a.Apply(epoch, z.Sync(epoch))
	return a, z
}

const minute = time.Minute

// An evicted node owns nothing in the view of all, until the same moment of cluster time.
func TestEvictionEndsForAllAtOnce(t *testing.T) {
	a, z := trio()
	a.Lost()
	z.Lost()
	evict(t, a, epoch, "b", 2*time.Second)
	later := epoch.Add(300 * ms)
	for _, m := range a.Compose(later, 1400, 1) {
		if e := z.Apply(later, carry(t, m)); !e.Changed || !e.Urgent {
			t.Errorf("the news had the effect %+v", e)
		}
	}
	for _, s := range []*Set{a, z} {
		wantEvicted(t, s, "a active, b draining, z active, b until 2s, ")
		if !s.Lost() {
			t.Errorf("%s takes the eviction for a join", s.self.rec.ID)
		}
		if at, ok := s.NextDeadline(); !ok || !at.Equal(epoch.Add(2*time.Second)) {
			t.Errorf("%s wants to look at %v", s.self.rec.ID, at.Sub(epoch))
		}
		if s.Expire(epoch.Add(2*time.Second - ms)) {
			t.Error("ended early")
		}
		if end := epoch.Add(2 * time.Second); !s.Expire(end) || s.Lost() {
			t.Error("did not end, or as a loss")
		}
		wantEvicted(t, s, "a active, b active, z active, ")
		if s.evictions.digest != 0 || len(s.evictions.all) != 0 || s.evictions.next != 0 {
			t.Errorf("%s remembers %+v", s.self.rec.ID, s.evictions)
		}
	}
}

// Two views with and without an eviction have different digests.
func TestEvictionIsInTheDigestOfTheView(t *testing.T) {
	a, _ := trio()
	before := a.View().Digest()
	evict(t, a, epoch, "b", minute)
	if a.View().Digest() == before {
		t.Error("the same digest")
	}
}

// An eviction concerns the id: it holds for a later process and for a node that has left,
// and a newcomer learns of it.
func TestEvictionOutlivesARestart(t *testing.T) {
	a, _ := trio()
	evict(t, a, epoch, "b", minute)
	a.Apply(epoch, hello(epoch, rec("b", 2)))
	wantEvicted(t, a, "a active, b draining, z active, b until 1m0s, ")
	newcomer := startSet(epoch, rec("c", 1), testParams)
	newcomer.Apply(epoch, carry(t, a.Sync(epoch)))
	wantEvicted(t, newcomer, "a active, b draining, c active, z active, b until 1m0s, ")
	a.Apply(epoch.Add(ms), messageFrom(epoch.Add(ms), rec("b", 2), []Beat{rec("b", 2).sent(epoch.Add(ms)).as(Left)}))
	wantEvicted(t, a, "a active, z active, b until 1m0s, ")
}

// An eviction that would leave no candidate has no effect while that is so.
func TestEvictionSparesTheLastCandidates(t *testing.T) {
	a, _ := trio()
	for _, id := range []NodeID{"a", "b"} {
		evict(t, a, epoch, id, minute)
	}
	wantEvicted(t, a, "a draining, b draining, z active, a until 1m0s, b until 1m0s, ")
	evict(t, a, epoch, "z", minute)
	wantEvicted(t, a, "a active, b active, z active, a until 1m0s, b until 1m0s, z until 1m0s, spared, ")
	c := rec("c", 1)
	for i, tt := range []struct {
		state State
		want  string
	}{
		{Settling, "a active, b active, c settling, z active, a until 1m0s, b until 1m0s, z until 1m0s, spared, "},
		{Active, "a draining, b draining, c active, z draining, a until 1m0s, b until 1m0s, z until 1m0s, "},
	} {
		now := epoch.Add(time.Duration(i) * ms)
		a.Apply(now, messageFrom(now, c, []Beat{c.sent(now).as(tt.state)}, c))
		wantEvicted(t, a, tt.want)
	}
}

// The later decision counts, also where the earlier one arrives later.
func TestLaterEvictionCounts(t *testing.T) {
	for name, d := range map[string]time.Duration{"an end": 0, "a shorter one": time.Second} {
		a, z := trio()
		evict(t, a, epoch, "b", minute)
		z.mergeEvictions(epoch, a.evictions.all)
		stale := a.Sync(epoch)
		now := epoch.Add(ms)
		evict(t, z, now, "b", d)
		z.Expire(now.Add(d))
		wantEvicted(t, z, "a active, b active, z active, ")
		late := epoch.Add(30 * time.Second)
		z.Expire(late)
		if stale.Stamp = stampAt(late); z.Apply(late, stale).Changed {
			t.Errorf("%s: the first eviction is back", name)
		}
		a.mergeEvictions(late, z.evictions.all)
		wantEvicted(t, a, "a active, b active, z active, ")
		if z.Expire(epoch.Add(minute)); len(z.evictions.all) != 0 {
			t.Errorf("%s: still remembered", name)
		}
	}
}

// Two decisions within a millisecond are ordered, and known to be in the past.
func TestEvictionsWithinAMillisecond(t *testing.T) {
	a, z := trio()
	for _, d := range []time.Duration{minute, 0, 2 * minute} {
		evict(t, a, epoch, "b", d)
	}
	for _, m := range a.Compose(epoch, 1400, 1) {
		z.Apply(epoch, carry(t, m))
	}
	for _, s := range []*Set{a, z} {
		wantEvicted(t, s, "a active, b draining, z active, b until 2m0s, ")
	}
	if a.evictions.all[0] != z.evictions.all[0] {
		t.Errorf("%+v, sent as %+v", a.evictions.all[0], z.evictions.all[0])
	}
}

func TestBoundsOfEvict(t *testing.T) {
	a, _ := trio()
	if err := a.Evict(epoch, "b", 0, ""); err != nil || len(a.evictions.all) != 0 {
		t.Errorf("the end of no eviction: %v, %+v", err, a.evictions.all)
	}
	for name, err := range map[string]error{
		"long":   a.Evict(epoch, "b", MaxEvictionTime+ms, ""),
		"reason": a.Evict(epoch, "b", minute, "two\nlines"),
		"id":     a.Evict(epoch, "?", minute, ""),
	} {
		if err == nil || len(a.evictions.all) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range MaxEvictions {
		evict(t, a, epoch, NodeID(fmt.Sprint(i)), MaxEvictionTime)
	}
	if err := a.Evict(epoch, "b", minute, ""); !errors.Is(err, ErrEvictions) {
		t.Errorf("one too many: %v", err)
	}
	evict(t, a, epoch, "7", 0)
	evict(t, a, epoch, "7", MaxEvictionTime)
}

// A node that missed the news notices that by the digests of the others, and two nodes
// with different evictions repair both in one request.
func TestEvictionsAreRepaired(t *testing.T) {
	for _, n := range []int{1, MaxEvictions / 2} {
		a, z := trio()
		for i := range n {
			evict(t, a, epoch, NodeID(fmt.Sprintf("a%d", i)), minute)
			evict(t, z, epoch, NodeID(fmt.Sprintf("z%d", i)), minute)
		}
		for _, s := range []*Set{a, z} {
			for _, e := range s.evictions.all {
				s.evictions.sent[e.ID] = 1000 // no news any more
			}
		}
		now, requests := epoch, 0
		for range 10 {
			now = now.Add(100 * ms)
			a.Beat(now, 0, 0)
			for _, m := range a.Compose(now, 1400, 1) {
				if e := z.Apply(now, carry(t, m)); e.Evictions {
					requests++
					for _, request := range z.EvictionsFor(now, 1400, true) {
						if size := len(Encode(request)); size > 1400 {
							t.Errorf("a request of %d bytes", size)
						}
						a.Apply(now, carry(t, request))
						for _, answer := range a.Answer(now, request, 1400) {
							if size := len(Encode(answer)); size > 1400 {
								t.Errorf("an answer of %d bytes", size)
							}
							z.Apply(now, carry(t, answer))
						}
					}
				}
			}
		}
		if a.evictions.digest != z.evictions.digest || len(a.evictions.all) != 2*n || requests != 1 {
			t.Errorf("a knows %d, z %d, after %d requests", len(a.evictions.all), len(z.evictions.all), requests)
		}
	}
}

// Evictions are news as often as rows, and no longer.
func TestEvictionsAreSentForAWhile(t *testing.T) {
	a, _ := trio()
	evict(t, a, epoch, "b", minute)
	sent := 0
	for i := range 100 {
		now := epoch.Add(time.Duration(i) * 10 * ms)
		a.Beat(now, 0, 0)
		for _, m := range a.Compose(now, 1400, 3) {
			sent += 3 * len(m.Evictions)
			if m.Evicted == 0 {
				t.Error("no digest")
			}
		}
	}
	if sent < a.rowCopies() || sent > a.rowCopies()+2 {
		t.Errorf("%d copies, want %d", sent, a.rowCopies())
	}
}

// A member that sends evictions without end, of any nodes, costs a bounded memory.
func TestFloodOfEvictions(t *testing.T) {
	a, z := trio()
	for i := range 1000 {
		now := epoch.Add(time.Duration(i) * ms)
		m := z.message(now)
		for k := range MaxEvictions {
			at := stampAt(now)
			m.Evictions = append(m.Evictions, Eviction{ID: NodeID(fmt.Sprintf("x%d-%d", i, k)), At: at, Until: at + 10, Keep: at + maxAge})
		}
		a.Apply(now, carry(t, m))
	}
	v := a.evictions
	if len(v.all) != MaxEvictions || len(v.inForce) > MaxEvictions || len(v.sent) > MaxEvictions {
		t.Errorf("knows %d, in force %d, sent %d", len(v.all), len(v.inForce), len(v.sent))
	}
}

// A newcomer with a clock ahead takes over the cluster's time, and the evictions with
// it. What it heard before that was of another time.
func TestEvictionsOfAProvisionalTime(t *testing.T) {
	a, _ := trio()
	evict(t, a, epoch, "b", minute)
	newcomer := NewSet(epoch.Add(time.Hour), *rec("c", 1), testParams)
	newcomer.challenges.runs = trusted
	at := newcomer.time.at(epoch.Add(time.Hour))
	newcomer.mergeEvictions(epoch.Add(time.Hour), []Eviction{{ID: "x", At: at, Until: at + 1000, Keep: at + 1000}})
	m := a.Sync(epoch)
	m.Echo = newcomer.Challenge(epoch.Add(time.Hour), 7).Challenge
	newcomer.Apply(epoch.Add(time.Hour), carry(t, m))
	v := newcomer.View()
	if len(v.Evicted) != 1 || v.Evicted[0].ID != "b" || v.Local(v.Evicted[0].Until).Sub(epoch) != time.Hour+minute {
		t.Errorf("knows %+v", v.Evicted)
	}
}
