package cluster

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// The owners of a snapshot, stored by index, must be the members that a slow search finds. The search prefers live
// members. If an owner is not live, the search uses the member from the last snapshot with a table, or otherwise what
// the table itself says.
func TestOwnersByIndex(t *testing.T) {
	ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-e]{1,2}`), 0, 12, rapid.ID)
	members := func(t *rapid.T, name string) (all []*Member) {
		for _, id := range slices.Sorted(slices.Values(ids.Draw(t, name))) {
			all = append(all, &Member{Profile: lease.Profile{ID: lease.NodeID(id), Addr: name}})
		}
		return all
	}
	find := func(all []*Member, id lease.NodeID) *Member {
		i := slices.IndexFunc(all, func(m *Member) bool { return m.ID == id })
		if i < 0 {
			return nil
		}
		return all[i]
	}
	rapid.Check(t, func(t *rapid.T) {
		in := placement.Input{Partitions: 16}
		for _, id := range ids.Draw(t, "table") {
			in.Nodes = append(in.Nodes, placement.Node{ID: lease.NodeID(id), Weight: 1, Zone: "table"})
		}
		table, err := placement.Compute(in)
		if err != nil {
			t.Fatal(err)
		}
		s, old := &Snapshot{Members: members(t, "live"), Table: table}, &Snapshot{owners: members(t, "last")}
		s.fillOwners(old)
		for i, n := range table.Nodes() {
			got := s.owners[i]
			want := find(s.Members, n.ID)
			if want == nil {
				want = find(old.owners, n.ID)
			}
			if want == nil && (got.ID != n.ID || got.Zone != "table") || want != nil && got != want {
				t.Fatalf("owner %d, %s, is %+v, want %+v", i, n.ID, got, want)
			}
		}
		for n := range len(table.Nodes()) + 2 {
			var got []lease.NodeID
			for _, m := range s.Owners("key", n) {
				got = append(got, m.ID)
			}
			if want := table.Rank(placement.Of("key", 16), n); !slices.Equal(got, want) {
				t.Fatalf("Owners(key, %d) = %v, want %v", n, got, want)
			}
		}
	})
}

// If the agent loses everything and regains it between two snapshots, the scope notices, so its runs start again.
func TestScopeSeesAnInterruption(t *testing.T) {
	a := agentOf(t, 1)
	s := *a.snap.Load()
	sc := &Scope{agent: a, name: "all", match: func(*Member) bool { return true }}
	sc.snap.Set(Snapshot{})
	since := func() []events.Ownership {
		if err := sc.update(&s, time.Now()); err != nil {
			t.Fatal(err)
		}
		return events.Diff(nil, sc.snap.Load().State).Acquired
	}
	first := since()
	s.State = events.Next(s.State, a.self, s.Table, nil, true)
	if again := since(); len(first) != a.cfg.Partitions || !slices.Equal(first, again) {
		t.Fatalf("a state without news: owns %d partitions, then %d; want the same", len(first), len(again))
	}
	s.State = events.Next(s.State, a.self, s.Table, nil, false)
	s.State = events.Next(s.State, a.self, s.Table, nil, true)
	if again := since(); len(again) != len(first) || again[0].Since == first[0].Since {
		t.Errorf("after an interruption: %d partitions, before %d; want the same with a later version", len(again), len(first))
	}
}
