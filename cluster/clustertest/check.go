package clustertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/ledger"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// recorder accumulates all batches of an agent, including the first one.
type recorder struct {
	mu     sync.Mutex
	ledger ledger.Ledger
}

func record(a *cluster.Agent) *recorder {
	r := &recorder{}
	go func() {
		for b := range a.Watch(context.Background()) { // ends when the agent stops
			r.mu.Lock()
			r.ledger.Add(b)
			r.mu.Unlock()
		}
	}()
	return r
}

func (r *recorder) problems(a *cluster.Agent) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Problems(a.Owned(), memberIDs(a.Snapshot()))
}

// Batches returns all batches that the agent with this ID has published since its start.
func (c *Cluster) Batches(id string) []events.Batch {
	r := c.node(id).record
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ledger.Batches)
}

// Disagreements returns all problems of the running nodes. Problems are different members, different tables, partitions
// that are not owned by exactly one node, and events that contradict a node's current members and partitions.
func (c *Cluster) Disagreements() []string {
	var problems []string
	owners := make(map[placement.Partition][]string)
	nodes := c.all()
	for _, n := range nodes {
		s := n.agent.Snapshot()
		if got, want := fmt.Sprint(memberIDs(s)), fmt.Sprint(c.IDs()); got != want {
			problems = append(problems, fmt.Sprintf("%s sees members %v, but the running nodes are %v", n.id, got, want))
		}
		if first := nodes[0].agent.Snapshot(); s.Digest() != first.Digest() || s.Table == nil {
			problems = append(problems, fmt.Sprintf("%s has table %v over %v, %s has %v over %v",
				n.id, s.Digest(), candidates(s), nodes[0].id, first.Digest(), candidates(first)))
		}
		for _, p := range n.agent.Owned() {
			owners[p] = append(owners[p], n.id)
		}
		for _, problem := range n.record.problems(n.agent) {
			problems = append(problems, n.id+": "+problem)
		}
	}
	return append(problems, c.notOwnedOnce(owners)...)
}

func (c *Cluster) notOwnedOnce(owners map[placement.Partition][]string) (problems []string) {
	if len(c.nodes) == 0 {
		return nil
	}
	t := c.all()[0].agent.Snapshot().Table
	if len(t.Nodes()) == 0 {
		return nil
	}
	for p := range placement.Partition(t.Partitions()) {
		if ids := owners[p]; len(ids) != 1 {
			problems = append(problems, fmt.Sprintf("partition %d is owned by %v", p, ids))
			if len(problems) > 3 {
				break
			}
		}
	}
	return problems
}

// candidates describes the table of s: the number of its nodes, and the members that are not active or not in
// the table.
func candidates(s *cluster.Snapshot) string {
	var odd []string
	for _, m := range s.Members {
		inTable := slices.ContainsFunc(s.Table.Nodes(), func(n placement.Node) bool { return n.ID == m.ID })
		if !inTable || m.State != lease.Active {
			odd = append(odd, fmt.Sprintf("%s(%v, weight %d, in table: %v)", m.ID, m.State, m.Weight, inTable))
		}
	}
	return fmt.Sprint(len(s.Table.Nodes()), " nodes", odd)
}

func memberIDs(s *cluster.Snapshot) []lease.NodeID {
	ids := make([]lease.NodeID, len(s.Members))
	for i := range s.Members {
		ids[i] = s.Members[i].ID
	}
	return ids
}

// WaitAgreed waits until there are no disagreements, and returns how long it waited. The test fails if the
// wait takes longer than within.
func (c *Cluster) WaitAgreed(within time.Duration) time.Duration {
	c.t.Helper()
	begin := time.Now()
	for {
		problems := c.Disagreements()
		took := time.Since(begin)
		if len(problems) == 0 {
			return took
		}
		if took >= within {
			c.t.Fatalf("clustertest: no agreement within %v:\n%v", within, join(problems))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Check fails the test if there is a disagreement now.
func (c *Cluster) Check() {
	c.t.Helper()
	if problems := c.Disagreements(); len(problems) > 0 {
		c.t.Fatalf("clustertest: disagreement:\n%v", join(problems))
	}
}

func join(lines []string) (s string) {
	for i, l := range lines {
		if i == 10 {
			return s + fmt.Sprintf("  … and %d more\n", len(lines)-10)
		}
		s += "  " + l + "\n"
	}
	return s
}
