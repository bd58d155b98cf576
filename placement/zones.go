package placement

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/roost-cluster/roost/lease"
)

// Zoned returns a strategy that assigns owners like s and spreads ranks over zones. Rank returns the owner
// first, and then repeatedly the best node from the least used zones. So the first k nodes of Rank, and of an
// agent's Owners, are in k different zones, or in all zones if there are fewer. Owners and moves of
// partitions are the same as with s.
//
// Zoned treats all nodes without a zone as a single zone. A nil s means [Rendezvous]. Rank costs as much as
// ranking all nodes with s, plus O(nodes · n).
func Zoned(s Strategy) Strategy {
	if s == nil {
		s = Rendezvous()
	}
	return zoned{s}
}

type zoned struct{ Strategy }

func (z zoned) Name() string { return z.Strategy.Name() + zonesSuffix }

func (z zoned) Rank(nodes []Node, p Partition, n int) []int {
	return spread(nodes, z.Strategy.Rank(nodes, p, len(nodes)), n)
}

// spread selects n nodes from best. Each time, it takes the first node from the least used zones.
func spread(nodes []Node, best []int, n int) []int {
	left := slices.Clone(best)
	taken := make(map[string]int)
	chosen := make([]int, 0, max(0, min(n, len(left))))
	for len(chosen) < cap(chosen) {
		at := 0
		for k, i := range left {
			if taken[nodes[i].Zone] < taken[nodes[left[at]].Zone] {
				at = k
			}
		}
		taken[nodes[left[at]].Zone]++
		chosen = append(chosen, left[at])
		left = slices.Delete(left, at, at+1)
	}
	return chosen
}

// placing returns the strategy that assigns owners, which is s without the Zoned wrapper.
func placing(s Strategy) Strategy {
	if z, ok := s.(zoned); ok {
		return placing(z.Strategy)
	}
	return s
}

// Subset returns n different nodes for a tenant, best first. This is also called shuffle sharding. Subset
// draws nodes for each tenant according to their weights, as [Rendezvous] does, and takes a node of each zone
// before a second node of any zone. So few tenants share all of their nodes, and a node or tenant that fails
// affects few other tenants. A join or a leave replaces at most one node of a tenant.
//
// Subset returns fewer than n nodes if there are fewer candidates. The result is the same on every node with
// the same candidates, regardless of the strategy. Subset takes O(nodes · (log nodes + n)) time.
func (t *Table) Subset(tenant string, n int) []lease.NodeID {
	nodes := t.Nodes()
	key := xxhash.Sum64String("subset " + tenant) // distinct from the keys of partitions
	scores := make([]score, len(nodes))
	for i, b := range candidatesOf(nodes) {
		scores[i] = b.score(key)
	}
	slices.SortFunc(scores, func(a, b score) int {
		if a.wins(&b) {
			return -1
		}
		return 1
	})
	best := make([]int, len(scores))
	for i, s := range scores {
		best[i] = s.node
	}
	return t.idsOf(spread(nodes, best, n))
}

// RankNear returns the nodes of [Table.Rank], but with the nodes of the given zone first. Use it if a reader
// can use any of n replicas and prefers a nearby replica. It costs as much as [Table.AppendRank].
func (t *Table) RankNear(p Partition, n int, zone string) []lease.NodeID {
	ranked := t.AppendRank(nil, p, n)
	slices.SortStableFunc(ranked, func(a, b int) int {
		return cmp.Compare(away(t.nodes[a], zone), away(t.nodes[b], zone))
	})
	return t.idsOf(ranked)
}

// away returns 0 for a node of the zone, and 1 for any other node.
func away(n Node, zone string) int {
	if n.Zone == zone {
		return 0
	}
	return 1
}

func (t *Table) idsOf(indexes []int) []lease.NodeID {
	ids := make([]lease.NodeID, len(indexes))
	for at, i := range indexes {
		ids[at] = t.nodes[i].ID
	}
	return ids
}
