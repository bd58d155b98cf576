package sim_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const ttl = 6 * time.Second

// fleet is a cluster whose methods fail the test if something is wrong.
type fleet struct {
	*sim.Cluster
	t *testing.T
}

func newFleet(t *testing.T, opts sim.Options) fleet {
	t.Helper()
	return fleet{sim.New(opts), t}
}

// started returns n nodes that started together and now agree.
func started(t *testing.T, n int, opts sim.Options) fleet {
	t.Helper()
	c := newFleet(t, opts)
	c.Start(ids(n)...)
	c.agree(3 * time.Second)
	return c
}

func ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("n%02d", i)
	}
	return all
}

// inFleets runs a scenario in fleets of several sizes.
func inFleets(t *testing.T, scenario func(t *testing.T, c fleet)) {
	t.Helper()
	sizes := []int{3, 10, 50}
	if testing.Short() {
		sizes = sizes[:2]
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) { scenario(t, started(t, n, sim.Options{Seed: uint64(n)})) })
	}
}

// agree lets time pass until all nodes agree.
func (c fleet) agree(limit time.Duration) time.Duration {
	c.t.Helper()
	took, err := c.Agree(limit)
	if err != nil {
		c.t.Fatal(err)
	}
	if problems := c.Disagreements(); len(problems) > 0 { // Agree compares in a different order
		c.t.Fatalf("agreement in spite of %v", problems)
	}
	return took
}

// check fails the test if the nodes disagree now.
func (c fleet) check() {
	c.t.Helper()
	c.agree(0)
}

// await lets time pass until the condition holds.
func (c fleet) await(what string, limit time.Duration, condition func() bool) time.Duration {
	c.t.Helper()
	took, ok := c.RunUntil(condition, limit)
	if !ok {
		c.t.Fatalf("not within %v: %s", limit, what)
	}
	return took
}

// drain drains a node, and returns when the node owns nothing and all nodes know this.
func (c fleet) drain(id string) {
	c.t.Helper()
	c.Node(id).Drain()
	c.await(id+" is drained", ttl, func() bool { return len(c.Node(id).Owned()) == 0 && c.converged() })
}

// undrain makes a node a candidate again, and returns when all nodes know this.
func (c fleet) undrain(id string) {
	c.t.Helper()
	c.Node(id).Undrain()
	c.await(id+" is a candidate again", ttl, func() bool { return c.converged() && c.candidate(id) })
}

func (c fleet) candidate(id string) bool {
	return slices.ContainsFunc(c.Node(id).View().Table.Nodes(), func(n placement.Node) bool { return string(n.ID) == id })
}

// converged reports whether no node knows of another node with a different table.
func (c fleet) converged() bool {
	return !slices.ContainsFunc(c.IDs(), func(id string) bool { return c.Node(id).View().Diverged > 0 })
}

// sees reports whether a node considers another node live.
func (c fleet) sees(id, other string) bool {
	return slices.Contains(c.Node(id).Members(), lease.NodeID(other))
}

// member returns what a node knows about another node.
func (c fleet) member(id, other string) lease.Member {
	c.t.Helper()
	members := c.Node(id).View().Live.Members
	i := slices.IndexFunc(members, func(m lease.Member) bool { return string(m.ID) == other })
	if i < 0 {
		c.t.Fatalf("%s does not see %s", id, other)
	}
	return members[i]
}

// moved returns the partitions whose owner has changed since before.
func (c fleet) moved(before []lease.NodeID) (moves []move) {
	for p, owner := range c.Owners() {
		if owner != before[p] {
			moves = append(moves, move{placement.Partition(p), before[p], owner})
		}
	}
	return moves
}

type move struct {
	partition placement.Partition
	from, to  lease.NodeID
}

// onlyMoved fails the test if a partition moved that was not allowed to move.
func (c fleet) onlyMoved(before []lease.NodeID, may func(move) bool) {
	c.t.Helper()
	for _, m := range c.moved(before) {
		if !may(m) {
			c.t.Fatalf("partition %d moved from %s to %s", m.partition, m.from, m.to)
		}
	}
}

func from(id lease.NodeID) func(move) bool { return func(m move) bool { return m.from == id } }
func toNew(m move) bool                    { return m.to == "new" }
func nothing(move) bool                    { return false }

// recording knows what every node has published since a certain moment.
type recording struct {
	c    fleet
	seen map[string]int
}

func (c fleet) record() recording {
	r := recording{c, make(map[string]int)}
	for _, id := range c.IDs() {
		r.seen[id] = len(c.Node(id).Batches())
	}
	return r
}

// batches returns what a node has published since the recording began.
func (r recording) batches(id string) []events.Batch { return r.c.Node(id).Batches()[r.seen[id]:] }

// tables returns how many different tables all nodes published, and the largest number of batches that any node
// published.
func (r recording) tables() (all, most int) {
	digests := make(map[placement.Digest]bool)
	for _, id := range r.c.IDs() {
		for _, b := range r.batches(id) {
			digests[b.Digest] = true
		}
		most = max(most, len(r.batches(id)))
	}
	return len(digests), most
}

// stop returns how many moves n00 published, and fails the test if any node published a move that is not allowed.
func (r recording) stop(may func(move) bool) (moved int) {
	r.c.t.Helper()
	for _, at := range r.c.IDs() {
		for _, b := range r.batches(at) {
			for _, m := range b.Moved {
				if !may(move{m.Partition, m.From, m.To}) {
					r.c.t.Fatalf("%s published that partition %d moved from %s to %s", at, m.Partition, m.From, m.To)
				}
				if at == "n00" {
					moved++
				}
			}
		}
	}
	return moved
}

// left returns the members that a node has published as gone since the recording began. joined returns the members that
// it has published as new.
func (r recording) left(id string) (all []lease.NodeID) {
	for _, b := range r.batches(id) {
		all = append(all, b.Left...)
	}
	return all
}

func (r recording) joined(id string) (all []lease.NodeID) {
	for _, b := range r.batches(id) {
		all = append(all, b.Joined...)
	}
	return all
}

func (r recording) acquired(id string) (n int) {
	for _, b := range r.batches(id) {
		n += len(b.Acquired)
	}
	return n
}

// logbook keeps the log lines of all nodes.
type logbook []string

func (l *logbook) write(p *sim.Process, e node.Event) {
	*l = append(*l, fmt.Sprintf("node=%s level=%d %s %v", p.ID, e.Level, e.Message, e.Attrs))
}

// find returns the lines that contain all parts.
func (l *logbook) find(parts ...string) (found []string) {
	for _, line := range *l {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			found = append(found, line)
		}
	}
	return found
}

var (
	changes = flag.Int("changes", 0, "random changes in TestHandoff; 0 = a few hundred")
	long    = flag.Bool("long", false, "larger fleets, and for longer: make scale and make handoff do so")
)
