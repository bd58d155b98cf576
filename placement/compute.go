package placement

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Input contains everything that a table depends on.
type Input struct {
	Nodes      []Node   // in any order; a node of weight 0 owns nothing
	Partitions int      // 1 to MaxPartitions
	Strategy   Strategy // nil = Rendezvous()

	// Base is a table with the same number of partitions and the same strategy, but other nodes. Compute can
	// derive the new table from Base, which is cheaper and does not change the result. Default: none.
	Base *Table

	// Memory contains the last holder of each partition for a Stateful strategy. Other strategies ignore
	// Memory. Memory must have the same number of partitions as the table. Default: no holders.
	Memory Memory
}

// Compute returns the table for in. The order of in.Nodes does not matter. Compute does not modify or keep
// in.
//
// If no node has a weight above 0, Compute returns a valid table whose partitions have no owner, because a
// cluster without candidates is not an error. Compute fails if the number of partitions is out of range, if
// an id is invalid or repeated, or if the strategy fails or breaks its contract.
func Compute(in Input) (*Table, error) {
	if in.Partitions < 1 || in.Partitions > MaxPartitions {
		return nil, fmt.Errorf("placement: %d partitions; there must be 1 to %d", in.Partitions, MaxPartitions)
	}
	nodes, err := candidates(in.Nodes)
	if err != nil {
		return nil, err
	}
	if in.Strategy == nil {
		in.Strategy = Rendezvous()
	}
	t := &Table{nodes: nodes, partitions: in.Partitions, strategy: in.Strategy}
	contain(&err, func() { t.name = in.Strategy.Name() })
	if err != nil || t.name == "" {
		return nil, errors.Join(fmt.Errorf("placement: strategy %T has no name", in.Strategy), err)
	}
	if Remembers(in.Strategy) {
		t.memory = in.Memory
	}
	if len(nodes) > 0 {
		if t.owners, err = assign(in, t); err != nil {
			return nil, fmt.Errorf("placement: strategy %q: %w", t.name, err)
		}
	}
	if _, ok := placing(in.Strategy).(scorer); ok && t.candidates == nil {
		t.candidates = candidatesOf(nodes)
	}
	t.digest = digest(t)
	return t, nil
}

// candidates returns the nodes that may own partitions, sorted by id. It also checks nodes of weight 0 before
// it drops them, because a repeated id is a bug of the caller regardless of the weight.
func candidates(all []Node) ([]Node, error) {
	nodes := slices.Clone(all)
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	for i, n := range nodes {
		if err := n.ID.Validate(); err != nil {
			return nil, fmt.Errorf("placement: %w", err)
		}
		if i > 0 && n.ID == nodes[i-1].ID {
			return nil, fmt.Errorf("placement: node id %q is given twice", n.ID)
		}
	}
	return slices.DeleteFunc(nodes, func(n Node) bool { return n.Weight == 0 }), nil
}

// assign runs the strategy and checks the result, so that a broken strategy causes an error here instead of a
// panic in a lookup.
func assign(in Input, t *Table) ([]int32, error) {
	if owners := derive(in, t); owners != nil {
		return owners, nil
	}
	var indexes []int
	var err error
	nodes, partitions := t.nodes, in.Partitions
	contain(&err, func() { indexes, err = afresh(in, nodes) })
	if err != nil {
		return nil, fmt.Errorf("assign %d partitions to %d nodes: %w", partitions, len(nodes), err)
	}
	if len(indexes) != partitions {
		return nil, fmt.Errorf("assigned %d partitions of %d", len(indexes), partitions)
	}
	owners := make([]int32, partitions)
	for p, i := range indexes {
		if i < 0 || i >= len(nodes) {
			return nil, fmt.Errorf("assigned partition %d to node index %d of %d", p, i, len(nodes))
		}
		owners[p] = int32(i)
	}
	return owners, nil
}

// contain turns a panic of a strategy into an error, because a small bug in a user's strategy must not crash
// a media server.
func contain(err *error, run func()) {
	defer func() {
		if r := recover(); r != nil {
			*err = fmt.Errorf("panic: %v", r)
		}
	}()
	run()
}

// afresh assigns without a base table. If the strategy is Stateful, afresh uses the memory.
func afresh(in Input, nodes []Node) ([]int, error) {
	stateful, ok := placing(in.Strategy).(Stateful)
	if !ok {
		return in.Strategy.Assign(nodes, in.Partitions)
	}
	held, err := in.held(nodes)
	if err != nil {
		return nil, err
	}
	return stateful.Keep(nodes, held)
}

// derive computes the owners of t from the base table. It returns nil if the base is unsuitable or would save
// no work.
func derive(in Input, t *Table) []int32 {
	u, ok := placing(in.Strategy).(updater)
	base := in.Base
	if !ok || base == nil || placing(base.strategy) != placing(in.Strategy) || len(base.owners) != in.Partitions {
		return nil
	}
	d := compareNodes(base.nodes, t.nodes)
	changed := len(d.gained)
	for i := range base.nodes {
		if d.now[i] < 0 || d.lost[i] {
			changed++
		}
	}
	// With equal weights, assigning without a base needs only a fraction of the comparisons that deriving
	// needs.
	if changed*4 > len(t.nodes) {
		return nil
	}
	return u.update(base, t, d)
}

// held returns the recorded holder of each partition, or -1.
func (in Input) held(nodes []Node) ([]int, error) {
	var held []int
	if in.Memory != nil {
		held = in.Memory.Held(nodes)
	}
	if held == nil {
		return slices.Repeat([]int{-1}, in.Partitions), nil
	}
	if len(held) != in.Partitions {
		return nil, fmt.Errorf("the memory counts %d partitions", len(held))
	}
	return held, nil
}
