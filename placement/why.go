package placement

import (
	"fmt"

	"github.com/roost-cluster/roost/lease"
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
	if Remembers(t.strategy) {
		return t.assigned.why(p, t.nodes[owner].ID)
	}
	why := fmt.Sprintf("the strategy %s placed it on %s", t.name, t.nodes[owner].ID)
	if e, ok := placing(t.strategy).(Explainer); ok {
		var err error // of one that panics
		contain(&err, func() { why = e.Explain(t.nodes, p, owner) })
	}
	return why
}

// why says how partition p came to its holder.
func (a *Assignment) why(p Partition, holder lease.NodeID) string {
	e := a.entry(int(p))
	switch {
	case e.owner == "":
		return fmt.Sprintf("nobody was assigned it yet, and %s had the fewest partitions", holder)
	case e.deputy == holder:
		return fmt.Sprintf("%s stands in, since version %d of the assignment, for its owner %s, which is away or drains", holder, e.stand, e.owner)
	case e.owner != holder:
		return fmt.Sprintf("its owner %s is away or drains, and %s had the fewest partitions", e.owner, holder)
	case e.cause == causeLevel:
		return fmt.Sprintf("%s moved it from %s, which had the most partitions, to %s, which had the fewest, in version %d of the assignment",
			e.by, e.from, holder, e.version)
	case e.cause == causeGone:
		return fmt.Sprintf("%s stood in for %s, which did not come back; %s made it the owner in version %d of the assignment",
			holder, e.from, e.by, e.version)
	}
	return fmt.Sprintf("%s had the fewest partitions when it was dealt out; %s wrote that down in version %d of the assignment",
		holder, e.by, e.version)
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
