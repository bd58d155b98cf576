package cluster_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/leak"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func TestMain(m *testing.M) { leak.Main(m) }

// owners returns who owns each partition by the table of the first node.
func owners(c *clustertest.Cluster) map[placement.Partition]lease.NodeID {
	t := c.Agent(c.IDs()[0]).Snapshot().Table
	all := make(map[placement.Partition]lease.NodeID)
	for p := range placement.Partition(t.Partitions()) {
		all[p], _ = t.Owner(p)
	}
	return all
}

// sameOwners reports whether all nodes but one have the same table, in which
// that one owns nothing.
func sameOwners(c *clustertest.Cluster, but string) bool {
	digests := make(map[placement.Digest]bool)
	for _, id := range c.IDs() {
		if id != but {
			s := c.Agent(id).Snapshot()
			digests[s.Digest()] = true
			if len(s.Table.Owned(lease.NodeID(but))) > 0 {
				return false
			}
		}
	}
	return len(digests) == 1
}

// sees reports whether the node of id holds another for live.
func sees(c *clustertest.Cluster, id, other string) bool {
	return slices.ContainsFunc(c.Agent(id).Members(), func(m cluster.Member) bool { return string(m.ID) == other })
}

func onlyMovedFromN01(t *testing.T, before, after map[placement.Partition]lease.NodeID) {
	t.Helper()
	const from = lease.NodeID("n01")
	for p, owner := range after {
		if owner != before[p] && before[p] != from {
			t.Fatalf("partition %d moved from %s to %s, but only those of %s should", p, before[p], owner, from)
		}
		if owner == from {
			t.Fatalf("partition %d is still owned by %s", p, from)
		}
	}
}

func asDuplicate(err error, to **cluster.DuplicateIDError) bool { return errors.As(err, to) }

// bytesPerSecond returns what a node sent in digests and answers, on average.
func bytesPerSecond(c *clustertest.Cluster, over time.Duration) float64 {
	var sum uint64
	for _, id := range c.IDs() {
		sum += c.Agent(id).Snapshot().Stats.BytesSent
	}
	return float64(sum) / float64(len(c.IDs())) / over.Seconds()
}
