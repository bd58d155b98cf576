package placement

import (
	"slices"
	"sort"
	"sync/atomic"

	"github.com/roost-cluster/roost/lease"
)

// Rank returns the n best nodes for p, all different and the best first: the owner, then the node that would
// own p without the owner, and so on. Rank returns fewer than n if there are fewer nodes, and none if p has
// no owner. It costs as much as [Table.AppendRank].
func (t *Table) Rank(p Partition, n int) []lease.NodeID {
	ranked := t.AppendRank(nil, p, n)
	if ranked == nil {
		return nil
	}
	return t.idsOf(ranked)
}

// AppendRank is like [Table.Rank], but appends indexes into Nodes to ranked. After the first call for a
// partition, the table caches the partition's three best nodes, in 8 bytes per partition. Later calls for up
// to three nodes read two arrays, take no lock, and don't allocate if ranked has room. All other calls cost
// as much as Rank of the strategy.
func (t *Table) AppendRank(ranked []int, p Partition, n int) []int {
	owner := t.OwnerIndex(p)
	if owner < 0 || n < 1 {
		return ranked
	}
	if n > places {
		return append(ranked, t.rank(p, n)...)
	}
	ranked = append(ranked, owner)
	if n == 1 {
		return ranked
	}
	next := t.top(p)
	for ; n > 1 && next.first() >= 0; n-- {
		ranked = append(ranked, next.first())
		next >>= 32
	}
	return ranked
}

// places is how many nodes a table caches per partition, including the owner.
const places = 3

// top encodes the two best nodes after the owner, with the better node in the lower half. A half contains the
// node's index plus 2, or 1 if there is no node. A top of 0 means that the nodes are not computed yet.
type top uint64

func topOf(ranked []int) top {
	next := top(1<<32 | 1)
	for at, i := range ranked[1:] {
		next += top(i+1) << (32 * at)
	}
	return next
}

// first returns the index of the node in the lower half, or -1.
func (p top) first() int { return int(uint32(p)) - 2 }

// top returns the top of p, which must have an owner. Goroutines that compute it at the same time store the
// same value.
func (t *Table) top(p Partition) top {
	kept := t.ranks.Load()
	if kept == nil {
		all := make([]uint64, t.partitions)
		t.ranks.CompareAndSwap(nil, &all)
		kept = t.ranks.Load()
	}
	at := &(*kept)[p]
	next := top(atomic.LoadUint64(at))
	if next == 0 {
		next = topOf(t.rank(p, places))
		atomic.StoreUint64(at, uint64(next))
	}
	return next
}

// rank returns the n best nodes for p, which must have an owner. n is at least 1.
func (t *Table) rank(p Partition, n int) []int {
	owner := int(t.owners[p])
	n = min(n, len(t.nodes))
	// Compute checks the assignment of a strategy, but cannot check its ranks. So ensure here that the owner
	// comes first and that no node occurs twice.
	most := n
	_, zones := t.strategy.(zoned)
	if zones {
		most = len(t.nodes) // all nodes, to choose from
	}
	best := append(make([]int, 0, most), owner)
	seen := make([]bool, len(t.nodes))
	seen[owner] = true
	var ranked []int
	var err error // ignored if the strategy panics, because the owner is known anyway
	contain(&err, func() {
		if s, ok := placing(t.strategy).(scorer); ok && t.candidates != nil { // an imported table has no candidates
			ranked = s.rank(t.candidates, hashPartition(p), most)
		} else {
			ranked = placing(t.strategy).Rank(t.nodes, p, most)
		}
	})
	for _, i := range ranked {
		if len(best) < most && i >= 0 && i < len(t.nodes) && !seen[i] {
			seen[i] = true
			best = append(best, i)
		}
	}
	if zones {
		best = spread(t.nodes, best, n)
	}
	return best
}

// scorer is a strategy that ranks nodes by score, because it embeds scored.
type scorer interface {
	rank(candidates []candidate, key uint64, n int) []int
}

type scored struct{}

func (s scored) Rank(nodes []Node, p Partition, n int) []int {
	return s.rank(candidatesOf(nodes), hashPartition(p), n)
}

// rank keeps the n best scores that it has seen, in order.
func (scored) rank(candidates []candidate, key uint64, n int) []int {
	n = min(n, len(candidates))
	if n < 1 {
		return nil
	}
	best := make([]score, 0, n)
	for i := range candidates {
		s := candidates[i].score(key)
		if len(best) == n {
			if !s.wins(&best[n-1]) {
				continue
			}
			best = best[:n-1]
		}
		at := sort.Search(len(best), func(at int) bool { return s.wins(&best[at]) })
		best = slices.Insert(best, at, s)
	}
	ranked := make([]int, n)
	for at, s := range best {
		ranked[at] = s.node
	}
	return ranked
}
