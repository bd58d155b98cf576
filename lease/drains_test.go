package lease_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// A planned drain starts at its time, even if no message arrives then. The view, the states and the candidates all show
// it. If the record arrives late, the drain starts immediately. A later record without a drain ends it.
func TestPlannedDrain(t *testing.T) {
	plan := func(version uint32, drains time.Duration) *lease.Record {
		b := rec("b", 1)
		if b.Version = version; drains > 0 {
			b.Drains = stampAt(epoch.Add(drains))
		}
		return b
	}
	state := func(s *lease.Set) lease.State { return member(s, "b").State }
	start := func(now time.Time, r *lease.Record) *lease.Set {
		s := newSet(rec("a", 1))
		s.Apply(now, messageFrom(now, r, []lease.Heartbeat{as(sent(r, now), lease.Active)}, r))
		return s
	}
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	t.Run("in time", func(t *testing.T) {
		s := start(epoch, plan(1, time.Second))
		if next := s.NextDrain(); !next.Equal(at(time.Second)) {
			t.Errorf("it begins %v", next)
		}
		if s.BeginDrains(at(time.Second-time.Millisecond)) || state(s) != lease.Active {
			t.Error("it has begun before its moment")
		}
		s.Lost()
		if !s.BeginDrains(at(time.Second)) || state(s) != lease.Draining || !s.Lost() || !s.NextDrain().IsZero() {
			t.Errorf("at its moment the node is %v", state(s))
		}
		if member(s, "b").Cordoned {
			t.Error("the node shows as cordoned")
		}
		if others, _ := s.Candidates(); others != 0 || s.BeginDrains(at(2*time.Second)) {
			t.Errorf("%d candidates", others)
		}
		taken := plan(2, 0)
		s.Apply(at(2*time.Second),
			messageFrom(at(2*time.Second), taken, []lease.Heartbeat{as(sent(taken, at(2*time.Second)), lease.Active)}, taken))
		if state(s) != lease.Active {
			t.Errorf("taken back, the node is %v", state(s))
		}
	})
	t.Run("late", func(t *testing.T) {
		s := start(at(2*time.Second), plan(1, time.Second))
		if !s.BeginDrains(at(2*time.Second)) || state(s) != lease.Draining {
			t.Errorf("the node is %v", state(s))
		}
	})
	t.Run("taken back before", func(t *testing.T) {
		s, taken := start(epoch, plan(1, time.Second)), plan(2, 0)
		s.Apply(epoch, messageFrom(epoch, taken, []lease.Heartbeat{as(sent(taken, epoch), lease.Active)}, taken))
		if s.BeginDrains(at(time.Second)) || state(s) != lease.Active {
			t.Errorf("the node is %v", state(s))
		}
	})
	t.Run("of this node", func(t *testing.T) {
		s := newSet(rec("a", 1))
		s.Update(func(r *lease.Record) { r.Drains = stampAt(at(time.Second)) })
		if s.BeginDrains(epoch); s.Drains() {
			t.Error("it has begun before its moment")
		}
		if s.BeginDrains(at(time.Second)); !s.Drains() {
			t.Error("it has not begun")
		}
	})
}
