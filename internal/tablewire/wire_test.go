package tablewire

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// drawn returns a state with random nodes.
func drawn(t *testing.T, rng *rand.Rand, version uint64) *State {
	t.Helper()
	s := &State{Cluster: "media", Version: version, Stale: rng.IntN(5) == 0}
	in := placement.Input{Partitions: 32, Strategy: placement.Rendezvous()}
	for i := range 6 {
		if rng.IntN(3) == 0 {
			continue
		}
		m := &Member{
			Profile: lease.Profile{
				ID: lease.NodeID(fmt.Sprint("n", i)), Addr: fmt.Sprint("10.0.0.", i, ":7946"),
				Weight: uint32(rng.IntN(3)), Incarnation: 1 << 62 >> rng.IntN(2), Capacity: int64(rng.IntN(2)),
			},
			State: lease.Active,
		}
		if rng.IntN(2) == 0 {
			m.Zone, m.Labels = "z", map[string]string{"disk": fmt.Sprint(rng.IntN(2))}
		}
		s.Members = append(s.Members, m)
		if m.Weight > 0 {
			in.Nodes = append(in.Nodes, placement.Node{ID: m.ID, Weight: m.Weight, Zone: m.Zone, Capacity: m.Capacity, Labels: m.Labels})
			if rng.IntN(4) == 0 {
				s.Running = append(s.Running, Running{placement.Partition(i), m.ID})
			}
		}
	}
	var err error
	if s.Table, err = placement.Compute(in); err != nil {
		t.Fatal(err)
	}
	return s
}

func same(a, b *State) bool {
	return a.Cluster == b.Cluster && a.Version == b.Version && a.Stale == b.Stale && a.Table.Digest() == b.Table.Digest() &&
		slices.EqualFunc(a.Table.Nodes(), b.Table.Nodes(), placement.Node.Equal) && slices.Equal(a.Running, b.Running) &&
		slices.EqualFunc(a.Members, b.Members, func(x, y *Member) bool { return x.Equal(y) })
}

// An update that was encoded as JSON and decoded again leads from any state to any other state.
func TestDiffAndApply(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var ours, theirs *State
	empty := 0
	for version := range uint64(2000) {
		next := drawn(t, rng, version)
		if len(next.Table.Nodes()) == 0 {
			empty++
		}
		b, err := json.Marshal(Diff(ours, next))
		if err != nil {
			t.Fatal(err)
		}
		var u Update
		if err := json.Unmarshal(b, &u); err != nil {
			t.Fatal(err)
		}
		if theirs, err = u.Apply(theirs); err != nil || !same(theirs, next) {
			t.Fatalf("%d: %v\n%+v after %s\nwant %+v", version, err, theirs, b, next)
		}
		if ours = next; version%100 == 99 {
			ours, theirs = nil, nil
		}
	}
	if empty == 0 {
		t.Error("no table was without nodes")
	}
}

// An update contains only what has changed, so a small change takes few bytes.
func TestSmallUpdates(t *testing.T) {
	s := drawn(t, rand.New(rand.NewPCG(3, 4)), 1)
	whole, _ := json.Marshal(Diff(nil, s))
	next := *s
	next.Version, next.Stale = 2, true
	change, _ := json.Marshal(Diff(s, &next))
	if len(change) > 70 || len(whole) < 500 {
		t.Errorf("%d bytes, then %s", len(whole), change)
	}
}

// FuzzApply checks that Apply returns an error, or a table that matches its digest, for any input.
func FuzzApply(f *testing.F) {
	f.Add([]byte(`{"digest":"0000000000000001","moved":[{"partition":4294967295,"from":"","to":"n1"}]}`))
	f.Add([]byte(`{"digest":"0000000000000001","nodes":[],"gone":["n1","n1"],"members":[{"id":"n1"},{"id":"n1"}],"running":[{"partition":7,"node":"x"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		from := drawn(t, rand.New(rand.NewPCG(5, 6)), 1)
		var u Update
		if json.Unmarshal(b, &u) != nil {
			return
		}
		for _, from := range []*State{from, nil} {
			s, err := u.Apply(from)
			if err == nil && (s.Table.Digest() != u.Digest ||
				!slices.IsSortedFunc(s.Members, func(a, b *Member) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })) {
				t.Errorf("%s: %+v", b, s)
			}
		}
	})
}
