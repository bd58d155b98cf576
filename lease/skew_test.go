package lease_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

// rounds makes a send heartbeats for more than two TTLs, and receive a heartbeat of every peer each time. The clocks of
// the peers are relative to a's clock.
func rounds(s *lease.Set, clocks ...time.Duration) {
	for i := range 7 {
		now := epoch.Add(time.Duration(i) * 2 * time.Second)
		s.Heartbeat(now, 0, 0)
		for i, clock := range clocks {
			s.Apply(now, by(hello(now, rec(lease.NodeID(fmt.Sprintf("p%d", i)), 1)), clock))
		}
		s.Expire(now)
	}
}

func TestClusterClock(t *testing.T) {
	const sec = time.Second
	for _, tc := range []struct {
		name   string
		clocks []time.Duration
		live   []string
		ahead  time.Duration // ClockAhead
	}{
		{"alone", nil, []string{"a/1"}, 0},
		{"one, at the limit", []time.Duration{5 * sec}, []string{"a/1", "p0/1"}, 0},
		{"one, beyond the limit", []time.Duration{5*sec + ms}, []string{"a/1"}, 0},
		{"one, behind", []time.Duration{-10 * sec}, []string{"a/1", "p0/1"}, 10 * sec},
		{"one fast among many", []time.Duration{0, 0, 10 * sec}, []string{"a/1", "p0/1", "p1/1"}, 0},
		{"one slow among many", []time.Duration{0, 0, -10 * sec}, []string{"a/1", "p0/1", "p1/1", "p2/1"}, 0},
		{
			"ours is slow, the others agree",
			[]time.Duration{10 * sec, 10 * sec, 10 * sec},
			[]string{"a/1", "p0/1", "p1/1", "p2/1"},
			-10 * sec,
		},
		{
			"ours is fast, the others agree",
			[]time.Duration{-10 * sec, -10 * sec, -10 * sec},
			[]string{"a/1", "p0/1", "p1/1", "p2/1"},
			10 * sec,
		},
		{
			"most are ahead",
			[]time.Duration{0, 10 * sec, 10 * sec, 10 * sec},
			[]string{"a/1", "p0/1", "p1/1", "p2/1", "p3/1"},
			-10 * sec,
		},
		{
			"two halves, ours behind",
			[]time.Duration{0, 10 * sec, 10 * sec},
			[]string{"a/1", "p0/1"},
			0,
		},
		{
			"two halves, ours ahead",
			[]time.Duration{0, -10 * sec, -10 * sec},
			[]string{"a/1", "p1/1", "p2/1"},
			10 * sec,
		},
		{
			"one without a clock battery",
			[]time.Duration{0, -56 * 365 * 24 * time.Hour},
			[]string{"a/1", "p0/1", "p1/1"},
			0,
		},
		{
			"one from the far future",
			[]time.Duration{0, math.MaxInt64},
			[]string{"a/1", "p0/1"},
			0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSet(rec("a", 1))
			rounds(s, tc.clocks...)
			wantIDs(t, s, tc.live...)
			if got := s.ClockAhead(); got != tc.ahead {
				t.Errorf("ClockAhead() = %v, want %v", got, tc.ahead)
			}
			// A wrong clock must not make a node's messages unreadable.
			s.Heartbeat(epoch.Add(15*sec), 0, 0)
			carry(t, s.Compose(epoch.Add(15*sec), 1400, 1)[0])
			carry(t, s.Sync(epoch.Add(15*sec)))
		})
	}
}

// Whatever their clocks show, connected nodes agree on the cluster's clock and on the rejected nodes, and each rejected
// node knows that it is rejected.
func TestAllAgreeWhoIsAhead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offsets := rapid.SliceOfN(rapid.Map(rapid.IntRange(-15_000, 15_000), func(n int) time.Duration {
			return time.Duration(n) * ms
		}), 2, 8).Draw(t, "clocks")
		sets := make([]*lease.Set, len(offsets))
		for i := range sets {
			sets[i] = offSet(epoch, offsets[i], rec(lease.NodeID(fmt.Sprintf("n%d", i)), 1))
		}
		for round := range 7 {
			now := epoch.Add(time.Duration(round) * 2 * time.Second)
			var sent []*lease.Message
			for i, s := range sets {
				at := now.Add(offsets[i])
				s.Heartbeat(at, 0, 0)
				m := s.Sync(at)
				m.Heartbeats, m.Records = m.Heartbeats[:1], m.Records[:1] // itself
				sent = append(sent, m)
			}
			for i, s := range sets {
				for _, m := range sent {
					s.Apply(now.Add(offsets[i]), m)
					for id, by := range s.Ahead() {
						if by <= testParams.MaxSkew {
							t.Fatalf("n%d says that %s is ahead by %v", i, id, by)
						}
					}
				}
				s.Expire(now.Add(offsets[i]))
			}
		}
		clusterClock := offsets[0] - sets[0].ClockAhead()
		var accepted []string
		for i, s := range sets {
			if got := offsets[i] - s.ClockAhead(); got != clusterClock {
				t.Fatalf("cluster's clock: %[2]v on n%[1]d, %[3]v on n0", i, got, clusterClock)
			}
			if s.ClockAhead() <= testParams.MaxSkew {
				accepted = append(accepted, fmt.Sprintf("n%d/1", i))
			}
		}
		if len(accepted) == 0 {
			t.Fatal("all are rejected")
		}
		for i, s := range sets {
			if s.ClockAhead() > testParams.MaxSkew {
				continue // this node is fenced, but still sees itself
			}
			if diff := cmp.Diff(accepted, ids(s)); diff != "" {
				t.Fatalf("n%d (-want +got):\n%s", i, diff)
			}
		}
	})
}

// Other nodes reject a node with a fast clock, but accept the rows that it relays, because the clocks in these rows are
// relative to the sender's clock.
func TestFastNodeRelaysWell(t *testing.T) {
	hour := epoch.Add(time.Hour)
	fast := offSet(epoch, time.Hour, rec("f", 1))
	fast.Apply(hour, hello(epoch, rec("b", 1)))
	fast.Apply(hour, hello(epoch, rec("c", 1)))
	if got := fast.ClockAhead(); got != time.Hour {
		t.Errorf("ClockAhead() of the fast node = %v", got)
	}
	s := newSet(rec("a", 1))
	s.Apply(epoch, carry(t, fast.Sync(hour)))
	wantIDs(t, s, "a/1", "b/1", "c/1")
	if got := s.Stats().SkewRejected; got != 1 {
		t.Errorf("SkewRejected = %d", got)
	}
	if got := member(s, "b").Clock; got != 0 {
		t.Errorf("clock of b by way of f: %v", got)
	}
}

// No node loses its lease when a clock is set at run time.
func TestOwnClockIsSet(t *testing.T) {
	peers := []*lease.Record{rec("b", 1), rec("c", 1), rec("d", 1)}
	for name, clock := range map[string]time.Duration{ // clocks of the peers, relative to this node's clock afterwards
		"back": 20 * time.Second, "forward": -20 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSet(rec("a", 1))
			for i := range 10 {
				now := epoch.Add(time.Duration(i) * 2 * time.Second)
				s.Heartbeat(now, 0, 0)
				skew := time.Duration(0)
				if i >= 5 {
					skew = clock
				}
				for _, r := range peers {
					s.Apply(now, by(hello(now, r), skew))
				}
				s.Expire(now)
				wantIDs(t, s, "a/1", "b/1", "c/1", "d/1")
			}
			if got := s.ClockAhead(); got != -clock {
				t.Errorf("ClockAhead() = %v, want %v", got, -clock)
			}
		})
	}
}

// A stopped node first reads the packets that waited for it, so all other clocks look slow. The next heartbeats correct
// these clocks, and the node accepts heartbeats again without waiting for a TTL.
func TestWaitingPacketsDoNotBlind(t *testing.T) {
	s := newSet(rec("a", 1))
	peers := []*lease.Record{rec("b", 1), rec("c", 1), rec("d", 1)}
	send := func(now, sent time.Time) {
		for _, r := range peers {
			s.Apply(now, hello(sent, r))
		}
	}
	send(epoch, epoch)
	now := epoch.Add(20 * time.Second)
	s.ExpireOthers(now)
	for _, late := range []time.Duration{18 * time.Second, testParams.TTL - 100*ms} {
		send(now, now.Add(-late))
	}
	now = now.Add(time.Second)
	for range 2 { // the first heartbeats correct the clock; the second ones count at the latest
		now = now.Add(ms)
		send(now, now)
	}
	for _, r := range peers {
		if m := member(s, r.ID); m == nil || !m.Renewed.Equal(now) {
			t.Errorf("%s: %+v", r.ID, m)
		}
	}
	if got := s.ClockAhead(); got != 0 {
		t.Errorf("ClockAhead() = %v", got)
	}
}
