package lease_test

import (
	"math"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// A forged incarnation, which is the highest possible, replaces the incarnation of a node. The node is live again as
// soon as other nodes forget the forged incarnation.
func TestLastIncarnationIsForgotten(t *testing.T) {
	s, b, forged := newSet(rec("a", 1)), rec("b", 5), rec("b", lease.MaxIncarnation)
	s.Apply(epoch, hello(epoch, b))
	s.Apply(epoch, hello(epoch, forged))
	wantIDs(t, s, "a/1", "b/4611686018427387904")
	limit := testParams.TTL + forgetAfter(testParams)
	for after := time.Duration(0); after <= limit+time.Second; after += time.Second {
		now := epoch.Add(after)
		s.Heartbeat(now, lease.NoLoad, 0)
		s.Expire(now)
		s.Apply(now, messageFrom(now, b, []lease.Heartbeat{sent(b, now)}))
		answerExpired(s, now, b.Handle(), false)
	}
	wantIDs(t, s, "a/1", "b/5")
}

// If other nodes know a version of a node's record that the node did not write, the node takes a new
// incarnation, so that its own record counts again.
func TestForgedVersion(t *testing.T) {
	for _, version := range []uint32{2, math.MaxUint32} {
		s, b := newSet(rec("a", 1)), rec("b", 1)
		s.Apply(epoch, hello(epoch, b))
		own := sent(s.Self(), epoch)
		own.Version = version
		if s.Apply(epoch, messageFrom(epoch, b, []lease.Heartbeat{own})); s.Stats().Reincarnations != 1 {
			t.Errorf("version %d: still incarnation %d", version, s.Self().Incarnation)
		}
	}
}

// A newcomer can join a cluster whose time is the latest that members accept. A member does not accept a
// later time.
func TestLatestClusterTime(t *testing.T) {
	for _, tc := range []struct {
		stamp            lease.Stamp
		newcomer, member bool
	}{
		{lease.MaxStart, true, true}, {lease.MaxStart + 1, true, false}, {lease.MaxLearned, true, false}, {lease.MaxLearned + 1, false, false},
	} {
		m := messageFrom(epoch, rec("b", 1), nil)
		m.Stamp, m.Echo = tc.stamp, 7
		newcomer, member := lease.NewSet(epoch, *rec("a", 1), testParams), newSet(rec("a", 1))
		newcomer.Challenge(epoch, 7)
		member.Challenge(epoch, 7)
		if got := newcomer.Apply(epoch, m).Counts; got != tc.newcomer {
			t.Errorf("a newcomer counts a message of %d: %v", tc.stamp, got)
		}
		if got := member.Apply(epoch, m).Counts; got != tc.member {
			t.Errorf("a member counts a message of %d: %v", tc.stamp, got)
		}
	}
}

// A forged message moves a node to the latest possible cluster time. The other node adopts this time, even if it
// receives it later, so both nodes stay live.
func TestLatestClusterTimeIsFollowed(t *testing.T) {
	for _, delay := range []time.Duration{0, ms, time.Second, 5 * testParams.TTL} {
		a, b := newSet(rec("a", 1)), newSet(rec("b", 1))
		b.Apply(epoch, carry(t, a.Sync(epoch)))
		a.Apply(epoch, carry(t, b.Sync(epoch)))
		forged := messageFrom(epoch, rec("b", 1), []lease.Heartbeat{sent(rec("a", 1), epoch)})
		forged.Stamp, forged.Echo = lease.MaxStart, a.Challenge(epoch, 7).Challenge
		if !a.Apply(epoch, forged).Counts {
			t.Fatal("the forged time does not count")
		}
		now := epoch.Add(delay)
		for range 10 {
			for _, s := range []*lease.Set{a, b} {
				s.Heartbeat(now, lease.NoLoad, 0)
				s.Expire(now)
			}
			exchange(t, now, a, b)
			now = now.Add(time.Second)
		}
		wantIDs(t, a, "a/1", "b/1")
		wantIDs(t, b, "a/1", "b/1")
		if d := a.Stamp(now) - b.Stamp(now); d != 0 {
			t.Errorf("after %v a is %v ahead", delay, millis(d))
		}
	}
}

// exchange makes two sets exchange messages and challenge each other.
func exchange(t *testing.T, now time.Time, one, other *lease.Set) {
	t.Helper()
	for _, pair := range [][2]*lease.Set{{one, other}, {other, one}} {
		from, to := pair[0], pair[1]
		if e := to.Apply(now, carry(t, from.Sync(now))); e.Challenge != "" {
			ask := carry(t, to.Challenge(now, 7))
			from.Apply(now, ask)
			if from.EchoTo(ask) != "" {
				to.Apply(now, carry(t, from.Echo(now, ask)))
				to.Apply(now, carry(t, from.Sync(now)))
			}
		}
	}
}
