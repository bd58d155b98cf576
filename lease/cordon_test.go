package lease_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/roost-cluster/roost/lease"
)

// cordonedIn returns the states of the members of s, and the cordons that are in effect.
func cordonedIn(s *lease.Set) string {
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

func wantCordoned(t *testing.T, s *lease.Set, want string) {
	t.Helper()
	if got := cordonedIn(s); got != want {
		t.Errorf("%s has %q, want %q", s.Self().ID, got, want)
	}
}

// cordonsOf returns the cordons that s remembers.
func cordonsOf(s *lease.Set) []lease.Cordon { return s.Sync(epoch).Cordons }

// pulledCordons returns the messages in which s requests cordons because of m.
func pulledCordons(s *lease.Set, now time.Time, m *lease.Message, e lease.Effect) (pulls []*lease.Message) {
	for _, r := range s.Replies(now, m, e, 1400) {
		if r.PullCordons {
			pulls = append(pulls, r.Message)
		}
	}
	return pulls
}

func cordon(t *testing.T, s *lease.Set, now time.Time, id lease.NodeID, d time.Duration) {
	t.Helper()
	if err := s.Cordon(now, id, d, "test"); err != nil {
		t.Fatal(err)
	}
}

// trio returns the sets of a and z, which know each other and b.
func trio() (a, z *lease.Set) {
	a = newSet(rec("a", 1))
	a.Apply(epoch, hello(epoch, rec("b", 1)))
	z = peerOf(a, epoch)
	return a, z
}

const minute = time.Minute

// All views show a cordoned node as draining. The cordon ends at the same cluster time in all views.
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
	for _, s := range []*lease.Set{a, z} {
		wantCordoned(t, s, "a active, b draining, z active, b until 2s, ")
		if !s.Lost() {
			t.Errorf("%s takes the cordon for a join", s.Self().ID)
		}
		if at, ok := s.NextDeadline(); !ok || !at.Equal(epoch.Add(2*time.Second)) {
			t.Errorf("%s wants to look at %v", s.Self().ID, at.Sub(epoch))
		}
		if s.Expire(epoch.Add(2*time.Second - ms)) {
			t.Error("ended early")
		}
		if end := epoch.Add(2 * time.Second); !s.Expire(end) || s.Lost() {
			t.Error("did not end, or as a loss")
		}
		wantCordoned(t, s, "a active, b active, z active, ")
		m := s.Sync(epoch.Add(2 * time.Second))
		if at, _ := s.NextDeadline(); m.Cordoned != 0 || len(m.Cordons) != 0 || at.Equal(epoch.Add(2*time.Second)) {
			t.Errorf("%s remembers %+v until %v", s.Self().ID, m.Cordons, at)
		}
	}
}

// A view with a cordon and a view without it have different digests.
func TestCordonIsInTheDigestOfTheView(t *testing.T) {
	a, _ := trio()
	before := a.View().Digest()
	cordon(t, a, epoch, "b", minute)
	if a.View().Digest() == before {
		t.Error("the same digest")
	}
}

// A cordon applies to an id. It also applies to a later process with the id and to a node that has left, and a newcomer
// learns of it.
func TestCordonOutlivesARestart(t *testing.T) {
	a, _ := trio()
	cordon(t, a, epoch, "b", minute)
	a.Apply(epoch, hello(epoch, rec("b", 2)))
	wantCordoned(t, a, "a active, b draining, z active, b until 1m0s, ")
	newcomer := startSet(epoch, rec("c", 1), testParams)
	newcomer.Apply(epoch, carry(t, a.Sync(epoch)))
	wantCordoned(t, newcomer, "a active, b draining, c active, z active, b until 1m0s, ")
	a.Apply(epoch.Add(ms), messageFrom(epoch.Add(ms), rec("b", 2), []lease.Heartbeat{as(sent(rec("b", 2), epoch.Add(ms)), lease.Left)}))
	wantCordoned(t, a, "a active, z active, b until 1m0s, ")
}

// Cordons have no effect while they would leave no candidate.
func TestCordonSparesTheLastCandidates(t *testing.T) {
	a, _ := trio()
	for _, id := range []lease.NodeID{"a", "b"} {
		cordon(t, a, epoch, id, minute)
	}
	wantCordoned(t, a, "a draining, b draining, z active, a until 1m0s, b until 1m0s, ")
	cordon(t, a, epoch, "z", minute)
	wantCordoned(t, a, "a active, b active, z active, a until 1m0s, b until 1m0s, z until 1m0s, spared, ")
	c := rec("c", 1)
	for i, tt := range []struct {
		state lease.State
		want  string
	}{
		{lease.Settling, "a active, b active, c settling, z active, a until 1m0s, b until 1m0s, z until 1m0s, spared, "},
		{lease.Active, "a draining, b draining, c active, z draining, a until 1m0s, b until 1m0s, z until 1m0s, "},
	} {
		now := epoch.Add(time.Duration(i) * ms)
		a.Apply(now, messageFrom(now, c, []lease.Heartbeat{as(sent(c, now), tt.state)}, c))
		wantCordoned(t, a, tt.want)
	}
}

// The later decision counts, even on nodes where the earlier decision arrives later.
func TestLaterCordonCounts(t *testing.T) {
	for name, d := range map[string]time.Duration{"an end": 0, "a shorter one": time.Second} {
		a, z := trio()
		cordon(t, a, epoch, "b", minute)
		z.Apply(epoch, a.Sync(epoch))
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
		a.Apply(late, z.Sync(late))
		wantCordoned(t, a, "a active, b active, z active, ")
		if z.Expire(epoch.Add(minute)); len(cordonsOf(z)) != 0 {
			t.Errorf("%s: still remembered", name)
		}
	}
}

// Decisions within the same millisecond keep their order, and other nodes store the same cordons.
func TestCordonsWithinAMillisecond(t *testing.T) {
	a, z := trio()
	for _, d := range []time.Duration{minute, 0, 2 * minute} {
		cordon(t, a, epoch, "b", d)
	}
	for _, m := range a.Compose(epoch, 1400, 1) {
		z.Apply(epoch, carry(t, m))
	}
	for _, s := range []*lease.Set{a, z} {
		wantCordoned(t, s, "a active, b draining, z active, b until 2m0s, ")
	}
	if diff := cmp.Diff(cordonsOf(a), cordonsOf(z), cmpopts.IgnoreUnexported(lease.Cordon{})); diff != "" {
		t.Errorf("known (-), as sent (+):\n%s", diff)
	}
}

func TestBoundsOfCordon(t *testing.T) {
	a, _ := trio()
	if err := a.Cordon(epoch, "b", 0, ""); err != nil || len(cordonsOf(a)) != 0 {
		t.Errorf("the end of no cordon: %v, %+v", err, cordonsOf(a))
	}
	for name, err := range map[string]error{
		"long":   a.Cordon(epoch, "b", lease.MaxCordonTime+ms, ""),
		"reason": a.Cordon(epoch, "b", minute, "two\nlines"),
		"id":     a.Cordon(epoch, "?", minute, ""),
	} {
		if err == nil || len(cordonsOf(a)) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range lease.MaxCordons {
		cordon(t, a, epoch, lease.NodeID(fmt.Sprint(i)), lease.MaxCordonTime)
	}
	if err := a.Cordon(epoch, "b", minute, ""); !errors.Is(err, lease.ErrCordons) {
		t.Errorf("one too many: %v", err)
	}
	cordon(t, a, epoch, "7", 0)
	cordon(t, a, epoch, "7", lease.MaxCordonTime)
}

// A node that missed a cordon notices that from the digests of other nodes. Two nodes with different cordons
// both repair them with a single request.
func TestCordonsAreRepaired(t *testing.T) {
	for _, n := range []int{1, lease.MaxCordons / 2} {
		a, z := trio()
		for i := range n {
			cordon(t, a, epoch, lease.NodeID(fmt.Sprintf("a%d", i)), minute)
			cordon(t, z, epoch, lease.NodeID(fmt.Sprintf("z%d", i)), minute)
		}
		for _, s := range []*lease.Set{a, z} {
			for s.Compose(epoch, 1400, 1000) != nil { // until the cordons are no longer news
			}
		}
		now, requests := epoch, 0
		for range 10 {
			now = now.Add(100 * ms)
			a.Heartbeat(now, 0, 0)
			for _, m := range a.Compose(now, 1400, 1) {
				pulls := pulledCordons(z, now, m, z.Apply(now, carry(t, m)))
				requests += min(1, len(pulls))
				for _, request := range pulls {
					if size := len(lease.Encode(request)); size > 1400 {
						t.Errorf("a request of %d bytes", size)
					}
					a.Apply(now, carry(t, request))
					for _, answer := range answer(a, now, request, 1400) {
						if size := len(lease.Encode(answer)); size > 1400 {
							t.Errorf("an answer of %d bytes", size)
						}
						z.Apply(now, carry(t, answer))
					}
				}
			}
		}
		if a.Sync(now).Cordoned != z.Sync(now).Cordoned || len(cordonsOf(a)) != 2*n || requests != 1 {
			t.Errorf("a knows %d, z %d, after %d requests", len(cordonsOf(a)), len(cordonsOf(z)), requests)
		}
	}
}

// A set sends a cordon to as many recipients as a row, and not to more.
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
	if sent < a.RowCopies() || sent > a.RowCopies()+2 {
		t.Errorf("%d copies, want %d", sent, a.RowCopies())
	}
}

// If a member keeps sending cordons for any nodes, the set's memory stays bounded.
func TestFloodOfCordons(t *testing.T) {
	a, z := trio()
	for i := range 1000 {
		now := epoch.Add(time.Duration(i) * ms)
		m := messageFrom(now, z.Self(), nil)
		for k := range lease.MaxCordons {
			at := stampAt(now)
			m.Cordons = append(m.Cordons, lease.Cordon{
				ID:    lease.NodeID(fmt.Sprintf("x%d-%d", i, k)),
				At:    at,
				Until: at + 10,
				Keep:  at + lease.MaxAge,
			})
		}
		a.Apply(now, carry(t, m))
	}
	sizes := a.Sizes()
	if sizes["cordons"] != lease.MaxCordons || sizes["cordons in force"] > lease.MaxCordons || sizes["cordons sent"] > lease.MaxCordons {
		t.Errorf("%v", sizes)
	}
}

// A newcomer whose clock is ahead adopts the cluster's time and the cluster's cordons. It drops the cordons that it
// knew before, because their times came from its wrong clock.
func TestCordonsOfAProvisionalTime(t *testing.T) {
	a, _ := trio()
	cordon(t, a, epoch, "b", minute)
	newcomer := lease.NewSet(epoch.Add(time.Hour), *rec("c", 1), testParams)
	newcomer.Believe(trusted)
	cordon(t, newcomer, epoch.Add(time.Hour), "x", time.Second)
	m := a.Sync(epoch)
	m.Echo = newcomer.Challenge(epoch.Add(time.Hour), 7).Challenge
	newcomer.Apply(epoch.Add(time.Hour), carry(t, m))
	v := newcomer.View()
	if len(v.Cordoned) != 1 || v.Cordoned[0].ID != "b" || v.Local(v.Cordoned[0].Until).Sub(epoch) != time.Hour+minute {
		t.Errorf("knows %+v", v.Cordoned)
	}
}
