package placement

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/roost-cluster/roost/lease"
)

// Partition is the number of a slice of the key space, from 0 to the table's Partitions()-1. Keys never move
// between partitions. Instead, partitions move between nodes.
type Partition uint32

const (
	// DefaultPartitions is suitable for fleets of up to about ten nodes, whose shares then vary by about 10 %
	// (see [Balance]). With 64 partitions, the shares of ten nodes would vary by 36 %.
	DefaultPartitions = 1024

	// MaxPartitions limits the memory of a table (4 bytes per partition, or 12 after the first Rank) and the
	// time to compute it. With 65,536 partitions, the shares of a thousand nodes vary by 12 %.
	MaxPartitions = 65536
)

// Of returns the partition of key: xxHash64(key) mod partitions. It is the same on every node with the same
// number of partitions. Of does not allocate. If partitions < 1, Of returns 0, which has no owner in an empty
// table.
func Of(key string, partitions int) Partition {
	if partitions < 1 {
		return 0
	}
	return Partition(xxhash.Sum64String(key) % uint64(partitions))
}

// Table contains the owner of each partition. A Table is immutable and safe for concurrent use. A nil or zero
// Table has no partitions and no owners, and all its methods are safe to call.
type Table struct {
	nodes      []Node // sorted by id
	partitions int
	strategy   Strategy
	name       string // name of the strategy
	digest     Digest
	memory     Memory // nil unless the strategy is Stateful

	// owners[p] is an index into nodes. The slice is nil if there are no nodes. The elements are int32
	// instead of uint16, so that the number of nodes needs no limit. With 4 kB for 1,024 partitions, the
	// slice still fits into the first-level cache.
	owners []int32

	candidates []candidate              // the nodes, if the strategy is a scorer
	keys       []uint64                 // hashes of the partitions, computed at the first change; shared by derived tables
	ranks      atomic.Pointer[[]uint64] // by partition; see top
}

// Partitions returns the number of partitions.
func (t *Table) Partitions() int {
	if t == nil {
		return 0
	}
	return t.partitions
}

// Nodes returns the candidates, sorted by id. Candidates are all nodes of weight > 0, whether or not they own
// partitions. The slice is shared and must not be modified.
func (t *Table) Nodes() []Node {
	if t == nil {
		return nil
	}
	return t.nodes
}

// OwnerIndex returns the index into Nodes of the owner of p. It returns -1 if there are no nodes or if p is
// out of range.
func (t *Table) OwnerIndex(p Partition) int {
	if t == nil || uint64(p) >= uint64(len(t.owners)) {
		return -1
	}
	return int(t.owners[p])
}

// Owner returns the owner of p, or false if p has no owner.
func (t *Table) Owner(p Partition) (lease.NodeID, bool) {
	if i := t.OwnerIndex(p); i >= 0 {
		return t.nodes[i].ID, true
	}
	return "", false
}

// Owned returns the partitions of node id in ascending order. It costs a pass over the table.
func (t *Table) Owned(id lease.NodeID) []Partition {
	i, found := t.find(id)
	if !found {
		return nil
	}
	var owned []Partition
	for p, owner := range t.owners {
		if int(owner) == i {
			owned = append(owned, Partition(p))
		}
	}
	return owned
}

// Digest returns a hash of the number of partitions, the name of the strategy and the owner of each
// partition. Tables that are equal in all three have the same digest on every CPU. Other tables have
// different digests, except for collisions of 64-bit hashes. Weights, and nodes without partitions, do not
// affect the digest. Only a nil or zero Table has digest 0.
func (t *Table) Digest() Digest {
	if t == nil {
		return 0
	}
	return t.digest
}

// Memory returns the Input.Memory of t if its strategy is [Stateful], or nil.
func (t *Table) Memory() Memory {
	if t == nil {
		return nil
	}
	return t.memory
}

// With returns a table with the same nodes, partitions and strategy, but a different memory. It fails in the
// same cases as Compute.
func (t *Table) With(m Memory) (*Table, error) {
	in := Input{Nodes: t.Nodes(), Partitions: t.Partitions(), Memory: m}
	if t != nil {
		in.Strategy = t.strategy
	}
	return Compute(in)
}

// Level returns the moves of a pass over t, or of all passes, among the movable partitions; see [Stateful].
// If the strategy is not Stateful, Level returns no moves. Level fails if the strategy breaks its contract.
func (t *Table) Level(movable []Partition, all bool) (moves []Move, err error) {
	if t == nil || len(t.owners) == 0 {
		return nil, nil
	}
	s, ok := placing(t.strategy).(Stateful)
	if !ok {
		return nil, nil
	}
	owners := make([]int, len(t.owners))
	for p, i := range t.owners {
		owners[p] = int(i)
	}
	contain(&err, func() { moves = s.Level(t.nodes, owners, movable, all) })
	if err == nil {
		err = t.checkMoves(moves, movable)
	}
	if err != nil {
		return nil, fmt.Errorf("placement: strategy %q: level: %w", t.name, err)
	}
	return moves, nil
}

func (t *Table) checkMoves(moves []Move, movable []Partition) error {
	may := make([]bool, t.partitions)
	for _, p := range movable {
		may[p] = true
	}
	for _, m := range moves {
		if int64(m.Partition) >= int64(t.partitions) || !may[m.Partition] {
			return fmt.Errorf("moves partition %d, which must not move", m.Partition)
		}
		if from, _ := t.Owner(m.Partition); from != m.From {
			return fmt.Errorf("moves partition %d from %q, owned by %q", m.Partition, m.From, from)
		}
		if _, found := t.find(m.To); !found {
			return fmt.Errorf("moves partition %d to %q, which is not among the %d nodes", m.Partition, m.To, len(t.nodes))
		}
		may[m.Partition] = false
	}
	return nil
}

func (t *Table) find(id lease.NodeID) (int, bool) {
	return slices.BinarySearchFunc(t.Nodes(), id, func(n Node, id lease.NodeID) int { return cmp.Compare(n.ID, id) })
}

// Why explains, in a sentence for operators, why p has its owner. Nodes with the same members and the same
// memory give the same reason. Do not parse the sentence, because it can change between releases.
func (t *Table) Why(p Partition) string {
	owner := t.OwnerIndex(p)
	if owner < 0 {
		if uint64(p) >= uint64(t.Partitions()) {
			return fmt.Sprintf("there is no partition %d: partitions are numbered from 0 to %d", p, t.Partitions()-1)
		}
		return "no node may own it: there are no nodes, or all nodes drain or have weight 0"
	}
	why := ""
	var err error // ignored if the strategy panics
	contain(&err, func() {
		if t.memory != nil {
			why = t.memory.Why(p, t.nodes[owner].ID)
		}
		if e, ok := placing(t.strategy).(Explainer); ok && why == "" {
			why = e.Explain(t.nodes, p, owner)
		}
	})
	if why == "" {
		return fmt.Sprintf("the strategy %s placed it on %s", t.name, t.nodes[owner].ID)
	}
	return why
}
