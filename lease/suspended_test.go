package lease_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// A node learns from an answer that it was suspended, if its lease has ended by the answer's cluster time and the
// sender no longer considers it live. Before, node a and its members b and c had the same cluster time.
func TestSuspended(t *testing.T) {
	const ttl, ahead = 6 * time.Second, time.Hour
	a, b, outsider := rec("a", 1), rec("b", 1), rec("s", 1)
	now := epoch.Add(time.Second)
	held := []lease.Heartbeat{sent(a, epoch)}
	for _, tc := range []struct {
		name       string
		from       *lease.Record
		heartbeats []lease.Heartbeat
		question   bool
		ahead      time.Duration
		counts     bool
		suspended  bool
	}{
		{"a member that does not hold it", b, nil, true, ahead, true, true},
		{"the same, to a challenge", b, nil, false, ahead, true, true},
		{"a member that holds it", b, held, true, ahead, true, false},
		{"the same, to a challenge", b, held, false, ahead, true, false},
		{"a later process at the address of a member", outsider, nil, true, ahead, true, true},
		{"an unknown sender", outsider, nil, false, ahead, false, false},
		{"a member that holds it, half a century later", b, held, true, 50 * 365 * 24 * time.Hour, true, false},
		{"a member that does not hold it, at present", b, nil, true, 0, true, false},
		{"a member that does not hold it, before the end of the lease", b, nil, true, 4 * time.Second, true, false},
		{"a member that does not hold it, after the end", b, nil, true, ttl - ttl/8, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSet(a)
			s.Heartbeat(epoch, lease.NoLoad, 0)
			for _, r := range []*lease.Record{b, rec("c", 1)} {
				s.Apply(epoch, hello(epoch, r))
			}
			m := messageFrom(now.Add(tc.ahead), tc.from, tc.heartbeats)
			if m.Echo = s.Challenge(now, 7).Challenge; tc.question {
				m.Echo = s.Question(now, 7).Challenge
			}
			e := s.Apply(now, carry(t, m))
			moved := s.Stamp(now) > stampAt(now)+1
			if e.Counts != tc.counts || e.Suspended != tc.suspended || moved != (tc.counts && tc.ahead > 0) {
				t.Errorf("%+v, cluster time has moved: %v", e, moved)
			}
		})
	}
}

// Packets that waited for a suspended node move its cluster time to the present in small steps. The node still learns
// from the answer to its question that it was suspended.
func TestSuspendedWithPacketsWaiting(t *testing.T) {
	for _, step := range []time.Duration{100 * ms, 400 * ms, 2 * time.Second, 5 * time.Second} {
		s, b := newSet(rec("a", 1)), rec("b", 1)
		s.Heartbeat(epoch, lease.NoLoad, 0)
		s.Apply(epoch, hello(epoch, b))
		last := epoch
		for at := step; at <= time.Minute; at += step {
			last = epoch.Add(at)
			s.Apply(epoch, messageFrom(last, b, nil))
		}
		if led := s.Stamp(epoch) - stampAt(epoch); millis(led) > 6*time.Second {
			t.Errorf("steps of %v lead it %v ahead", step, millis(led))
		}
		m := messageFrom(last, b, nil)
		m.Echo = s.Question(epoch, 7).Challenge
		if e := s.Apply(epoch, m); !e.Suspended {
			t.Errorf("steps of %v: %+v", step, e)
		}
	}
}

// Without an answer to a challenge, no message moves a node's cluster time past the end of its own lease, whether the
// sender is a member or unknown.
func TestOverdueWithoutAnswer(t *testing.T) {
	for _, r := range []*lease.Record{rec("b", 1), rec("s", 1)} {
		s := newSet(rec("a", 1))
		s.Apply(epoch, hello(epoch, rec("b", 1)))
		for _, ahead := range []time.Duration{6 * time.Second, time.Hour} {
			e := s.Apply(epoch, hello(epoch.Add(ahead), r))
			if e.Counts || e.Suspended || e.Challenge != r.Addr || e.Overdue != (r.ID == "b") || s.Stamp(epoch) != stampAt(epoch) {
				t.Errorf("%s, %v ahead: %+v", r.ID, ahead, e)
			}
		}
	}
}

// A node believes an unknown sender with a later time when the node's members have had time to answer, or immediately
// if it has no members.
func TestOutsiderWithLaterTime(t *testing.T) {
	for _, alone := range []bool{true, false} {
		s := newSet(rec("a", 1))
		if !alone {
			s.Apply(epoch, hello(epoch, rec("b", 1)))
		}
		answers := func(at time.Duration) lease.Effect {
			now := epoch.Add(at)
			s.Heartbeat(now, lease.NoLoad, 0)
			m := messageFrom(now.Add(time.Hour), rec("s", 1), nil)
			m.Echo = s.Challenge(now, 7).Challenge
			return s.Apply(now, m)
		}
		if e := answers(0); e.Counts != alone || e.Overdue == alone {
			t.Errorf("alone: %v: %+v", alone, e)
		}
		if alone {
			continue
		}
		if e := answers(testParams.TTL/8 - ms); e.Counts {
			t.Errorf("too early: %+v", e)
		}
		if e := answers(testParams.TTL / 8); !e.Counts || e.Suspended {
			t.Errorf("too late: %+v", e)
		}
	}
}

// An answer from another cluster shows that a node was suspended, if it answers a question, and if the node's lease has
// ended by the answer's cluster time.
func TestOverslept(t *testing.T) {
	now := epoch.Add(time.Second)
	for _, tc := range []struct {
		name        string
		question    bool
		provisional bool
		ahead       time.Duration
		overslept   bool
	}{
		{"later", true, false, time.Hour, true},
		{"at present", true, false, 0, false},
		{"before", true, false, -time.Hour, false},
		{"later, to a challenge", false, false, time.Hour, false},
		{"later, of a process that does not know the time", true, true, time.Hour, false},
	} {
		s := newSet(rec("a", 1))
		s.Heartbeat(epoch, lease.NoLoad, 0)
		m := messageFrom(now.Add(tc.ahead), rec("s", 1), nil)
		if m.Provisional, m.Echo = tc.provisional, s.Challenge(now, 7).Challenge; tc.question {
			m.Echo = s.Question(now, 7).Challenge
		}
		m = carry(t, m)
		if got := s.Overslept(now, m); got != tc.overslept {
			t.Errorf("%s: %v", tc.name, got)
		}
		if late := now.Add(2*lease.ChallengeLife + time.Second); s.Overslept(late, m) {
			t.Errorf("%s: an answer counts after %v", tc.name, late.Sub(now))
		}
	}
}
