package placement

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
)

// LeastPartitions returns the strategy that gives a partition to the node with the fewest partitions. In each
// pass, it moves up to maxMoves partitions from the node with the most to the node with the fewest, while
// these are more than threshold partitions apart. It spreads as evenly as possible, and a join never costs a
// node more than a few partitions at once, because a new node fills up in passes. In return, the owner of a
// partition depends on its last holder, so the strategy is [Stateful]. Of 1,024 partitions, 10 nodes have 102
// or 103 each, and a join moves 93 in 31 passes of three. docs/dev/benchmarks.md has more numbers. The strategy
// suits partitions that are few and heavy.
//
// A threshold below 1 counts as 1, because otherwise partitions would circle forever if they cannot be
// divided evenly. A maxMoves of 0 means no limit. An agent makes a pass with each heartbeat, and moves a
// partition again only after all nodes have applied its last move.
//
// Fair shares follow weights. With weights 1 and 2, they are a third and two thirds, and passes even out the
// distances from the fair shares.
//
// Without a [Memory], Assign deals the partitions out in the order of their numbers. The partitions of a node
// that leaves go to the others at once, each to the node with the fewest. Assign costs O(nodes + partitions ·
// log nodes), and a pass costs O(partitions + moves · nodes). Behind the owner, Rank has the order of
// [Rendezvous], because nobody knows in advance which node would have the fewest partitions without the
// owner.
func LeastPartitions(threshold, maxMoves int) Strategy {
	return least{threshold: min(max(threshold, 1), MaxPartitions), maxMoves: min(max(maxMoves, 0), MaxPartitions)}
}

type least struct {
	scored
	threshold, maxMoves int
}

func (l least) Name() string { return fmt.Sprintf("least-partitions-%d-%d", l.threshold, l.maxMoves) }

func (l least) Assign(nodes []Node, partitions int) ([]int, error) {
	return l.Keep(nodes, slices.Repeat([]int{-1}, partitions))
}

// Keep implements [Stateful]: it deals out the partitions that have no holder.
func (least) Keep(nodes []Node, held []int) ([]int, error) {
	if len(nodes) == 0 {
		return nil, errNoNodes
	}
	owners := slices.Clone(held)
	loads, err := newLoads(nodes, len(held))
	if err != nil {
		return nil, err
	}
	for _, i := range held {
		if i >= 0 {
			loads.count[i]++
		}
	}
	fewest := &fewestFirst{loads: loads, order: make([]int, len(nodes))}
	for i := range fewest.order {
		fewest.order[i] = i
	}
	heap.Init(fewest)
	for p := range owners {
		if owners[p] < 0 {
			i := fewest.order[0]
			owners[p] = i
			loads.count[i]++
			heap.Fix(fewest, 0)
		}
	}
	return owners, nil
}

// Level implements [Stateful]: each move is from the node with the most partitions to the one with the
// fewest. Of equal nodes, the first id counts.
func (l least) Level(nodes []Node, owners []int, movable []Partition, all bool) (moves []Move) {
	loads, err := newLoads(nodes, len(owners))
	if err != nil {
		return nil // Keep has reported it
	}
	for _, i := range owners {
		loads.count[i]++
	}
	byNode := make([][]Partition, len(nodes))
	for _, p := range movable {
		byNode[owners[p]] = append(byNode[owners[p]], p)
	}
	for all || l.maxMoves == 0 || len(moves) < l.maxMoves {
		most, fewest := loads.extremes()
		if !loads.apart(most, fewest, l.threshold) || len(byNode[most]) == 0 {
			break
		}
		moves = append(moves, Move{byNode[most][0], nodes[most].ID, nodes[fewest].ID})
		byNode[most] = byNode[most][1:]
		loads.count[most]--
		loads.count[fewest]++
	}
	return moves
}

// Explain implements [Explainer], for a partition that is not in the [Memory].
func (least) Explain(nodes []Node, _ Partition, owner int) string {
	return fmt.Sprintf("it had no owner on record, and %s had the fewest partitions", nodes[owner].ID)
}

// loads measures how far nodes are from their fair shares, in whole numbers. The surplus of a node is its
// number of partitions minus its fair share, multiplied by the sum of all weights. The difference of two
// surpluses fits into 63 bits: 65,536 partitions times 2^45.
type loads struct {
	nodes      []Node
	count      []int
	partitions int64
	total      int64
}

const maxTotalWeight = 1 << 45

func newLoads(nodes []Node, partitions int) (*loads, error) {
	l := &loads{nodes: nodes, count: make([]int, len(nodes)), partitions: int64(partitions)}
	for _, n := range nodes {
		l.total += int64(n.Weight)
	}
	if l.total > maxTotalWeight {
		return nil, fmt.Errorf("weights add up to %d, at most %d: use smaller ones", l.total, int64(maxTotalWeight))
	}
	return l, nil
}

func (l *loads) surplus(i int) int64 {
	return int64(l.count[i])*l.total - l.partitions*int64(l.nodes[i].Weight)
}

// apart reports whether two nodes are more than threshold partitions apart.
func (l *loads) apart(most, fewest, threshold int) bool {
	return l.surplus(most)-l.surplus(fewest) > int64(threshold)*l.total
}

// extremes returns the nodes with the greatest and the least surplus. Of equal nodes, it returns the first.
func (l *loads) extremes() (most, fewest int) {
	for i := range l.nodes {
		if l.surplus(i) > l.surplus(most) {
			most = i
		}
		if l.surplus(i) < l.surplus(fewest) {
			fewest = i
		}
	}
	return most, fewest
}

// fewestFirst is a heap of node indexes with the least surplus on top.
type fewestFirst struct {
	*loads
	order []int
}

// Len implements heap.Interface.
func (f *fewestFirst) Len() int { return len(f.order) }

// Less implements heap.Interface.
func (f *fewestFirst) Less(i, k int) bool {
	a, b := f.order[i], f.order[k]
	return cmp.Or(cmp.Compare(f.surplus(a), f.surplus(b)), cmp.Compare(a, b)) < 0
}

// Swap implements heap.Interface.
func (f *fewestFirst) Swap(i, k int) { f.order[i], f.order[k] = f.order[k], f.order[i] }

// Push implements heap.Interface; the heap never grows.
func (f *fewestFirst) Push(any) {}

// Pop implements heap.Interface; the heap never shrinks.
func (f *fewestFirst) Pop() any { return nil }
