package placement

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
)

// LeastPartitions returns the strategy that gives a partition to the node with the fewest partitions. In each
// pass, it moves up to maxMoves partitions from the node with the most partitions to the node with the
// fewest, until the two differ by at most threshold partitions. With threshold 1, partitions are spread as evenly as
// possible. A join
// never takes more than a few partitions from a node at once, because a new node fills up over several
// passes. The disadvantage is that the owner of a partition depends on its last holder, so the strategy is
// [Stateful]. With 1,024 partitions, 10 nodes have 102 or 103 each, and a join moves 93 in 31 passes of three
// moves. For more numbers, see docs/dev/benchmarks.md. Use the strategy if partitions are few and expensive
// to run.
//
// The minimum threshold is 1, and lower values are raised to 1. Otherwise partitions would keep moving if
// they cannot be divided evenly. A maxMoves of 0 means no limit. An agent runs a pass with each heartbeat,
// and moves a partition again only after all nodes have applied the last move of the partition.
//
// Fair shares are proportional to weights, for example a third and two thirds with weights 1 and 2. Passes
// reduce the differences from the fair shares.
//
// Without a [Memory], Assign distributes the partitions in the order of their numbers. When a node leaves,
// each of its partitions immediately goes to the node that then has the fewest. Assign costs O(nodes +
// partitions · log nodes), and a pass costs O(partitions + moves · nodes). After the owner, Rank uses the
// order of [Rendezvous], because it is unknown which node would have the fewest partitions if the owner left.
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

// Keep implements [Stateful]. It distributes the partitions that have no holder.
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

// Level implements [Stateful]. Each move goes from the node with the most partitions to the node with the
// fewest, relative to their fair shares. Among equal nodes, the first id wins.
func (l least) Level(nodes []Node, owners []int, movable []Partition, all bool) (moves []Move) {
	loads, err := newLoads(nodes, len(owners))
	if err != nil {
		return nil // Keep has reported the error
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

// loads measures how far nodes are from their fair shares, using only integers. The surplus of a node is its
// number of partitions minus its fair share, multiplied by the sum of all weights. The difference of two
// surpluses fits into 63 bits, because it is at most 65,536 partitions times 2^45.
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
		return nil, fmt.Errorf("weights add up to %d, but at most %d is possible: use smaller weights", l.total, int64(maxTotalWeight))
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

// extremes returns the nodes with the greatest and the smallest surplus. Among equal nodes, it returns the
// first.
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

// fewestFirst is a heap of node indexes with the smallest surplus on top.
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
