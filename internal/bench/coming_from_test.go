package bench

import (
	"fmt"
	"testing"

	"github.com/buraksezer/consistent"

	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/placementtest"
)

// Consistent places partitions in the same way as a program with buraksezer/consistent.
type Consistent struct{ consistent.Config }

func (c Consistent) Name() string {
	return fmt.Sprintf("consistent-%d-%v", c.ReplicationFactor, c.Load)
}

// Assign uses rendezvous if consistent panics because its load bound leaves no space.
func (c Consistent) Assign(nodes []placement.Node, partitions int) (owners []int, err error) {
	defer func() {
		if recover() != nil {
			owners, err = placement.Rendezvous().Assign(nodes, partitions)
		}
	}()
	index := make(map[string]int)
	var members []consistent.Member
	for i, n := range nodes {
		index[string(n.ID)] = i
		members = append(members, member(n.ID))
	}
	c.PartitionCount = partitions
	ring := consistent.New(members, c.Config)
	owners = make([]int, partitions)
	for p := range owners {
		owners[p] = index[ring.GetPartitionOwner(p).String()]
	}
	return owners, nil
}

// Rank uses rendezvous, because the ring of consistent cannot rank nodes without all partitions.
func (c Consistent) Rank(nodes []placement.Node, p placement.Partition, n int) []int {
	return placement.Rendezvous().Rank(nodes, p, n)
}

// If a program that uses consistent with xxHash switches to roost and keeps its ring as the strategy, no key moves.
func TestConsistentAsStrategy(t *testing.T) {
	cfg := consistent.Config{Hasher: hasher{}, PartitionCount: 1024, ReplicationFactor: 20, Load: 1.25}
	placementtest.Strategy(t, func() placement.Strategy { return Consistent{cfg} }, placementtest.Options{RankIgnoresLoad: true})
	for _, n := range []int{1, 3, 10, 50} {
		before := consistent.New(members(n), cfg)
		table, err := placement.Compute(placement.Input{Nodes: fleet(n, false), Partitions: 1024, Strategy: Consistent{cfg}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2000 {
			key := fmt.Sprint("room-", i)
			owner, _ := table.Owner(placement.Of(key, 1024))
			if want := before.LocateKey([]byte(key)).String(); string(owner) != want {
				t.Fatalf("%d nodes: %s is at %s, and was at %s", n, key, owner, want)
			}
		}
	}
}
