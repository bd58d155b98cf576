package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// maxProblems is the number of disagreements after which Disagreements stops.
const maxProblems = 8

// Disagreements returns the reasons why these nodes do not agree, or why all nodes do not agree if no id is
// given: different members, different tables, partitions that are not owned by exactly one node, or published
// changes that do not add up to what a node owns. It stops after a few reasons.
func (c *Cluster) Disagreements(ids ...string) []string {
	nodes := c.all()
	if len(ids) > 0 {
		nodes = slices.DeleteFunc(nodes, func(p *Process) bool { return !slices.Contains(ids, p.ID) })
	}
	if len(nodes) == 0 {
		return nil
	}
	if problems := differences(nodes); len(problems) > 0 {
		return problems // the checks below take longer
	}
	return wrongOwners(nodes)
}

// wrongOwners returns the problems with the owners of partitions. All nodes must have the same table.
func wrongOwners(nodes []*Process) (problems []string) {
	owned := 0
	for _, p := range nodes {
		mine := p.Owned()
		owned += len(mine)
		if want := p.glance().Table.Owned(lease.NodeID(p.ID)); !slices.Equal(mine, want) {
			problems = append(problems, fmt.Sprintf("%s owns %d partitions, by the table of all it has %d", p.ID, len(mine), len(want)))
		}
		if p.c.measured {
			if s := p.glance().State; s == nil || !slices.EqualFunc(s.Members, nodes, named) {
				problems = append(problems, p.ID+" has published other members")
			}
			continue
		}
		for _, problem := range p.Problems(mine, p.Members()) {
			problems = append(problems, p.ID+": "+problem)
		}
	}
	if t := nodes[0].glance().Table; len(t.Nodes()) > 0 && owned != t.Partitions() {
		problems = append(problems, fmt.Sprintf("%d of %d partitions have an owner", owned, t.Partitions()))
	}
	return problems[:min(len(problems), maxProblems)]
}

func named(i lease.Incarnation, p *Process) bool { return string(i.Node) == p.ID }

// differences returns how members and tables of the nodes differ.
func differences(nodes []*Process) (problems []string) {
	ids := make([]lease.NodeID, len(nodes))
	for i, p := range nodes {
		ids[i] = lease.NodeID(p.ID)
	}
	first := nodes[0].View().Table
	for _, p := range nodes {
		if t := p.View().Table; t == nil || p.View().Stale || t.Digest() != first.Digest() {
			problems = append(problems, fmt.Sprintf("%s has table %v, %s has %v", p.ID, t.Digest(), nodes[0].ID, first.Digest()))
		}
		if members := p.Members(); !slices.Equal(members, ids) {
			problems = append(problems, fmt.Sprintf("%s sees members %v, running are %v", p.ID, members, ids))
		}
		if len(problems) >= maxProblems {
			break
		}
	}
	return problems
}

// agreed reports whether there are no Disagreements. Usually it only compares two nodes, because the node
// that disagreed at the last check probably still disagrees.
func (c *Cluster) agreed() bool {
	nodes := c.all()
	if len(nodes) == 0 {
		return true
	}
	first := slices.IndexFunc(nodes, func(p *Process) bool { return p.ID == c.doubt })
	for i := range nodes {
		if p := nodes[(max(first, 0)+i)%len(nodes)]; !p.sees(nodes) {
			c.doubt = p.ID
			return false
		}
	}
	return len(wrongOwners(nodes)) == 0
}

// sees reports whether the members of p are exactly these nodes, and whether p has the same table as the first of them.
func (p *Process) sees(nodes []*Process) bool {
	v := p.glance()
	t := v.Table
	return t != nil && !v.Stale && t.Digest() == nodes[0].glance().Table.Digest() && p.hasMembers(nodes)
}

// Agree lets time pass until no disagreement is left, and returns how long that took.
// The error lists the disagreements that are left at the limit.
func (c *Cluster) Agree(limit time.Duration) (time.Duration, error) {
	took, ok := c.RunUntil(c.agreed, limit)
	if !ok {
		return took, fmt.Errorf("sim: no agreement within %v:\n  %s", limit, strings.Join(c.Disagreements(), "\n  "))
	}
	return took, nil
}

// Owners returns the owner of each partition in the table of the first node.
func (c *Cluster) Owners() []lease.NodeID {
	t := c.all()[0].View().Table
	owners := make([]lease.NodeID, t.Partitions())
	for p := range owners {
		owners[p], _ = t.Owner(placement.Partition(p))
	}
	return owners
}
