package placement

import (
	"fmt"
	"slices"
	"strconv"
)

// Bounded returns rendezvous hashing with bounded loads (after Mirrokni, Thorup and Zadimoghaddam,
// "Consistent hashing with bounded loads", 2018): no node owns more than the given percentage of its fair
// share, rounded up. Bounded assigns partitions in the order of their numbers. Each partition goes to the
// node with the highest score that still has room. Bounded replaces a percentage below 100 with 100, and a
// percentage above 1,000 with 1,000.
//
// Bounded spreads partitions more evenly than [Rendezvous], whose shares vary by a tenth or more, but it
// moves more partitions. A join or a leave changes the bound of every node, so partitions move that a node no
// longer has room for, and each of them can displace others. A lower bound causes more of these moves. The
// following table shows how many partitions move after a join, as a multiple of the partitions that the
// joiner gets. It contains the median of 100 fleets and, in parentheses, the worst case, with 1,024
// partitions:
//
//	percent    to 10 nodes    to 50 nodes
//	    105    1.08 (1.34)    1.72 (2.14)
//	    110    1.03 (1.16)    1.43 (1.94)
//	    125    1.00 (1.06)    1.12 (1.38)
//	    150    1.00 (1.00)    1.00 (1.14)
//
// Assign costs O(nodes · partitions). Rank orders nodes by score, whether or not they have room.
func Bounded(percent int) Strategy { return bounded{percent: uint64(min(max(percent, 100), 1000))} }

type bounded struct {
	scored
	percent uint64
}

func (b bounded) Name() string { return "bounded-rendezvous-" + strconv.FormatUint(b.percent, 10) }

func (b bounded) Assign(nodes []Node, partitions int) ([]int, error) {
	if len(nodes) == 0 {
		return nil, errNoNodes
	}
	room := b.room(nodes, partitions)
	candidates := candidatesOf(nodes)
	owners := make([]int, partitions)
	for p := range owners {
		owner := bestCandidate(candidates, hashPartition(Partition(p)))
		owners[p] = owner
		if room[owner]--; room[owner] > 0 {
			continue
		}
		candidates = slices.DeleteFunc(candidates, func(b candidate) bool { return int(b.node) == owner })
		if len(candidates) == 0 {
			break // p was the last partition, because the total room equals the number of partitions
		}
	}
	return owners, nil
}

// room returns how many partitions each node can own: the given percentage of its fair share, rounded up, so
// that there is room for all partitions. The products fit into 64 bits, because 1,000 · 65,536 · 1,000,000 is
// below 2^46.
func (b bounded) room(nodes []Node, partitions int) []uint64 {
	total := uint64(0)
	for _, n := range nodes {
		total += uint64(n.Weight)
	}
	room := make([]uint64, len(nodes))
	for i, n := range nodes {
		most := b.percent * uint64(partitions) * uint64(n.Weight)
		room[i] = (most + 100*total - 1) / (100 * total)
	}
	return room
}

// Explain implements [Explainer].
func (b bounded) Explain(nodes []Node, p Partition, owner int) string {
	full := 0
	for _, i := range b.Rank(nodes, p, len(nodes)) {
		if i == owner {
			break
		}
		full++
	}
	if full == 0 {
		return fmt.Sprintf("%s drew the best number of %d nodes for it, and was below its bound", nodes[owner].ID, len(nodes))
	}
	return fmt.Sprintf("%d nodes with better numbers for it had reached their bound, and %s was the next node below its bound", full, nodes[owner].ID)
}
