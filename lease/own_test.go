package lease_test

import (
	"math"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

func TestEarlierIncarnationIsIgnored(t *testing.T) {
	s, b, past := newSet(rec("a", 9)), rec("b", 1), rec("a", 8)
	s.Apply(epoch, hello(epoch, b))
	row := messageFrom(epoch, b, []lease.Heartbeat{sent(past, epoch)})
	e := s.Apply(epoch, row)
	if ask := request(s, epoch, b.Handle(), e); ask == nil || len(ask.PullRecords) != 1 {
		t.Fatalf("the record of an unknown handle was not requested: %+v", e)
	}
	if e := s.Apply(epoch, messageFrom(epoch, b, nil, past)); e.Changed {
		t.Errorf("earlier incarnation: %+v", e)
	}
	for i := range 10 {
		now := epoch.Add(time.Duration(i+1) * lease.RequestInterval)
		row.Stamp, row.Heartbeats[0].At = stampAt(now), stampAt(now)
		if e := s.Apply(now, row); request(s, now, b.Handle(), e) != nil || e.Changed || e.Duplicate != nil {
			t.Fatalf("earlier incarnation, second time: %+v", e)
		}
		s.Expire(now)
	}
	wantIDs(t, s, "a/9", "b/1")
}

// Two processes have the same id. The older process receives heartbeats of the newer process, and stops.
func TestDuplicateID(t *testing.T) {
	const margin = 6 * time.Second / 8
	later := rec("a", 2)
	for _, tc := range []struct {
		name      string
		wait, age time.Duration // of the second message
		want      bool
	}{
		{"heard with its record", 0, 0, false},
		{"sent before its record came", 2 * time.Second, 2 * time.Second, false},
		{"sent within the margin", margin, 0, false},
		{"sent after the margin", margin + ms, 0, true},
		{"sent after the margin, relayed", 2 * time.Second, 2*time.Second - margin - ms, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSet(rec("a", 1))
			if e := s.Apply(epoch, hello(epoch, later)); e.Duplicate != nil || e.Changed {
				t.Fatalf("at first sight: %+v", e)
			}
			now := epoch.Add(tc.wait)
			e := s.Apply(now, messageFrom(now, later, []lease.Heartbeat{sent(later, now.Add(-tc.age))}))
			if (e.Duplicate != nil) != tc.want {
				t.Errorf("Duplicate = %+v, want %v", e.Duplicate, tc.want)
			}
			if tc.want && e.Duplicate.Incarnation != 2 {
				t.Errorf("Duplicate = %+v", e.Duplicate)
			}
		})
	}
	t.Run("a duplicate that all nodes reject for its clock", func(t *testing.T) {
		s := newSet(rec("a", 1))
		for i := range 3 {
			now := epoch.Add(time.Duration(i) * 2 * time.Second)
			if e := s.Apply(now, by(hello(now, later), time.Hour)); e.Duplicate != nil {
				t.Fatalf("%+v", e)
			}
		}
	})
	t.Run("the latest of several counts", func(t *testing.T) {
		s := newSet(rec("a", 1))
		for _, inc := range []uint64{3, 4, 2} {
			s.Apply(epoch, hello(epoch, rec("a", inc)))
		}
		now := epoch.Add(2 * time.Second)
		for inc, want := range map[uint64]bool{2: false, 3: false, 4: true} {
			if e := s.Apply(now, hello(now, rec("a", inc))); (e.Duplicate != nil) != want {
				t.Errorf("incarnation %d: %+v", inc, e)
			}
		}
	})
}

// A process that restarts after its clock was set back has an incarnation below its previous incarnation, and other
// nodes ignore it. It learns of the later incarnation, waits for as long as a live process would need to send a
// message, and takes a higher incarnation.
func TestSetBackClockIsOutbid(t *testing.T) {
	past := rec("a", lease.MaxIncarnation-1) // far beyond the clock of this test
	endings := map[string]struct {
		end func(other *lease.Set) time.Time // how the last incarnation ended, in the view of the other node
		at  time.Duration                    // from joining to the higher incarnation
	}{
		"still live at the other": {func(*lease.Set) time.Time { return epoch }, testParams.TTL + ms},
		"expired": {func(o *lease.Set) time.Time {
			o.Expire(epoch.Add(testParams.TTL + ms))
			return epoch.Add(testParams.TTL + ms)
		}, testParams.TTL + ms},
		"left": {func(o *lease.Set) time.Time {
			o.Apply(epoch, leave(epoch, past))
			return epoch.Add(time.Second)
		}, 0},
		"left long ago": {func(o *lease.Set) time.Time {
			o.Apply(epoch, leave(epoch, past))
			return epoch.Add(5 * testParams.TTL)
		}, 0},
	}
	for name, tc := range endings {
		t.Run(name, func(t *testing.T) {
			other := newSet(rec("b", 1))
			other.Apply(epoch, hello(epoch, past))
			joined := tc.end(other)
			s := startSet(joined, rec("a", 1), testParams)
			e := s.Apply(joined, carry(t, other.Sync(joined)))
			other.Apply(joined, carry(t, s.Sync(joined)))
			if m := member(other, "a"); m != nil && m.Incarnation == 1 {
				t.Fatal("the earlier incarnation replaced the later one")
			}
			now := joined
			if tc.at > 0 {
				if at, ok := s.NextDeadline(); !ok || at.After(joined.Add(tc.at)) {
					t.Fatalf("NextDeadline() = %v, %v: Expire would be late", at, ok)
				}
				now = joined.Add(tc.at - ms)
				if s.Expire(now); s.Self().Incarnation != 1 {
					t.Fatal("outbid before a TTL")
				}
				now = joined.Add(tc.at)
				if !s.Expire(now) {
					t.Fatal("Expire does not report the new incarnation")
				}
			} else if !e.Changed || !e.Urgent {
				t.Fatalf("effect %+v does not report the new incarnation", e)
			}
			if got := s.Self().Incarnation; got != lease.MaxIncarnation {
				t.Fatalf("incarnation %d", got)
			}
			trust(s.Handle())
			other.Expire(now)
			other.Apply(now, carry(t, s.Compose(now, 1400, 1)[0]))
			if m := member(other, "a"); m == nil || m.Incarnation != lease.MaxIncarnation {
				t.Fatalf("the other sees %+v", m)
			}
			if e := s.Apply(now, carry(t, other.Sync(now))); e.Changed && s.Stats().Reincarnations > 1 {
				t.Fatal("outbid twice")
			}
			if got := s.Stats().Reincarnations; got != 1 {
				t.Errorf("Reincarnations = %d", got)
			}
		})
	}
}

// Heartbeats that an earlier process sent shortly before its end may arrive after the new process has started. They do
// not prove that the earlier process is still running.
func TestDelayedHeartbeatsAreNoDuplicate(t *testing.T) {
	s, past := newSet(rec("a", 1)), rec("a", 2)
	s.Apply(epoch, messageFrom(epoch, past, []lease.Heartbeat{sent(past, epoch.Add(-time.Second))}, past))
	for i := range 10 {
		late := time.Duration(i) * 500 * ms
		now := epoch.Add(late)
		if e := s.Apply(now, messageFrom(now, past, []lease.Heartbeat{sent(past, epoch.Add(time.Duration(i%3-3)*100*ms))})); e.Duplicate != nil {
			t.Fatalf("after %v: %+v", late, e)
		}
	}
	s.Expire(epoch.Add(testParams.TTL + ms))
	if s.Self().Incarnation <= 2 {
		t.Error("not outbid")
	}
}

// Two copies of one virtual machine send heartbeats with the same handle. A copy that receives a heartbeat it has not
// sent yet takes a new incarnation. Then the older copy stops.
func TestClonedProcess(t *testing.T) {
	one, two, other := newSet(rec("a", 1)), newSet(rec("a", 1)), newSet(rec("b", 1))
	one.Heartbeat(epoch, 10, 3)
	two.Heartbeat(epoch, 0, 0)
	now := epoch.Add(time.Second)
	two.Heartbeat(now, 0, 0)
	e := one.Apply(now, carry(t, two.Sync(now)))
	if !e.Changed || !e.Urgent || one.Self().Incarnation <= 1 {
		t.Fatalf("the clone was not noticed: %+v, %+v", e, one.Self())
	}
	if m := member(one, "a"); m.Load != 10 || m.Table != 3 {
		t.Errorf("the new incarnation lost load and table: %+v", m)
	}
	if e := one.Apply(now, carry(t, two.Sync(now))); e.Changed {
		t.Error("the same heartbeat again: another incarnation")
	}
	trust(one.Handle())
	two.Apply(now, carry(t, one.Sync(now)))
	now = now.Add(time.Second)
	one.Heartbeat(now, 0, 0)
	if e := two.Apply(now, carry(t, one.Sync(now))); e.Duplicate == nil {
		t.Fatal("the older copy is not reported to stop")
	}
	other.Apply(now, carry(t, two.Sync(now)))
	other.Apply(now, carry(t, one.Sync(now)))
	if got := ids(other); len(got) != 2 || member(other, "a").Handle != one.Handle() {
		t.Errorf("the others see %v", got)
	}
}

// A heartbeat of this process may come back with a later stamp if other nodes adopted a later cluster time first. A
// heartbeat with a much later stamp must come from a clone.
func TestOwnHeartbeatComesBack(t *testing.T) {
	for later, want := range map[time.Duration]uint64{testParams.TTL / 8: 0, testParams.TTL/8 + ms: 1} {
		s, now := newSet(rec("a", 1)), epoch.Add(later)
		s.Apply(now, messageFrom(now, rec("b", 1), []lease.Heartbeat{sent(s.Self(), now)}))
		if got := s.Stats().Reincarnations; got != want {
			t.Errorf("%v later: %d new incarnations", later, got)
		}
	}
}

// A newcomer that learns the time from a late message steps back too far. Other nodes may know heartbeats that it sent
// before the step. These heartbeats do not indicate a clone, but a later heartbeat does.
func TestOwnHeartbeatFromBeforeAStepBack(t *testing.T) {
	for after, want := range map[time.Duration]uint64{0: 0, testParams.TTL / 8: 0, testParams.TTL/8 + ms: 1} {
		s, b := lease.NewSet(epoch, *rec("a", 1), testParams), rec("b", 1)
		s.Believe(map[lease.Handle]time.Time{b.Handle(): epoch})
		late := epoch.Add(-testParams.TTL / 2)
		s.Apply(epoch, messageFrom(late, b, nil))
		if s.Stamp(epoch) != lease.Stamp(late.UnixMilli()) {
			t.Fatalf("its time is %d, want %d", s.Stamp(epoch), lease.Stamp(late.UnixMilli()))
		}
		s.Apply(epoch, messageFrom(late, b, []lease.Heartbeat{sent(s.Self(), epoch.Add(after))}))
		if got := s.Stats().Reincarnations; got != want {
			t.Errorf("%v after its first heartbeat: %d new incarnations", after, got)
		}
	}
}

// The leave message of a cloned process also ends the lease of the other copy. The other copy takes exactly one new
// incarnation.
func TestCloneLeaves(t *testing.T) {
	one, two, other := newSet(rec("a", 1)), newSet(rec("a", 1)), newSet(rec("b", 1))
	one.SetState(lease.Left)
	one.Heartbeat(epoch, 0, 0)
	for range 5 {
		two.Heartbeat(epoch, 0, 0)
	}
	for range 2 {
		two.Apply(epoch, carry(t, one.Sync(epoch)))
		other.Apply(epoch, carry(t, one.Sync(epoch)))
	}
	if got := two.Stats().Reincarnations; got != 1 {
		t.Fatalf("Reincarnations = %d", got)
	}
	trust(two.Handle())
	other.Apply(epoch, carry(t, two.Sync(epoch)))
	if m := member(other, "a"); m == nil || m.Handle != two.Handle() || m.State != lease.Active {
		t.Errorf("the others see %+v", m)
	}
	one.Apply(epoch, carry(t, one.Sync(epoch))) // its own leave message comes back
	if got := one.Stats().Reincarnations; got != 0 {
		t.Errorf("took a new incarnation for its own leave message")
	}
}

// A later process with this node's id joined and left, which ended this node's lease in all views. This node takes a
// higher incarnation, but only once.
func TestLeaveOfALaterProcess(t *testing.T) {
	for name, inc := range map[string]uint64{
		"ordinary": 2, "the last to be outbid": lease.MaxIncarnation - 1, "not to be outbid": lease.MaxIncarnation, "unreadable": math.MaxUint64,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSet(rec("a", 1))
			s.Apply(epoch.Add(-ms), hello(epoch.Add(-ms), rec("a", inc)))
			for range 3 {
				s.Apply(epoch, leave(epoch, rec("a", inc)))
			}
			for i := range 5 {
				s.Expire(epoch.Add(time.Duration(i) * testParams.TTL))
			}
			if got := s.Stats().Reincarnations; got != 1 {
				t.Errorf("Reincarnations = %d, want 1", got)
			}
			carry(t, s.Sync(epoch))
		})
	}
}

// A node that takes a new incarnation because of a clone forgets any duplicate with a lower incarnation. Otherwise the
// duplicate would later set the node back to a lower incarnation.
func TestReincarnationDropsALowerDuplicate(t *testing.T) {
	s := newSet(rec("a", 1))
	s.Apply(epoch, hello(epoch, rec("a", 2)))
	now := epoch.Add(time.Second)
	s.Apply(now, messageFrom(now, rec("a", 1), []lease.Heartbeat{sent(rec("a", 1), now)}))
	inc := s.Self().Incarnation
	if inc <= 2 {
		t.Fatalf("incarnation %d", inc)
	}
	now = now.Add(time.Second)
	if e := s.Apply(now, hello(now, rec("a", 2))); e.Duplicate != nil {
		t.Error("Duplicate is an incarnation that was outbid")
	}
	s.Expire(epoch.Add(2 * testParams.TTL))
	if got := s.Self().Incarnation; got != inc {
		t.Errorf("incarnation went from %d to %d", inc, got)
	}
}
