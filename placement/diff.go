package placement

import "github.com/roost-cluster/roost/lease"

// Move is a change of a partition's owner. An empty id stands for nobody.
type Move struct {
	Partition Partition    `json:"partition"`
	From      lease.NodeID `json:"from"`
	To        lease.NodeID `json:"to"`
}

// Changes is the difference of two tables.
type Changes struct {
	// Moves lists the partitions that change owner, in ascending order. It is nil
	// if the two tables count different partitions: then none corresponds to
	// another, and there is only [KeysMoved] to go by.
	Moves []Move `json:"moves"`

	// ExpectedMin is how many moves the change of nodes and weights asks for,
	// whatever the strategy: the least number after which
	//
	//   - each node that was given weight, newcomers among them, owns at least its
	//     fair share, rounded down,
	//   - each that was deprived of weight owns at most its fair share, rounded up;
	//     one that is gone, nothing,
	//   - nothing is left without an owner.
	//
	// What was uneven before for other reasons need not be mended. A node was given
	// weight if both its weight and its share of all weights have grown. Fewer
	// moves than this mean that a newcomer got less than its fair share, as
	// happens half of the time where draws decide. It is 0 if Moves is nil.
	ExpectedMin int `json:"expected_min"`

	Before Balance `json:"before"`
	After  Balance `json:"after"`
}

// Diff returns what changes from one table to another. O(partitions + nodes).
func Diff(before, after *Table) Changes {
	c := Changes{Before: before.Balance(), After: after.Balance()}
	if before.Partitions() != after.Partitions() {
		return c
	}
	c.Moves = []Move{}
	for p := range Partition(after.Partitions()) {
		from, _ := before.Owner(p)
		to, _ := after.Owner(p)
		if from != to {
			c.Moves = append(c.Moves, Move{p, from, to})
		}
	}
	c.ExpectedMin = expectedMin(before, after)
	return c
}

// expectedMin is the greater of two sums: what nodes have too much, and what nodes
// have too little. A move can settle one of each, and never more.
func expectedMin(before, after *Table) int {
	have := before.Balance().Counts
	was, is := sharesOf(before), sharesOf(after)
	surplus, shortage := 0, 0
	if len(was) == 0 && len(is) > 0 {
		surplus = before.Partitions() // nobody has them all
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

// share is what a node may expect of a table.
type share struct {
	weight      uint32
	part        float64 // of all weights; exact enough to tell equal ones
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

// KeysMoved returns which share of all keys changes owner from one table to
// another, 0 to 1, also if they count different partitions. It is exact for keys
// that hash evenly. Without partitions nobody owns any key. O(partitions + nodes).
//
// With P and Q partitions, of which g is the greatest common divisor, a key of
// partition p can be in exactly those partitions q for which p mod g = q mod g,
// and is as likely in any of them.
func KeysMoved(before, after *Table) float64 {
	p, q := before.Partitions(), after.Partitions()
	if p == 0 || q == 0 {
		return float64(min(1, len(before.Nodes())+len(after.Nodes())))
	}
	g := gcd(p, q)
	had := make(map[lease.NodeID]int64) // partitions of one class; "" = nobody
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
