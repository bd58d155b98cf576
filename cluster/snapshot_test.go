package cluster

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// The owners of a snapshot, by index, are those that a search through all members
// finds: the live member, else what the last snapshot knew, else what the table knows.
func TestOwnersByIndex(t *testing.T) {
	ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-e]{1,2}`), 0, 12, rapid.ID)
	members := func(t *rapid.T, name string) (all []*Member) {
		for _, id := range slices.Sorted(slices.Values(ids.Draw(t, name))) {
			all = append(all, &Member{ID: lease.NodeID(id), Addr: name})
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
