package lease_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/lease"
)

// flood makes a live member send n rows, in messages of 1,000.
func flood(s *lease.Set, now time.Time, from *lease.Record, n int, row func(i int, m *lease.Message)) {
	for i := 0; i < n; {
		m := messageFrom(now, from, nil)
		for ; i < n && len(m.Heartbeats)+len(m.Records)+len(m.Ages) < 1000; i++ {
			row(i, m)
		}
		s.Apply(now, m)
	}
}

// Whatever a member sends, the memory of a set stays within a small multiple of MaxNodes, and known nodes stay live.
func TestFloodsAreBounded(t *testing.T) {
	const n = 5 * lease.MaxNodes
	outsider := func(i int) *lease.Record { return rec(lease.NodeID(fmt.Sprintf("x%d", i)), 1) }
	for name, row := range map[string]func(i int, m *lease.Message){
		"records": func(i int, m *lease.Message) { m.Records = append(m.Records, outsider(i)) },
		"leave messages": func(i int, m *lease.Message) {
			m.Records = append(m.Records, outsider(i))
			m.Heartbeats = append(m.Heartbeats, as(sent(outsider(i), epoch), lease.Left))
		},
		"leave messages of unknown nodes": func(i int, m *lease.Message) {
			m.Heartbeats = append(m.Heartbeats, lease.Heartbeat{Handle: lease.Handle(i), At: stampAt(epoch), State: lease.Left})
		},
		"nodes": func(i int, m *lease.Message) {
			m.Records = append(m.Records, outsider(i))
			m.Heartbeats = append(m.Heartbeats, sent(outsider(i), epoch))
		},
		"incarnations": func(i int, m *lease.Message) {
			r := rec("x", uint64(i))
			m.Records = append(m.Records, r)
			m.Heartbeats = append(m.Heartbeats, sent(r, epoch))
		},
		"own incarnations": func(i int, m *lease.Message) { m.Records = append(m.Records, rec("a", uint64(i+2))) },
		"handles": func(i int, m *lease.Message) {
			m.Heartbeats = append(m.Heartbeats, lease.Heartbeat{Handle: lease.Handle(i), At: stampAt(epoch)})
		},
		"buckets": func(i int, m *lease.Message) {
			m.Ages = append(m.Ages, lease.Bucket{BucketID: lease.BucketID{Bits: lease.MaxBits, Index: uint32(i % lease.MaxBuckets)}, Nodes: 1})
		},
		"failure reports": func(i int, m *lease.Message) {
			m.Records = append(m.Records, rec("c", 1))
			m.Heartbeats = append(m.Heartbeats, sent(rec("c", 1), epoch))
			m.FailureReports = append(m.FailureReports, lease.FailureReport{
				Subject:  rec("c", 1).Handle(),
				Watcher:  lease.Handle(i),
				At:       stampAt(epoch),
				Evidence: lease.Refused,
			})
			m.FailureReports = append(m.FailureReports, lease.FailureReport{
				Subject:  lease.Handle(i),
				Watcher:  rec("b", 1).Handle(),
				At:       stampAt(epoch),
				Evidence: lease.Refused,
			})
		},
		"handles ahead": func(i int, m *lease.Message) {
			m.Heartbeats = append(m.Heartbeats, lease.Heartbeat{Handle: lease.Handle(i), At: stampAt(epoch), Clock: time.Duration(i) * time.Hour})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := newSet(rec("a", 1)), rec("b", 1)
			s.Apply(epoch, hello(epoch, b))
			flood(s, epoch, b, n, row)
			sizes := s.Sizes()
			for what, limit := range map[string]int{
				"known": 2*lease.MaxNodes + 1, "nodes": lease.MaxNodes, "requested": lease.MaxNodes,
				"ahead": lease.MaxNodes, "differs": lease.MaxDiffering, "reported": 1,
			} {
				if sizes[what] > limit {
					t.Errorf("%s holds %d, at most %d", what, sizes[what], limit)
				}
			}

			now := epoch.Add(time.Second)
			s.Apply(now, messageFrom(now, b, []lease.Heartbeat{sent(b, now)}))
			if m := member(s, "b"); m == nil || !m.Renewed.Equal(now) {
				t.Errorf("b is not live: %+v", m)
			}
			for range 40 { // the stored handles expire
				now = now.Add(2 * time.Second)
				s.Heartbeat(now, 0, 0)
				s.Apply(now, messageFrom(now, b, []lease.Heartbeat{sent(b, now)}))
				s.Expire(now)
			}
			wantIDs(t, s, fmt.Sprintf("a/%d", s.Self().Incarnation), "b/1")
			left := s.Sizes()
			maps.DeleteFunc(left, func(_ string, n int) bool { return n == 0 })
			if diff := cmp.Diff(map[string]int{"known": 2, "nodes": 2}, left); diff != "" {
				t.Errorf("a minute later (-want +got):\n%s", diff)
			}
		})
	}
}

// A set requests a record only from a live sender, and does not repeat the request within RequestInterval.
func TestWantsAreSpaced(t *testing.T) {
	s, b, c := newSet(rec("a", 1)), rec("b", 1), rec("c", 1)
	row := func(now time.Time, from *lease.Record) []lease.Handle {
		e := s.Apply(now, messageFrom(now, from, []lease.Heartbeat{sent(c, now)}))
		if ask := request(s, now, from.Handle(), e); ask != nil {
			return ask.PullRecords
		}
		return nil
	}
	s.Apply(epoch, hello(epoch, b))
	if got := row(epoch, c); got != nil {
		t.Errorf("requested %v from an unknown sender", got)
	}
	if got := row(epoch, b); len(got) != 1 || got[0] != c.Handle() {
		t.Errorf("requested %v from b", got)
	}
	if got := row(epoch.Add(lease.RequestInterval-1), b); got != nil {
		t.Errorf("requested %v again at once", got)
	}
	if got := row(epoch.Add(lease.RequestInterval), b); len(got) != 1 {
		t.Error("not requested again")
	}
	now := epoch.Add(time.Second)
	s.Apply(now, hello(now, c))
	if s.Sizes()["requested"] != 0 {
		t.Error("the received record is still requested")
	}
}

// A set remembers ended leases for exactly forgetAfter.
func TestForget(t *testing.T) {
	b := rec("b", 5)
	remembered := func(s *lease.Set) bool { return s.Ended()[lease.Incarnation{Node: "b", Number: 5}] != "" }
	for name, end := range map[string]func(s *lease.Set) (ended time.Time){
		"expired": func(s *lease.Set) time.Time {
			s.Expire(epoch.Add(testParams.TTL + ms))
			return epoch.Add(testParams.TTL + ms)
		},
		"left": func(s *lease.Set) time.Time {
			s.Apply(epoch, leave(epoch, b))
			return epoch
		},
		"left, known late": func(s *lease.Set) time.Time {
			now := epoch.Add(30 * time.Second)
			s.Apply(now, messageFrom(now, b, []lease.Heartbeat{as(sent(b, epoch), lease.Left)}))
			return epoch
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSet(rec("a", 1))
			s.Apply(epoch, hello(epoch, b))
			ended := end(s)
			s.Expire(ended.Add(forgetAfter(testParams)))
			if !remembered(s) || !s.Knows("b") {
				t.Error("forgotten too early")
			}
			s.Expire(ended.Add(forgetAfter(testParams) + 1))
			if remembered(s) || s.Knows("b") || len(s.ExpiredAddrs(nil)) != 0 {
				t.Error("not forgotten")
			}
		})
	}
	t.Run("a successor stays", func(t *testing.T) {
		s := newSet(rec("a", 1))
		s.Apply(epoch, hello(epoch, b))
		next := rec("b", 6)
		s.Apply(epoch, hello(epoch, next))
		now := epoch.Add(forgetAfter(testParams) + 1)
		s.Apply(now, messageFrom(now, next, []lease.Heartbeat{sent(next, now)}))
		s.Expire(now)
		wantIDs(t, s, "a/1", "b/6")
		if remembered(s) {
			t.Error("the predecessor is not forgotten")
		}
	})
	for ttl, want := range map[time.Duration]time.Duration{100 * ms: time.Minute, time.Minute: 10 * time.Minute} {
		params := testParams
		params.TTL = ttl
		s := startSet(epoch, rec("a", 1), params)
		s.Apply(epoch, hello(epoch, b))
		s.Apply(epoch, leave(epoch, b))
		if s.Expire(epoch.Add(want)); !remembered(s) {
			t.Errorf("with a TTL of %v forgotten before %v", ttl, want)
		}
		if s.Expire(epoch.Add(want + 1)); remembered(s) {
			t.Errorf("with a TTL of %v not forgotten after %v", ttl, want)
		}
	}
}
