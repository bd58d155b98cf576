package lease

import (
	"slices"
	"testing"
	"time"
)

// Only watchers that were refused show that a process has ended, and for a TTL.
func TestCrashed(t *testing.T) {
	subject := Incarnation{"d", 1}
	for _, c := range []struct {
		own, others Evidence
		want        []Incarnation
	}{
		{Refused, Refused, []Incarnation{subject}},
		{Refused, Silent, nil},
		{Silent, Silent, nil},
	} {
		s := newSet(rec("a", 1))
		for _, id := range []NodeID{"b", "c", "d"} {
			s.Apply(epoch, hello(epoch, rec(id, 1)))
		}
		now := epoch.Add(5 * time.Second / 2)
		d := subject.Handle()
		s.ReportFailure(now, d, now, c.own)
		if s.View().Crashed != nil {
			t.Errorf("%v: crashed by one word", c)
		}
		m := hello(now, rec("b", 1))
		m.FailureReports = []FailureReport{{Subject: d, Watcher: m.From, At: m.Stamp, Evidence: c.others}}
		s.Apply(now, m)
		if s.AddrOf(d) != "" {
			t.Errorf("%v: d is live still", c)
		}
		if got := s.View().Crashed; !slices.Equal(got, c.want) {
			t.Errorf("%v: crashed are %v, want %v", c, got, c.want)
		}
		now = now.Add(s.params.TTL + s.params.TTL/8)
		s.Expire(now)
		if got := s.View().Crashed; got != nil {
			t.Errorf("%v: crashed are %v after a TTL", c, got)
		}
	}
}
