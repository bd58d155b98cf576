package lease

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// drawCordon draws a valid cordon for a message with the given stamp.
func drawCordon(stamp Stamp) func(t *rapid.T) Cordon {
	return func(t *rapid.T) Cordon {
		at := stamp - Stamp(rapid.Int64Range(0, int64(oldestCordon)).Draw(t, "age"))
		keep := rapid.Int64Range(0, int64(maxAge)).Draw(t, "remembered")
		return Cordon{
			ID: NodeID(rapid.StringMatching(`[a-z]{1,64}`).Draw(t, "id")), At: at,
			Until: at + Stamp(rapid.Int64Range(0, keep).Draw(t, "lasts")), Keep: at + Stamp(keep),
			Reason: rapid.StringMatching(`[ -~]{0,128}`).Draw(t, "reason"), rest: string(drawRest(t)),
		}
	}
}

// drawCordons draws cordons as a set holds them, of few nodes at few moments, so that
// many concern the same node at the same time.
func drawCordons(t *rapid.T, ids int) []Cordon {
	draw := rapid.Custom(func(t *rapid.T) Cordon {
		at := Stamp(rapid.IntRange(1, 3).Draw(t, "at"))
		until := at + Stamp(rapid.IntRange(0, 2).Draw(t, "lasts"))
		return Cordon{
			ID: NodeID(fmt.Sprint(rapid.IntRange(1, ids).Draw(t, "id"))), At: at, Until: until,
			Keep: until + Stamp(rapid.IntRange(0, 1).Draw(t, "keep")), Reason: rapid.SampledFrom([]string{"", "x"}).Draw(t, "reason"),
		}
	})
	return mergeCordons(nil, rapid.SliceOfN(draw, 0, 2*MaxCordons).Draw(t, "cordons"))
}

// All nodes arrive at the same cordons, in any order of messages and after any number,
// also if there are too many.
func TestMergeOfCordonsIsAJoin(t *testing.T) {
	for _, ids := range []int{3, 3 * MaxCordons} {
		t.Run(fmt.Sprint(ids), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				a, b, c := drawCordons(t, ids), drawCordons(t, ids), drawCordons(t, ids)
				equal := func(law string, x, y []Cordon) {
					t.Helper()
					if diff := cmp.Diff(x, y, cmpopts.EquateEmpty(), cmp.AllowUnexported(Cordon{})); diff != "" {
						t.Fatalf("not %s:\n%s", law, diff)
					}
				}
				equal("commutative", mergeCordons(a, b), mergeCordons(b, a))
				equal("associative", mergeCordons(mergeCordons(a, b), c), mergeCordons(a, mergeCordons(b, c)))
				equal("idempotent", mergeCordons(a, a), a)
				equal("absorbing", mergeCordons(mergeCordons(a, b), b), mergeCordons(a, b))
				if n := len(mergeCordons(a, b)); n > MaxCordons {
					t.Fatalf("%d cordons", n)
				}
			})
		})
	}
}

// The latest word on a node counts, and of two at the same time the same one for all.
func TestMergeOfCordonsByHand(t *testing.T) {
	first := Cordon{ID: "n", At: 10, Until: 100, Keep: 100}
	cancelled := Cordon{ID: "n", At: 20, Until: 20, Keep: 100}
	again := Cordon{ID: "n", At: 30, Until: 40, Keep: 100}
	other := Cordon{ID: "o", At: 5, Until: 50, Keep: 50}
	for _, tt := range []struct {
		name       string
		a, b, want []Cordon
	}{
		{"a later cordon", []Cordon{first}, []Cordon{cancelled}, []Cordon{cancelled}},
		{"an earlier cordon", []Cordon{again}, []Cordon{first}, []Cordon{again}},
		{"another node", []Cordon{first}, []Cordon{other}, []Cordon{first, other}},
		{"nothing", []Cordon{first}, nil, []Cordon{first}},
		{"twice in a message", nil, []Cordon{again, first, cancelled, again}, []Cordon{again}},
	} {
		if got := mergeCordons(tt.a, tt.b); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestDigestOfCordons(t *testing.T) {
	e := Cordon{ID: "n", At: 10, Until: 100, Keep: 100}
	seen := map[uint32]string{0: "none"}
	for name, change := range map[string]func(*Cordon){
		"": func(*Cordon) {}, "id": func(e *Cordon) { e.ID = "m" }, "at": func(e *Cordon) { e.At++ },
		"until": func(e *Cordon) { e.Until-- }, "keep": func(e *Cordon) { e.Keep++ },
		"all three": func(e *Cordon) { e.At++; e.Until++; e.Keep++ },
		"reason":    func(e *Cordon) { e.Reason = "x" }, "later fields": func(e *Cordon) { e.rest = "x" },
	} {
		o := e
		change(&o)
		d := digestOfCordons([]Cordon{o})
		if was, ok := seen[d]; ok {
			t.Errorf("the digests of %q and %q are equal", was, name)
		}
		seen[d] = name
	}
	if d := digestOfCordons(nil); d != 0 {
		t.Errorf("the digest of none is %d", d)
	}
}

func TestValidateCordon(t *testing.T) {
	good := Cordon{ID: "n", At: 10, Until: 20, Keep: 20, Reason: "élevé"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Cordon){
		"node id":      func(e *Cordon) { e.ID = "" },
		"before it":    func(e *Cordon) { e.Until = 9 },
		"it ends":      func(e *Cordon) { e.Keep = 19 },
		"longer than":  func(e *Cordon) { e.Keep = e.At + maxAge + 1 },
		"129 bytes":    func(e *Cordon) { e.Reason = strings.Repeat("x", 129) },
		"not one line": func(e *Cordon) { e.Reason = "a\x1b[2J" },
		"UTF-8":        func(e *Cordon) { e.Reason = "\xff" },
	} {
		e := good
		change(&e)
		if err := e.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// cordonedIn returns the states of the members of s, and its cordons in force.
func cordonedIn(s *Set) string {
	v, text := s.View(), ""
	for i := range v.Members {
		text += fmt.Sprintf("%s %v, ", v.Members[i].ID, v.Members[i].State)
	}
	for _, e := range v.Cordoned {
		text += fmt.Sprintf("%s until %v, ", e.ID, v.Local(e.Until).Sub(epoch))
	}
	if v.Spared {
		text += "spared, "
	}
	return text
}

func wantCordoned(t *testing.T, s *Set, want string) {
	t.Helper()
	if got := cordonedIn(s); got != want {
		t.Errorf("%s has %q, want %q", s.self.rec.ID, got, want)
	}
}

func cordon(t *testing.T, s *Set, now time.Time, id NodeID, d time.Duration) {
	t.Helper()
	if err := s.Cordon(now, id, d, "test"); err != nil {
		t.Fatal(err)
	}
}

// trio returns the sets of a and z, which know each other and b.
func trio() (a, z *Set) {
	a = newSet(rec("a", 1))
	a.Apply(epoch, hello(epoch, rec("b", 1)))
	z = peerOf(a, epoch)
	z.state, z.self.state = Active, Active
	a.Apply(epoch, z.Sync(epoch))
	return a, z
}

const minute = time.Minute

// A cordoned node owns nothing in the view of all, until the same moment of cluster time.
func TestCordonEndsForAllAtOnce(t *testing.T) {
	a, z := trio()
	a.Lost()
	z.Lost()
	cordon(t, a, epoch, "b", 2*time.Second)
	later := epoch.Add(300 * ms)
	for _, m := range a.Compose(later, 1400, 1) {
		if e := z.Apply(later, carry(t, m)); !e.Changed || !e.Urgent {
			t.Errorf("the news had the effect %+v", e)
		}
	}
	for _, s := range []*Set{a, z} {
		wantCordoned(t, s, "a active, b draining, z active, b until 2s, ")
		if !s.Lost() {
			t.Errorf("%s takes the cordon for a join", s.self.rec.ID)
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
		wantCordoned(t, s, "a active, b active, z active, ")
		if s.cordons.digest != 0 || len(s.cordons.all) != 0 || s.cordons.next != 0 {
			t.Errorf("%s remembers %+v", s.self.rec.ID, s.cordons)
		}
	}
}

// Two views with and without a cordon have different digests.
func TestCordonIsInTheDigestOfTheView(t *testing.T) {
	a, _ := trio()
	before := a.View().Digest()
	cordon(t, a, epoch, "b", minute)
	if a.View().Digest() == before {
		t.Error("the same digest")
	}
}

// A cordon concerns the id: it holds for a later process and for a node that has left,
// and a newcomer learns of it.
func TestCordonOutlivesARestart(t *testing.T) {
	a, _ := trio()
	cordon(t, a, epoch, "b", minute)
	a.Apply(epoch, hello(epoch, rec("b", 2)))
	wantCordoned(t, a, "a active, b draining, z active, b until 1m0s, ")
	newcomer := startSet(epoch, rec("c", 1), testParams)
	newcomer.Apply(epoch, carry(t, a.Sync(epoch)))
	wantCordoned(t, newcomer, "a active, b draining, c active, z active, b until 1m0s, ")
	a.Apply(epoch.Add(ms), messageFrom(epoch.Add(ms), rec("b", 2), []Heartbeat{rec("b", 2).sent(epoch.Add(ms)).as(Left)}))
	wantCordoned(t, a, "a active, z active, b until 1m0s, ")
}

// A cordon that would leave no candidate has no effect while that is so.
func TestCordonSparesTheLastCandidates(t *testing.T) {
	a, _ := trio()
	for _, id := range []NodeID{"a", "b"} {
		cordon(t, a, epoch, id, minute)
	}
	wantCordoned(t, a, "a draining, b draining, z active, a until 1m0s, b until 1m0s, ")
	cordon(t, a, epoch, "z", minute)
	wantCordoned(t, a, "a active, b active, z active, a until 1m0s, b until 1m0s, z until 1m0s, spared, ")
	c := rec("c", 1)
	for i, tt := range []struct {
		state State
		want  string
	}{
		{Settling, "a active, b active, c settling, z active, a until 1m0s, b until 1m0s, z until 1m0s, spared, "},
		{Active, "a draining, b draining, c active, z draining, a until 1m0s, b until 1m0s, z until 1m0s, "},
	} {
		now := epoch.Add(time.Duration(i) * ms)
		a.Apply(now, messageFrom(now, c, []Heartbeat{c.sent(now).as(tt.state)}, c))
		wantCordoned(t, a, tt.want)
	}
}

// The later decision counts, also where the earlier one arrives later.
func TestLaterCordonCounts(t *testing.T) {
	for name, d := range map[string]time.Duration{"an end": 0, "a shorter one": time.Second} {
		a, z := trio()
		cordon(t, a, epoch, "b", minute)
		z.cordons.merge(epoch, a.cordons.all)
		stale := a.Sync(epoch)
		now := epoch.Add(ms)
		cordon(t, z, now, "b", d)
		z.Expire(now.Add(d))
		wantCordoned(t, z, "a active, b active, z active, ")
		late := epoch.Add(30 * time.Second)
		z.Expire(late)
		if stale.Stamp = stampAt(late); z.Apply(late, stale).Changed {
			t.Errorf("%s: the first cordon is back", name)
		}
		a.cordons.merge(late, z.cordons.all)
		wantCordoned(t, a, "a active, b active, z active, ")
		if z.Expire(epoch.Add(minute)); len(z.cordons.all) != 0 {
			t.Errorf("%s: still remembered", name)
		}
	}
}

// Two decisions within a millisecond are ordered, and known to be in the past.
func TestCordonsWithinAMillisecond(t *testing.T) {
	a, z := trio()
	for _, d := range []time.Duration{minute, 0, 2 * minute} {
		cordon(t, a, epoch, "b", d)
	}
	for _, m := range a.Compose(epoch, 1400, 1) {
		z.Apply(epoch, carry(t, m))
	}
	for _, s := range []*Set{a, z} {
		wantCordoned(t, s, "a active, b draining, z active, b until 2m0s, ")
	}
	if a.cordons.all[0] != z.cordons.all[0] {
		t.Errorf("%+v, sent as %+v", a.cordons.all[0], z.cordons.all[0])
	}
}

func TestBoundsOfCordon(t *testing.T) {
	a, _ := trio()
	if err := a.Cordon(epoch, "b", 0, ""); err != nil || len(a.cordons.all) != 0 {
		t.Errorf("the end of no cordon: %v, %+v", err, a.cordons.all)
	}
	for name, err := range map[string]error{
		"long":   a.Cordon(epoch, "b", MaxCordonTime+ms, ""),
		"reason": a.Cordon(epoch, "b", minute, "two\nlines"),
		"id":     a.Cordon(epoch, "?", minute, ""),
	} {
		if err == nil || len(a.cordons.all) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range MaxCordons {
		cordon(t, a, epoch, NodeID(fmt.Sprint(i)), MaxCordonTime)
	}
	if err := a.Cordon(epoch, "b", minute, ""); !errors.Is(err, ErrCordons) {
		t.Errorf("one too many: %v", err)
	}
	cordon(t, a, epoch, "7", 0)
	cordon(t, a, epoch, "7", MaxCordonTime)
}

// A node that missed the news notices that by the digests of the others, and two nodes
// with different cordons repair both in one request.
func TestCordonsAreRepaired(t *testing.T) {
	for _, n := range []int{1, MaxCordons / 2} {
		a, z := trio()
		for i := range n {
			cordon(t, a, epoch, NodeID(fmt.Sprintf("a%d", i)), minute)
			cordon(t, z, epoch, NodeID(fmt.Sprintf("z%d", i)), minute)
		}
		for _, s := range []*Set{a, z} {
			for _, e := range s.cordons.all {
				s.cordons.sent[e.ID] = 1000 // no news any more
			}
		}
		now, requests := epoch, 0
		for range 10 {
			now = now.Add(100 * ms)
			a.Heartbeat(now, 0, 0)
			for _, m := range a.Compose(now, 1400, 1) {
				if e := z.Apply(now, carry(t, m)); e.pullCordons {
					requests++
					for _, request := range z.cordonsFor(now, 1400, true) {
						if size := len(Encode(request)); size > 1400 {
							t.Errorf("a request of %d bytes", size)
						}
						a.Apply(now, carry(t, request))
						for _, answer := range a.answer(now, request, 1400) {
							if size := len(Encode(answer)); size > 1400 {
								t.Errorf("an answer of %d bytes", size)
							}
							z.Apply(now, carry(t, answer))
						}
					}
				}
			}
		}
		if a.cordons.digest != z.cordons.digest || len(a.cordons.all) != 2*n || requests != 1 {
			t.Errorf("a knows %d, z %d, after %d requests", len(a.cordons.all), len(z.cordons.all), requests)
		}
	}
}

// Cordons are news as often as rows, and no longer.
func TestCordonsAreSentForAWhile(t *testing.T) {
	a, _ := trio()
	cordon(t, a, epoch, "b", minute)
	sent := 0
	for i := range 100 {
		now := epoch.Add(time.Duration(i) * 10 * ms)
		a.Heartbeat(now, 0, 0)
		for _, m := range a.Compose(now, 1400, 3) {
			sent += 3 * len(m.Cordons)
			if m.Cordoned == 0 {
				t.Error("no digest")
			}
		}
	}
	if sent < a.rowCopies() || sent > a.rowCopies()+2 {
		t.Errorf("%d copies, want %d", sent, a.rowCopies())
	}
}

// A member that sends cordons without end, of any nodes, costs a bounded memory.
func TestFloodOfCordons(t *testing.T) {
	a, z := trio()
	for i := range 1000 {
		now := epoch.Add(time.Duration(i) * ms)
		m := z.message(now)
		for k := range MaxCordons {
			at := stampAt(now)
			m.Cordons = append(m.Cordons, Cordon{ID: NodeID(fmt.Sprintf("x%d-%d", i, k)), At: at, Until: at + 10, Keep: at + maxAge})
		}
		a.Apply(now, carry(t, m))
	}
	v := a.cordons
	if len(v.all) != MaxCordons || len(v.inForce) > MaxCordons || len(v.sent) > MaxCordons {
		t.Errorf("knows %d, in force %d, sent %d", len(v.all), len(v.inForce), len(v.sent))
	}
}

// A newcomer with a clock ahead takes over the cluster's time, and the cordons with
// it. What it heard before that was of another time.
func TestCordonsOfAProvisionalTime(t *testing.T) {
	a, _ := trio()
	cordon(t, a, epoch, "b", minute)
	newcomer := NewSet(epoch.Add(time.Hour), *rec("c", 1), testParams)
	newcomer.runs = trusted
	at := newcomer.time.at(epoch.Add(time.Hour))
	newcomer.cordons.merge(epoch.Add(time.Hour), []Cordon{{ID: "x", At: at, Until: at + 1000, Keep: at + 1000}})
	m := a.Sync(epoch)
	m.Echo = newcomer.Challenge(epoch.Add(time.Hour), 7).Challenge
	newcomer.Apply(epoch.Add(time.Hour), carry(t, m))
	v := newcomer.View()
	if len(v.Cordoned) != 1 || v.Cordoned[0].ID != "b" || v.Local(v.Cordoned[0].Until).Sub(epoch) != time.Hour+minute {
		t.Errorf("knows %+v", v.Cordoned)
	}
}
