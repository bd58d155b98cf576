package placement

import (
	"slices"

	"github.com/roost-cluster/roost/lease"
)

// Move is a change of a partition's owner. An empty id means no owner.
type Move struct {
	Partition Partition    `json:"partition"`
	From      lease.NodeID `json:"from"`
	To        lease.NodeID `json:"to"`
}

// Changes is the difference of two tables.
type Changes struct {
	// Moves lists the partitions that change owner, in ascending order. It is nil
	// if the numbers of partitions differ: then no partition corresponds to another
	// one, and only [KeysMoved] compares the tables.
	Moves []Move `json:"moves"`

	// ExpectedMin is the number of moves that the change of nodes and weights
	// requires of any strategy: the least number after which
	//
	//   - each node that gained weight, newcomers among them, owns at least its
	//     fair share, rounded down,
	//   - each node that lost weight owns at most its fair share, rounded up, and a
	//     node that left owns none,
	//   - every partition has an owner.
	//
	// It does not fix what was uneven before. A node gained weight if both its weight
	// and its share of all weights have grown. Fewer moves than this mean that a
	// newcomer got less than its fair share, as happens half of the time where draws
	// decide. It is 0 if Moves is nil.
	ExpectedMin int `json:"expected_min"`

	Before Balance `json:"before"`
	After  Balance `json:"after"`
}

// Diff returns the changes from one table to another. O(partitions + nodes).
func Diff(before, after *Table) Changes {
	c := Changes{Before: before.Balance(), After: after.Balance()}
	if before.Partitions() != after.Partitions() {
		return c
	}
	c.Moves = Moves(before, after)
	c.ExpectedMin = expectedMin(before, after)
	return c
}

// Moves returns the partitions that change owner from one table to another, in
// ascending order; never nil. In the table of fewer partitions, the others have no
// owner. O(partitions + nodes).
func Moves(before, after *Table) []Move {
	moves := []Move{}
	var now []int32 // by index before: the index after; nil if all are the same
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

// expectedMin is the greater of two sums: the partitions that nodes own beyond their
// shares, and the partitions that nodes lack. A move reduces each by one at most.
func expectedMin(before, after *Table) int {
	have := before.Balance().Counts
	was, is := sharesOf(before), sharesOf(after)
	surplus, shortage := 0, 0
	if len(was) == 0 && len(is) > 0 {
		surplus = before.Partitions() // none has an owner
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
	part        float64 // of all weights; exact enough to compare for equality
	least, most int     // partitions: the fair share rounded down, and up
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

// KeysMoved returns the share of all keys, 0 to 1, that changes owner from one table
// to another, also if the numbers of partitions differ. It is exact for keys
// that hash evenly. Without partitions no key has an owner. O(partitions + nodes).
//
// With P and Q partitions and g their greatest common divisor, a key of partition p
// is in one of the partitions q with p mod g = q mod g, and equally likely in each.
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
