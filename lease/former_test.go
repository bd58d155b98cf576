package lease_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// A process finds the record of the process before it, and learns whether that process sent a leave message. Other
// incarnations of the same process do not count as an earlier process.
func TestFormer(t *testing.T) {
	b, past := rec("b", 1), rec("a", 7)
	past.RecentReturns = 99
	for name, tt := range map[string]struct {
		heartbeats []lease.Heartbeat
		left       bool
	}{
		"crashed": {[]lease.Heartbeat{sent(past, epoch)}, false},
		"unheard": {nil, false},
		"left":    {[]lease.Heartbeat{as(sent(past, epoch), lease.Left)}, true},
	} {
		s := newSet(rec("a", 9))
		s.Apply(epoch, hello(epoch, b))
		if former, _ := s.Former(); former != nil {
			t.Errorf("%s: %v, before any is known", name, former)
		}
		s.Apply(epoch, messageFrom(epoch, b, tt.heartbeats, past))
		s.Apply(epoch, messageFrom(epoch, b, nil, rec("a", 3)))
		former, left := s.Former()
		if former == nil || former.Incarnation != 7 || former.RecentReturns != 99 || left != tt.left {
			t.Errorf("%s: %+v, left: %v", name, former, left)
		}
		wantIDs(t, s, "a/9", "b/1")
	}
	s := newSet(rec("a", 9))
	s.Apply(epoch, hello(epoch, b))
	s.Apply(epoch, messageFrom(epoch, b, []lease.Heartbeat{as(sent(s.Self(), epoch), lease.Left)})) // of a copy of this process
	if s.Stats().Reincarnations != 1 {
		t.Fatal("no new incarnation")
	}
	own, later := s.Self().Incarnation, epoch.Add(forgetAfter(testParams)+time.Second)
	for _, now := range []time.Time{epoch, later} { // by then, this process has forgotten its first incarnation
		s.Expire(now)
		s.Apply(now, hello(now, b))
		s.Apply(now, messageFrom(now, b, nil, rec("a", 9)))
		if former, _ := s.Former(); former != nil {
			t.Errorf("its own record is one of an earlier process: %v", former)
		}
	}
	s.Apply(later, messageFrom(later, b, nil, rec("a", own+1))) // the clock was set back before this process began
	if former, _ := s.Former(); former == nil || former.Incarnation != own+1 {
		t.Errorf("the earlier process: %v", former)
	}
}

// A leave message of the earlier process that arrives after its record changes what the set knows about that
// process, but not what the set sends.
func TestLateLeaveOfFormer(t *testing.T) {
	for name, past := range map[string]*lease.Record{"earlier": rec("a", 7), "the clock was set back": rec("a", 11)} {
		s, b := newSet(rec("a", 9)), rec("b", 1)
		s.Apply(epoch, hello(epoch, b))
		s.Apply(epoch, messageFrom(epoch, b, []lease.Heartbeat{sent(past, epoch)}, past))
		if _, left := s.Former(); left {
			t.Errorf("%s: left, before its leave message came", name)
		}
		later := epoch.Add(time.Second)
		s.Apply(later, messageFrom(later, b, []lease.Heartbeat{as(sent(past, epoch.Add(time.Millisecond)), lease.Left)}))
		if _, left := s.Former(); !left {
			t.Errorf("%s: its leave message is ignored", name)
		}
		pulls := messageFrom(later, b, nil)
		pulls.PullLeases, pulls.PullRecords = []lease.Handle{past.Handle()}, []lease.Handle{past.Handle()}
		_, expired := answerExpired(s, later, past.Handle(), false)
		if expired == nil {
			t.Errorf("%s: it gets no answer", name)
			continue
		}
		for _, m := range append(answer(s, later, pulls, 1400), append(s.Compose(later, 1400, 1), expired, s.Sync(later))...) {
			for _, row := range m.Heartbeats {
				if row.Handle == past.Handle() {
					t.Errorf("%s: others hear of it: %+v", name, row)
				}
			}
		}
	}
}

// A side that lost more nodes than it kept is outnumbered. Of two equal halves, the half without the smallest
// id is outnumbered. A leave message does not count as a loss.
func TestOutnumbered(t *testing.T) {
	for _, tt := range []struct {
		self, lost, kept, left string // ids
		want                   bool
	}{
		{"a", "", "", "", false},
		{"a", "b", "", "", false},
		{"b", "a", "", "", true},
		{"b", "", "", "a", false},
		{"b", "", "a", "", false},
		{"a", "bc", "", "", true},
		{"a", "bc", "d", "", false},
		{"b", "ac", "d", "", true},
		{"a", "bcd", "e", "", true},
		{"e", "ab", "cd", "", false},
		{"e", "ab", "", "cd", true},
	} {
		s := newSet(rec(lease.NodeID(tt.self), 1))
		for _, id := range tt.lost + tt.left {
			s.Apply(epoch, hello(epoch, rec(lease.NodeID(id), 1)))
		}
		later := epoch.Add(testParams.TTL)
		for _, id := range tt.left {
			s.Apply(later, leave(later, rec(lease.NodeID(id), 1)))
		}
		for _, id := range tt.kept {
			s.Apply(later, hello(later, rec(lease.NodeID(id), 1)))
		}
		later = later.Add(time.Second)
		if s.Expire(later); s.Outnumbered() != tt.want {
			t.Errorf("%+v: outnumbered: %v", tt, !tt.want)
		}
		for i, id := range tt.lost {
			r, state := rec(lease.NodeID(id), 1), lease.Settling // the first node gave up its own lease
			if i > 0 {
				state = lease.Active
			}
			s.Apply(later, messageFrom(later, r, []lease.Heartbeat{as(sent(r, later), state)}))
		}
		all, reached := s.Revived()
		if want := uint64(len(tt.lost)); s.Outnumbered() || all != want || reached != max(1, want)-1 {
			t.Errorf("%+v: outnumbered at the end: %v; %d came back, %d were out of reach", tt, s.Outnumbered(), all, reached)
		}
	}
}
