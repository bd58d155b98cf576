package lease

import (
	"testing"
	"time"
)

// A planned drain begins at its moment by itself: in the view, in the states and for the candidates. A record
// that comes late begins it at once, and a later record without it ends it.
func TestPlannedDrain(t *testing.T) {
	plan := func(version uint32, drains time.Duration) *Record {
		b := rec("b", 1)
		if b.Version = version; drains > 0 {
			b.Drains = stampAt(epoch.Add(drains))
		}
		return b
	}
	state := func(s *Set) State { return member(s, "b").State }
	start := func(now time.Time, r *Record) *Set {
		s := newSet(rec("a", 1))
		s.Apply(now, messageFrom(now, r, []Heartbeat{r.sent(now).as(Active)}, r))
		return s
	}
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	t.Run("in time", func(t *testing.T) {
		s := start(epoch, plan(1, time.Second))
		if next := s.NextDrain(); !next.Equal(at(time.Second)) {
			t.Errorf("it begins %v", next)
		}
		if s.BeginDrains(at(time.Second-time.Millisecond)) || state(s) != Active {
			t.Error("it has begun before its moment")
		}
		s.Lost()
		if !s.BeginDrains(at(time.Second)) || state(s) != Draining || !s.Lost() || !s.NextDrain().IsZero() {
			t.Errorf("at its moment the node is %v", state(s))
		}
		if member(s, "b").Cordoned {
			t.Error("the node shows as cordoned")
		}
		if others, _ := s.Candidates(); others != 0 || s.BeginDrains(at(2*time.Second)) {
			t.Errorf("%d candidates", others)
		}
		taken := plan(2, 0)
		s.Apply(at(2*time.Second), messageFrom(at(2*time.Second), taken, []Heartbeat{taken.sent(at(2 * time.Second)).as(Active)}, taken))
		if state(s) != Active {
			t.Errorf("taken back, the node is %v", state(s))
		}
	})
	t.Run("late", func(t *testing.T) {
		s := start(at(2*time.Second), plan(1, time.Second))
		if !s.BeginDrains(at(2*time.Second)) || state(s) != Draining {
			t.Errorf("the node is %v", state(s))
		}
	})
	t.Run("taken back before", func(t *testing.T) {
		s, taken := start(epoch, plan(1, time.Second)), plan(2, 0)
		s.Apply(epoch, messageFrom(epoch, taken, []Heartbeat{taken.sent(epoch).as(Active)}, taken))
		if s.BeginDrains(at(time.Second)) || state(s) != Active {
			t.Errorf("the node is %v", state(s))
		}
	})
	t.Run("of this node", func(t *testing.T) {
		s := newSet(rec("a", 1))
		s.Update(func(r *Record) { r.Drains = stampAt(at(time.Second)) })
		if s.BeginDrains(epoch); s.Drains() {
			t.Error("it has begun before its moment")
		}
		if s.BeginDrains(at(time.Second)); !s.Drains() {
			t.Error("it has not begun")
		}
	})
}
