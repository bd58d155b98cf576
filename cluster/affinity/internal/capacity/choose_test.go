package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"pgregory.net/rapid"
)

// aSnapshot draws members in all states, and a table over the active members. Some of these members have ended or
// started to drain since the table was computed.
func aSnapshot(t *rapid.T) *cluster.Snapshot {
	s := new(cluster.Snapshot)
	in := placement.Input{Partitions: 8}
	for i := range rapid.IntRange(1, 6).Draw(t, "members") {
		m := &cluster.Member{
			Profile: lease.Profile{
				ID:          lease.NodeID(fmt.Sprint("n", i)),
				Incarnation: rapid.Uint64Range(1, 3).Draw(t, "incarnation"),
				Weight:      rapid.SampledFrom([]uint32{100, 100, 0}).Draw(t, "weight"),
				Capacity:    rapid.SampledFrom([]int64{0, 100, 100, 200}).Draw(t, "capacity"),
			},
			State: rapid.SampledFrom([]lease.State{lease.Active, lease.Active, lease.Draining, lease.Settling}).Draw(t, "state"),
			Load:  rapid.SampledFrom([]int64{lease.NoLoad, 0, 40, 75, 90, 150}).Draw(t, "load"),
		}
		s.Members = append(s.Members, m)
		if m.State == lease.Active {
			in.Nodes = append(in.Nodes, placement.Node{ID: m.ID, Weight: m.Weight})
		}
	}
	s.Table, _ = placement.Compute(in)
	for i := len(s.Members) - 1; i > 0; i-- {
		switch rapid.SampledFrom([]string{"stays", "stays", "stays", "drains", "ends"}).Draw(t, "since") {
		case "drains":
			s.Members[i].State = lease.Draining
		case "ends":
			s.Members = slices.Delete(s.Members, i, i+1)
		}
	}
	return s
}

// firstInLine returns the first node in the table's order that is live and takes rooms.
func firstInLine(s *cluster.Snapshot, p placement.Partition) lease.NodeID {
	for _, id := range s.Table.Rank(p, 100) {
		if slices.ContainsFunc(s.Members, func(m *cluster.Member) bool { return m.ID == id && m.State == lease.Active && m.Weight > 0 }) {
			return id
		}
	}
	return ""
}

// plainChoice chooses a node with the same rules as choose, but without shortcuts.
func plainChoice(s *cluster.Snapshot, q Request, limits Ceilings, reserved func(lease.NodeID) int64) (lease.NodeID, error) {
	load := func(m *cluster.Member) int64 { return max(0, m.Load) + reserved(m.ID) }
	after := func(m *cluster.Member) int64 { return load(m) + q.Cost }
	rank, first := s.Table.Rank(q.Partition, 100), firstInLine(s, q.Partition)
	if first == "" {
		return "", cluster.ErrNoMembers
	}
	best := func(fits func(*cluster.Member) bool) (lease.NodeID, bool) {
		var all []*cluster.Member
		for _, m := range s.Members {
			if m.State == lease.Active && m.Weight > 0 && fits(m) {
				all = append(all, m)
			}
		}
		if len(all) == 0 {
			return "", false
		}
		slices.SortFunc(all, func(a, b *cluster.Member) int {
			return cmp.Or(cmp.Compare(load(a)*b.Capacity, load(b)*a.Capacity),
				cmp.Compare(slices.Index(rank, a.ID), slices.Index(rank, b.ID)))
		})
		return all[0].ID, true
	}
	soft := func(m *cluster.Member) bool { return after(m)*100 <= m.Capacity*int64(limits.Soft) }
	known := func(m *cluster.Member) bool { return m.Capacity > 0 && m.Load != lease.NoLoad }
	for _, fits := range []func(*cluster.Member) bool{
		func(m *cluster.Member) bool { return m.ID == first && (m.Capacity == 0 || soft(m)) },
		func(m *cluster.Member) bool { return known(m) && soft(m) },
		func(m *cluster.Member) bool {
			return known(m) && (limits.Hard == 0 || after(m)*100 <= m.Capacity*int64(limits.Hard))
		},
	} {
		if id, ok := best(fits); ok {
			return id, nil
		}
	}
	if limits.Hard > 0 {
		return "", ErrNoCapacity
	}
	return first, nil
}

func TestChoose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := aSnapshot(t)
		limits := Ceilings{Soft: 80, Hard: rapid.SampledFrom([]int{0, 80, 100}).Draw(t, "hard")}
		q := Request{Room: "r", Partition: placement.Of("r", 8), Cost: rapid.SampledFrom([]int64{0, 2, 20, 90, 2450}).Draw(t, "cost")}
		kept := map[lease.NodeID]int64{"n0": rapid.Int64Range(0, 60).Draw(t, "kept"), "n2": rapid.Int64Range(0, 60).Draw(t, "kept")}
		reserved := func(id lease.NodeID) int64 { return kept[id] }

		want, wantErr := plainChoice(s, q, limits, reserved)
		got, err := choose(s, q, limits, reserved)
		if !errors.Is(err, wantErr) {
			t.Fatalf("error %v, want %v", err, wantErr)
		}
		if err != nil {
			return
		}
		if got.Member.ID != want {
			t.Fatalf("chose %s, want %s: %s", got.Member.ID, want, got.Reason)
		}
		owner := firstInLine(s, q.Partition)
		if got.Owns != (owner == want) || got.Reason == "" {
			t.Errorf("owns %t of %s, the owner is %s; reason %q", got.Owns, want, owner, got.Reason)
		}
		taken := 0
		for _, c := range explain(s, q, want, limits, reserved) {
			if c.Taken {
				taken++
			}
			if c.Why == "" {
				t.Errorf("no reason for %s", c.Member.ID)
			}
		}
		if taken != 1 {
			t.Errorf("%d candidates are taken", taken)
		}
	})
}

// If the store has lost the pin of a room, the room stays on its node, even if the node has no headroom.
func TestChooseStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := aSnapshot(t)
		i := rapid.IntRange(0, len(s.Members)-1).Draw(t, "where")
		m := s.Members[i]
		at := lease.Incarnation{Node: m.ID, Number: rapid.Uint64Range(1, 4).Draw(t, "number")}
		q := Request{Room: "r", Partition: 3, Cost: 10_000, Stay: pinstore.Pin{Incarnation: at}}
		none := func(lease.NodeID) int64 { return 0 }
		got, err := choose(s, q, Ceilings{Soft: 80, Hard: 100}, none)
		if TakesRooms(m) && at.Number >= m.Incarnation {
			if err != nil || got.Member.ID != m.ID {
				t.Fatalf("it goes to %+v (%v), it lived on %s", got, err, m.ID)
			}
			return
		}
		q.Stay = pinstore.Pin{}
		if want, wantErr := choose(s, q, Ceilings{Soft: 80, Hard: 100}, none); got != want || (err == nil) != (wantErr == nil) {
			t.Errorf("an earlier incarnation counts: it goes to %+v (%v), not %+v (%v)", got, err, want, wantErr)
		}
	})
}

// A member that takes rooms but is not in the table yet can be chosen, although it does not own the partition.
func TestChooseBeforeTheTable(t *testing.T) {
	m := &cluster.Member{Profile: lease.Profile{ID: "a", Incarnation: 1, Weight: 100, Capacity: 100}, State: lease.Active, Load: 10}
	s := &cluster.Snapshot{Members: []*cluster.Member{m}}
	s.Table, _ = placement.Compute(placement.Input{Partitions: 8})
	none := func(lease.NodeID) int64 { return 0 }
	q := Request{Room: "r", Partition: 3, Cost: 2}
	got, err := choose(s, q, Ceilings{Soft: 80}, none)
	if want := (Choice{Member: m, Reason: "its partition has no owner; this is the least loaded node"}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, c := range explain(s, q, "a", Ceilings{Soft: 80}, none) {
		if want := "does not own its partition; has headroom: carries 10 of 80 units, and the room costs 2"; c.Why != want {
			t.Errorf("%s: %q, want %q", c.Member.ID, c.Why, want)
		}
	}
}

func TestPercent(t *testing.T) {
	for _, n := range []int64{0, 1, 99, 100, 101, 12_345, 1 << 53} {
		for _, share := range []int{1, 50, 80, 100, 150} {
			if got, want := Percent(n, share), n*int64(share)/100; got != want {
				t.Errorf("%d %% of %d: %d, want %d", share, n, got, want)
			}
		}
	}
	if got := Percent(1<<62, 80); got < 0 || got > 1<<62 {
		t.Errorf("80 %% of 2^62 overflows to %d", got)
	}
}

// If no member takes a room, the error says why, even if some members are active.
func TestNobody(t *testing.T) {
	s := &cluster.Snapshot{}
	for _, id := range []lease.NodeID{"a", "b", "c", "d"} {
		s.Members = append(s.Members, &cluster.Member{Profile: lease.Profile{ID: id, Weight: 100, Incarnation: 1}, State: lease.Active})
	}
	s.Members[3].State = lease.Draining
	table, err := placement.Compute(placement.Input{
		Nodes:      []placement.Node{{ID: "a", Weight: 100}},
		Partitions: 8,
		Strategy:   placement.Rendezvous(),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Table = table
	q := Request{
		Room: "room-1", Leaves: []lease.NodeID{"a"},
		Rejected: []lease.Incarnation{{Node: "b", Number: 1}}, Silent: []lease.Incarnation{{Node: "c", Number: 1}},
	}
	_, err = choose(s, q, Ceilings{Soft: 80}, func(lease.NodeID) int64 { return 0 })
	const want = `for "room-1": of 3 active nodes, the room is leaving 1, 1 have different settings for rooms, and 1 send no heartbeats`
	if !errors.Is(err, cluster.ErrNoMembers) || !strings.Contains(err.Error(), want) {
		t.Errorf("no member takes the room: %v", err)
	}
}
