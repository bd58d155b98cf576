package clustertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// recorder replays an agent's events from the first batch on.
type recorder struct {
	mu      sync.Mutex
	owned   map[placement.Partition]uint64
	members map[lease.NodeID]bool
	batches []events.Batch
	faults  []string
}

func record(a *cluster.Agent) *recorder {
	r := &recorder{owned: make(map[placement.Partition]uint64), members: make(map[lease.NodeID]bool)}
	go func() {
		for b := range a.Watch(context.Background()) { // ends with the agent
			r.apply(b)
		}
	}()
	return r
}

func (r *recorder) apply(b events.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, b)
	fault := func(bad bool, format string, args ...any) {
		if bad {
			r.faults = append(r.faults, fmt.Sprintf("version %d: ", b.Version)+fmt.Sprintf(format, args...))
		}
	}
	for _, o := range b.Released {
		fault(r.owned[o.Partition] != o.Since, "released %v, owned since %d", o, r.owned[o.Partition])
		delete(r.owned, o.Partition)
	}
	for _, o := range b.Acquired {
		fault(r.owned[o.Partition] != 0, "acquired %v, already owned", o)
		r.owned[o.Partition] = o.Since
	}
	for _, id := range b.Left {
		fault(!r.members[id], "%s left, was no member", id)
		delete(r.members, id)
	}
	for _, id := range b.Joined {
		fault(r.members[id], "%s joined, was a member", id)
		r.members[id] = true
	}
}

// compare returns the differences between the replay and the agent.
func (r *recorder) compare(a *cluster.Agent) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	faults := slices.Clone(r.faults)
	owned := a.Owned()
	if len(owned) != len(r.owned) {
		faults = append(faults, fmt.Sprintf("owns %d partitions, by its events %d", len(owned), len(r.owned)))
	}
	for _, p := range owned {
		if r.owned[p] == 0 {
			faults = append(faults, fmt.Sprintf("owns partition %d, by its events not", p))
		}
	}
	for _, m := range a.Members() {
		if !r.members[m.ID] {
			faults = append(faults, fmt.Sprintf("has member %s, by its events not", m.ID))
		}
	}
	if len(a.Members()) != len(r.members) {
		faults = append(faults, fmt.Sprintf("has %d members, by its events %d", len(a.Members()), len(r.members)))
	}
	return faults
}

// Batches returns all batches of the agent of id since its start.
func (c *Cluster) Batches(id string) []events.Batch {
	r := c.node(id).record
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.batches)
}

// Disagreements returns all faults of the running nodes: different members, different
// tables, a partition that is not owned by exactly one node, events that do not add up
// to a node's members and partitions.
func (c *Cluster) Disagreements() []string {
	var faults []string
	owners := make(map[placement.Partition][]string)
	nodes := c.all()
	for _, n := range nodes {
		s := n.agent.Snapshot()
		if got := memberIDs(s); !slices.Equal(got, c.IDs()) {
			faults = append(faults, fmt.Sprintf("%s sees members %v, running are %v", n.id, got, c.IDs()))
		}
		if first := nodes[0].agent.Snapshot(); s.Digest() != first.Digest() || s.Table == nil {
			faults = append(faults, fmt.Sprintf("%s has table %v over %v, %s has %v over %v",
				n.id, s.Digest(), candidates(s), nodes[0].id, first.Digest(), candidates(first)))
		}
		for _, p := range n.agent.Owned() {
			owners[p] = append(owners[p], n.id)
		}
		for _, fault := range n.record.compare(n.agent) {
			faults = append(faults, n.id+": "+fault)
		}
	}
	return append(faults, c.notOwnedOnce(owners)...)
}

func (c *Cluster) notOwnedOnce(owners map[placement.Partition][]string) (faults []string) {
	if len(c.nodes) == 0 {
		return nil
	}
	t := c.all()[0].agent.Snapshot().Table
	if len(t.Nodes()) == 0 {
		return nil
	}
	for p := range placement.Partition(t.Partitions()) {
		if ids := owners[p]; len(ids) != 1 {
			faults = append(faults, fmt.Sprintf("partition %d is owned by %v", p, ids))
			if len(faults) > 3 {
				break
			}
		}
	}
	return faults
}

// candidates describes the table of s: the number of its nodes, and the members that
// are not active or not in it.
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

func memberIDs(s *cluster.Snapshot) []string {
	ids := make([]string, len(s.Members))
	for i := range s.Members {
		ids[i] = string(s.Members[i].ID)
	}
	return ids
}

// WaitAgreed waits until there is no disagreement, and returns how long that took. The
// test fails if it takes longer than within.
func (c *Cluster) WaitAgreed(within time.Duration) time.Duration {
	c.t.Helper()
	begin := time.Now()
	for {
		faults := c.Disagreements()
		took := time.Since(begin)
		if len(faults) == 0 {
			return took
		}
		if took >= within {
			c.t.Fatalf("clustertest: no agreement within %v:\n%v", within, join(faults))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Check fails the test if there is a disagreement now.
func (c *Cluster) Check() {
	c.t.Helper()
	if faults := c.Disagreements(); len(faults) > 0 {
		c.t.Fatalf("clustertest: disagreement:\n%v", join(faults))
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
