package placement

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"

	"github.com/roost-cluster/roost/lease"
)

// LeastPartitions returns the strategy that gives a partition to the node with
// the fewest, and moves partitions from the node with the most to the one with
// the fewest while they are more than threshold apart, maxMoves at a time. It
// spreads as evenly as can be, and a join costs nobody more than a few partitions
// at once: a new node fills up in passes. The price is memory: where a partition
// is depends on what was before, so the nodes of a cluster share an [Assignment].
// Of 1,024 partitions, 10 nodes have 102 or 103 each, and a join moves 93 in 31
// passes of three; docs/strategies.md has more figures. It suits partitions that
// are few and heavy.
//
// A threshold below 1 counts as 1: with a lower one, partitions would circle for
// ever where they cannot be divided evenly. maxMoves 0 means no limit. An agent
// makes a pass each heartbeat, and moves nothing on that not all have followed.
//
// Weights count: with weights 1 and 2, the fair shares are a third and two
// thirds, and what is levelled is the distance from the fair share.
//
// Without an Assignment, Assign deals the partitions out in the order of their
// numbers. The partitions of a node that leaves go to the others at once, each to
// the one with the fewest. Assign costs O(nodes + partitions · log nodes). Rank
// gives the order of [Rendezvous] behind the owner: who would have the fewest
// without it is not known beforehand.
func LeastPartitions(threshold, maxMoves int) Strategy {
	return least{threshold: min(max(threshold, 1), MaxPartitions), maxMoves: min(max(maxMoves, 0), MaxPartitions)}
}

// Remembers reports whether tables of s depend on an [Assignment].
func Remembers(s Strategy) bool {
	_, ok := placing(s).(least)
	return ok
}

type least struct{ threshold, maxMoves int }

func (l least) Name() string { return fmt.Sprintf("least-partitions-%d-%d", l.threshold, l.maxMoves) }

func (l least) Assign(nodes []Node, partitions int) ([]int, error) {
	return l.keep(nodes, nil, partitions)
}

func (least) Rank(nodes []Node, p Partition, n int) []int { return hrw{}.Rank(nodes, p, n) }

// keep leaves every partition with its owner if that is among the nodes, else
// with its deputy, and deals out the rest.
func (least) keep(nodes []Node, a *Assignment, partitions int) ([]int, error) {
	if len(nodes) == 0 {
		return nil, errNoNodes
	}
	index := make(map[lease.NodeID]int, len(nodes))
	for i, n := range nodes {
		index[n.ID] = i
	}
	owners := make([]int, partitions)
	loads, err := newLoads(nodes, partitions)
	if err != nil {
		return nil, err
	}
	for p := range owners {
		e := a.entry(p)
		i, ok := index[e.owner]
		if !ok {
			i, ok = index[e.deputy]
		}
		if !ok {
			owners[p] = -1
			continue
		}
		owners[p] = i
		loads.count[i]++
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

// Level returns the assignment after one pass of [LeastPartitions] over t, which
// moves partitions from the node that has most to the one that has fewest (ties by
// id), and of those the ones that moved longest ago. What changed after version
// settled is still under way, and stays. All moves that there are to make are made
// at once if the pass is unlimited, whatever the strategy says. It is t's own
// assignment if nothing is to be moved, or t's strategy is another.
// O(partitions · log partitions + moves · nodes).
func (t *Table) Level(c Coordinator, settled uint64, unlimited bool) *Assignment {
	if t.Assignment() == nil {
		return nil
	}
	l, loads, ok := t.loads()
	next, more := t.assigned.draft(c, t.partitions)
	if !ok || !more {
		return t.assigned
	}
	limit := l.maxMoves
	if unlimited || limit == 0 {
		limit = math.MaxInt
	}
	movable := t.movable(settled)
	moves := 0
	for ; moves < limit; moves++ {
		most, fewest := loads.extremes()
		if !loads.apart(most, fewest, l.threshold) || len(movable[most]) == 0 {
			break
		}
		p := movable[most][0]
		movable[most] = movable[most][1:]
		next.entries[p].move(t.nodes[most].ID, t.nodes[fewest].ID, c.ID, next.version)
		loads.count[most]--
		loads.count[fewest]++
	}
	if moves == 0 {
		return t.assigned
	}
	return next.finish()
}

// levelling reports whether passes of LeastPartitions have something to move in t.
func (t *Table) levelling() bool {
	l, loads, ok := t.loads()
	if !ok {
		return false
	}
	most, fewest := loads.extremes()
	return loads.apart(most, fewest, l.threshold)
}

// loads counts what the nodes have, if t is one of LeastPartitions and there is
// anything to count.
func (t *Table) loads() (least, *loads, bool) {
	l, ok := placing(t.strategy).(least)
	loads, err := newLoads(t.nodes, t.partitions)
	if !ok || err != nil || len(t.owners) == 0 {
		return l, nil, false
	}
	for _, i := range t.owners {
		loads.count[i]++
	}
	return l, loads, true
}

// move gives the partition of e to another node: for good if it is its owner's,
// and as a deputy if the owner is away.
func (e *entry) move(from, to, by lease.NodeID, version uint64) {
	if e.owner == from {
		*e = entry{owner: to, version: version, from: from, by: by, cause: causeLevel}
		return
	}
	e.deputy, e.stand = to, version
}

// movable returns the partitions of each node that have settled, those that moved
// longest ago first.
func (t *Table) movable(settled uint64) [][]int {
	all := make([]int, 0, t.partitions)
	for p := range t.owners {
		// Who has a partition must be on record, or the move would not be from it.
		e := t.assigned.entry(p)
		holder := t.nodes[t.owners[p]].ID
		if e.changed() <= settled && (e.owner == holder || e.deputy == holder) {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(p, q int) int {
		return cmp.Compare(t.assigned.entries[p].changed(), t.assigned.entries[q].changed())
	})
	byNode := make([][]int, len(t.nodes))
	for _, p := range all {
		i := t.owners[p]
		byNode[i] = append(byNode[i], p)
	}
	return byNode
}

// loads measures how far nodes are from their fair shares, in whole numbers: the
// surplus of a node is its partitions less its share of them, times the sum of all
// weights. A difference of two fits into 63 bits: 65,536 partitions times 2^45.
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

// extremes returns the nodes of the greatest and of the least surplus, the first
// of equal ones.
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

// fewestFirst is a heap of node indexes, the one of the least surplus on top.
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
