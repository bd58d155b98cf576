package placement

import (
	"slices"

	"github.com/roost-cluster/roost/lease"
)

// Move is a change of a partition's owner. If the partition has no owner, the id is empty.
type Move struct {
	Partition Partition    `json:"partition"`
	From      lease.NodeID `json:"from"`
	To        lease.NodeID `json:"to"`
}

// Changes is the difference of two tables.
type Changes struct {
	// Moves lists the partitions that change owner, in ascending order. It is nil if the tables have
	// different numbers of partitions, because partitions of such tables do not correspond to each other. Use
	// [KeysMoved] instead.
	Moves []Move `json:"moves"`

	// ExpectedMin is the lowest number of moves that any strategy needs after the change of nodes and
	// weights, if
	//
	//   - each node that gained weight, including newcomers, owns at least its fair share, rounded down,
	//   - each node that lost weight owns at most its fair share, rounded up, and a
	//     node that left owns none,
	//   - every partition has an owner.
	//
	// ExpectedMin does not include moves that would fix an earlier imbalance. A node gained weight if both
	// its weight and its share of all weights have increased. If a change has fewer moves than ExpectedMin, a
	// newcomer got less than its fair share. With random draws, this happens half of the time. ExpectedMin is
	// 0 if Moves is nil.
	ExpectedMin int `json:"expected_min"`

	Before Balance `json:"before"`
	After  Balance `json:"after"`
}

// Diff returns the changes from one table to another. It costs O(partitions + nodes).
func Diff(before, after *Table) Changes {
	c := Changes{Before: before.Balance(), After: after.Balance()}
	if before.Partitions() != after.Partitions() {
		return c
	}
	c.Moves = Moves(before, after)
	c.ExpectedMin = expectedMin(before, after)
	return c
}

// Moves returns the partitions that change owner from one table to another, in ascending order. Moves never
// returns nil. If one table has fewer partitions, Moves treats the missing partitions as partitions without
// an owner. It costs O(partitions + nodes).
func Moves(before, after *Table) []Move {
	moves := []Move{}
	var now []int32 // new index by old index; nil if all indexes are unchanged
	if !slices.EqualFunc(before.Nodes(), after.Nodes(), func(a, b Node) bool { return a.ID == b.ID }) {
		now = compareNodes(before.Nodes(), after.Nodes()).now
	}
	for p := range Partition(max(before.Partitions(), after.Partitions())) {
		from, to := before.OwnerIndex(p), after.OwnerIndex(p)
		stays := from == to
		if from >= 0 && now != nil {
			stays = now[from] >= 0 && int(now[from]) == to
		}
		if !stays {
			m := Move{Partition: p}
			m.From, _ = before.Owner(p)
			m.To, _ = after.Owner(p)
			moves = append(moves, m)
		}
	}
	return moves
}

// expectedMin returns the greater of two sums: how many partitions nodes own beyond their fair shares, and
// how many partitions nodes lack. A move reduces each sum by at most 1.
func expectedMin(before, after *Table) int {
	have := before.Balance().Counts
	was, is := sharesOf(before), sharesOf(after)
	surplus, shortage := 0, 0
	if len(was) == 0 && len(is) > 0 {
		surplus = before.Partitions() // no partition has an owner
	}
	for id, s := range was {
		if now := is[id]; now.weight < s.weight && now.part < s.part {
			surplus += max(0, have[id]-now.most)
		}
	}
	for id, now := range is {
		if s := was[id]; now.weight > s.weight && now.part > s.part {
			shortage += max(0, now.least-have[id])
		}
	}
	return max(surplus, shortage)
}

// share is the fair share of a node.
type share struct {
	weight      uint32
	part        float64 // share of all weights; exact enough to compare for equality
	least, most int     // the fair share in partitions, rounded down and up
}

func sharesOf(t *Table) map[lease.NodeID]share {
	total := uint64(0)
	for _, n := range t.Nodes() {
		total += uint64(n.Weight)
	}
	shares := make(map[lease.NodeID]share, len(t.Nodes()))
	for _, n := range t.Nodes() {
		fair := uint64(t.partitions) * uint64(n.Weight) // below 2^48, as total is
		shares[n.ID] = share{
			weight: n.Weight,
			part:   float64(n.Weight) / float64(total),
			least:  int(fair / total),
			most:   int((fair + total - 1) / total),
		}
	}
	return shares
}

// KeysMoved returns the fraction of all keys, from 0 to 1, that change owner from one table to another. The
// tables may have different numbers of partitions. The result is exact for keys that hash evenly. In a table
// without partitions, no key has an owner. It costs O(partitions + nodes).
//
// Let g be the greatest common divisor of the numbers of partitions P and Q. A key of partition p in the
// first table is equally likely to be in each partition q of the second table for which p mod g = q mod g.
func KeysMoved(before, after *Table) float64 {
	p, q := before.Partitions(), after.Partitions()
	if p == 0 || q == 0 {
		return float64(min(1, len(before.Nodes())+len(after.Nodes())))
	}
	g := gcd(p, q)
	had := make(map[lease.NodeID]int64) // partitions of one class; "" = no owner
	same := int64(0)
	for class := range g {
		clear(had)
		for i := class; i < p; i += g {
			owner, _ := before.Owner(Partition(i))
			had[owner]++
		}
		for i := class; i < q; i += g {
			owner, _ := after.Owner(Partition(i))
			same += had[owner]
		}
	}
	pairs := int64(p/g) * int64(q) // up to 2^32
	return float64(pairs-same) / float64(pairs)
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
