package lease

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// wantLiveInOrder compares what s keeps of its live nodes with what its entries say.
func wantLiveInOrder(t interface{ Fatalf(string, ...any) }, s *Set) {
	var all []*entry
	count := census{clock: s.census.clock}
	var peers []string
	for _, e := range s.known {
		if e.status == live {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.rec.ID, b.rec.ID) })
	for _, e := range all {
		if e == s.self {
			continue
		}
		count.all++
		if e.state == Active || e.state == Draining {
			count.active++
		}
		if e.rec.Addr != "" {
			count.reachable++
			peers = append(peers, e.rec.Addr)
		}
		count.count(e.clock, 1)
	}
	if s.census != count {
		t.Fatalf("the census is %+v, a count %+v", s.census, count)
	}
	if got := s.Peers(nil); !slices.Equal(got[:count.reachable], peers) {
		t.Fatalf("the peers are %v, want %v", got, peers)
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.handle, b.handle) })
	if !slices.Equal(s.live, all) || len(s.begun) > 0 || s.applying {
		t.Fatalf("%d live nodes in order, %d without a place; %d entries are live", len(s.live), len(s.begun), len(all))
	}
	for i, e := range all {
		if s.order[i] != e.handle || s.vitals[i] != e.vitals {
			t.Fatalf("another handle, or other vitals, in place %d", i)
		}
	}
}

// Whatever messages say of some nodes, the live set is in order and its census is a count.
func TestCensus(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now, version := newSet(rec("a", 1)), epoch, uint32(1)
		nodes := []*Record{rec("b", 1), rec("c", 1), rec("d", 1), rec("e", 1), rec("e", 2)}
		node := rapid.SampledFrom(nodes)
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
				b := node.Draw(t, "node").sent(now.Add(-time.Duration(rapid.IntRange(0, 7000).Draw(t, "age ms")) * ms))
				b.Clock = time.Duration(rapid.IntRange(-2, 6).Draw(t, "clock s")) * time.Second
				m.Heartbeats = append(m.Heartbeats, b.as(rapid.SampledFrom([]State{Settling, Active, Draining, Active, Left}).Draw(t, "state")))
			}
			for range rapid.IntRange(0, 2).Draw(t, "failure reports") {
				m.FailureReports = append(m.FailureReports, FailureReport{
					Subject: node.Draw(t, "subject").Handle(), Watcher: node.Draw(t, "watcher").Handle(),
					At: stampAt(now), Evidence: rapid.SampledFrom([]Evidence{Refused, Silent}).Draw(t, "evidence"),
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
		}
	})
}

// Of many candidates, those are selected that a sort puts first.
func TestCandidates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s spread
		var all []candidate
		for i := range rapid.IntRange(0, 3*maxCandidates).Draw(t, "nodes") {
			c := candidate{
				sent: rapid.Int32Range(-1, 3).Draw(t, "sent"), at: Stamp(rapid.IntRange(0, 3).Draw(t, "at")),
				handle: Handle(rapid.Uint64Range(0, 1<<handleBits-1).Draw(t, "handle")), place: i,
			}
			all = append(all, c)
			s.offer(c)
		}
		slices.SortStableFunc(all, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.sent, b.sent), cmp.Compare(b.at, a.at), cmp.Compare(a.handle, b.handle))
		})
		equal := func(a, b candidate) bool { return a.sent == b.sent && a.at == b.at && a.handle == b.handle }
		if want := all[:min(len(all), maxCandidates)]; !slices.EqualFunc(s.candidates, want, equal) {
			t.Fatalf("selected %v, want %v", s.candidates, want)
		}
	})
}

// Elements that are inserted together end where they end one by one.
func TestInsert(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sorted := func(label string) []int {
			return slices.Sorted(slices.Values(rapid.SliceOf(rapid.IntRange(0, 50)).Draw(t, label)))
		}
		all, added := sorted("all"), sorted("added")
		want := slices.Sorted(slices.Values(slices.Concat(all, added)))
		places := make([]int, len(added))
		for i, e := range added {
			places[i], _ = slices.BinarySearch(all, e)
		}
		if got := insert(all, places, added); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
