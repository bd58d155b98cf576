package placement

import "slices"

// Zoned returns a strategy that places like s and spreads ranks over zones: the owner
// first, then the best node of the zones that occur least so far. So the first k of
// Rank, and of an agent's Owners, are in k different zones, or in all if there are
// fewer. Owners and moves of partitions are those of s.
//
// Nodes that state no zone count as one zone together. A nil s stands for
// [Rendezvous]. Rank costs that of s for all nodes, and O(nodes · n).
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

// spread takes n of best, each time the first node of a zone that was taken least.
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

// placing is the strategy that assigns: s without Zoned around it.
func placing(s Strategy) Strategy {
	if z, ok := s.(zoned); ok {
		return placing(z.Strategy)
	}
	return s
}
