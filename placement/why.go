package placement

import (
	"fmt"
)

// Explainer is a [Strategy] that can say, for people, why the node of index owner
// has p.
type Explainer interface {
	Explain(nodes []Node, p Partition, owner int) string
}

// Why says in one sentence, for people, why p is where it is. Nodes that compute
// the table from the same nodes and the same assignment give the same reason. The
// words are not for programs: they may change.
func (t *Table) Why(p Partition) string {
	owner := t.OwnerIndex(p)
	if owner < 0 {
		if uint64(p) >= uint64(t.Partitions()) {
			return fmt.Sprintf("there is no partition %d: they are numbered from 0 to %d", p, t.Partitions()-1)
		}
		return "there is no node that may own anything: all drain or have weight 0, or none is there"
	}
	why := ""
	var err error // of a strategy that panics
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

// Explain implements [Explainer].
func (hrw) Explain(nodes []Node, p Partition, owner int) string {
	ranked := hrw{}.Rank(nodes, p, 2)
	if len(ranked) < 2 {
		return fmt.Sprintf("%s is the only node that may own anything", nodes[owner].ID)
	}
	return fmt.Sprintf("%s drew the best number of %d nodes for it; without it, %s would own it",
		nodes[owner].ID, len(nodes), nodes[ranked[1]].ID)
}

// Explain implements [Explainer].
func (bounded) Explain(nodes []Node, p Partition, owner int) string {
	full := 0
	for _, i := range (hrw{}).Rank(nodes, p, len(nodes)) {
		if i == owner {
			break
		}
		full++
	}
	if full == 0 {
		return fmt.Sprintf("%s drew the best number of %d nodes for it, and had room", nodes[owner].ID, len(nodes))
	}
	return fmt.Sprintf("%s had room and drew the best number for it but for %d nodes that had reached their bound", nodes[owner].ID, full)
}

// Explain implements [Explainer].
func (modulo) Explain(nodes []Node, p Partition, owner int) string {
	return fmt.Sprintf("%d mod %d nodes is %d, and %s has this place in the order of ids, counted from 0", p, len(nodes), owner, nodes[owner].ID)
}

// Explain implements [Explainer].
func (s *onRing) Explain(nodes []Node, _ Partition, owner int) string {
	return fmt.Sprintf("on the ring of %d nodes, the first point at or after its hash is one of %s", len(nodes), nodes[owner].ID)
}

// Explain implements [Explainer], for what no [Memory] knows of.
func (least) Explain(nodes []Node, _ Partition, owner int) string {
	return fmt.Sprintf("it had no owner on record, and %s had the fewest partitions", nodes[owner].ID)
}
