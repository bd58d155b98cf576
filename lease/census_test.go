package lease_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

// Whatever messages say about some nodes, the live set is sorted and its census is correct.
func TestCensus(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now, version := newSet(rec("a", 1)), epoch, uint32(1)
		nodes := []*lease.Record{rec("b", 1), rec("c", 1), rec("d", 1), rec("e", 1), rec("e", 2)}
		node := rapid.SampledFrom(nodes)
		state := rapid.SampledFrom([]lease.State{lease.Settling, lease.Active, lease.Draining, lease.Active, lease.Left})
		for range rapid.IntRange(1, 40).Draw(t, "messages") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "passed ms")) * ms)
			m := messageFrom(now, nodes[0], nil)
			for range rapid.IntRange(0, 3).Draw(t, "records") {
				r := *node.Draw(t, "node")
				version++
				r.Version = version
				if rapid.Bool().Draw(t, "without an address") {
					r.Addr = ""
				}
				m.Records = append(m.Records, &r)
			}
			for range rapid.IntRange(0, 4).Draw(t, "heartbeats") {
				b := sent(node.Draw(t, "node"), now.Add(-time.Duration(rapid.IntRange(0, 7000).Draw(t, "age ms"))*ms))
				b.Clock = time.Duration(rapid.IntRange(-2, 6).Draw(t, "clock s")) * time.Second
				m.Heartbeats = append(m.Heartbeats, as(b, state.Draw(t, "state")))
			}
			for range rapid.IntRange(0, 2).Draw(t, "failure reports") {
				m.FailureReports = append(m.FailureReports, lease.FailureReport{
					Subject: node.Draw(t, "subject").Handle(), Watcher: node.Draw(t, "watcher").Handle(),
					At: stampAt(now), Evidence: rapid.SampledFrom([]lease.Evidence{lease.Refused, lease.Silent}).Draw(t, "evidence"),
				})
			}
			s.Apply(now, m)
			wantLiveInOrder(t, s)
			switch rapid.IntRange(0, 9).Draw(t, "then") {
			case 0:
				s.Expire(now)
			case 1:
				s.ExpireOthers(now)
			}
			wantLiveInOrder(t, s)
			s.Heartbeat(now, lease.NoLoad, 0)
			wantClusterClock(t, s)
			wantAgesInOrder(t, s, now)
		}
	})
}

// wantClusterClock compares the cluster's clock with the lower median of the clocks in the view, unless the set rejects
// some heartbeats because of their clocks.
func wantClusterClock(t *rapid.T, s *lease.Set) {
	var clocks []time.Duration
	for _, m := range s.View().Members {
		clocks = append(clocks, m.Clock)
	}
	slices.Sort(clocks)
	if median := clocks[(len(clocks)-1)/2]; s.Sizes()["ahead"] == 0 && -s.ClockAhead() != median {
		t.Fatalf("the cluster's clock is %v, the median of %v is %v", -s.ClockAhead(), clocks, median)
	}
}

// wantAgesInOrder compares the ages in a message with the rows of a full state.
func wantAgesInOrder(t *rapid.T, s *lease.Set, now time.Time) {
	renewed := make(map[lease.Handle]lease.Stamp)
	for _, b := range s.Sync(now).Heartbeats {
		renewed[b.Handle] = b.Renewed
	}
	messages := s.Compose(now, 1400, 1)
	if len(messages) == 0 {
		t.Fatal("a heartbeat is no news")
	}
	packed, tick := agesIn(lease.Encode(messages[0]))[0], stamps(testParams.TTL)/16
	for i, h := range s.Handles() {
		want := min(max(0, messages[0].Stamp/tick-renewed[h]/tick), 15)
		if got := lease.Stamp(packed[i/2] >> (i % 2 * 4) & 15); got != want {
			t.Fatalf("an age of %d, want %d", got, want)
		}
	}
}
