package cluster

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// agentOf returns an agent that has published a table over n nodes, without any
// of its machinery running.
func agentOf(tb testing.TB, n int) *Agent {
	tb.Helper()
	a := &Agent{cfg: Config{ID: "n0000"}.WithDefaults(), self: "n0000", started: time.Now()}
	core := node.New(a.started, node.Config{LeaseTTL: time.Hour}, 0)
	s := &Snapshot{lease: core.View().Lease}
	var in placement.Input
	in.Partitions = a.cfg.Partitions
	for i := range n {
		m := &Member{Profile: lease.Profile{ID: lease.NodeID(fmt.Sprintf("n%04d", i)), Addr: "10.0.0.1:7946", Weight: 100}, State: lease.Active}
		s.Members = append(s.Members, m)
		in.Nodes = append(in.Nodes, placement.Node{ID: m.ID, Weight: m.Weight})
	}
	table, err := placement.Compute(in)
	if err != nil {
		tb.Fatal(err)
	}
	s.Table, s.owners = table, s.Members
	s.State = events.Next(nil, a.self, table, nil, true)
	a.snap.Set(*s)
	return a
}

var keys = func() []string {
	all := make([]string, 1024)
	for i := range all {
		all[i] = "room-" + strconv.Itoa(i)
	}
	return all
}()

var nodeCounts = []int{10, 100, 1000}

func TestLookupsDoNotAllocate(t *testing.T) {
	a := agentOf(t, 100)
	for name, lookup := range map[string]func(){
		"Place":     func() { _, _ = a.Place("room-17") },
		"IsOwner":   func() { a.IsOwner("room-17") },
		"Partition": func() { a.Partition("room-17") },
		"OwnerOf":   func() { a.OwnerOf(17) },
		"Members":   func() { a.Members() },
		"Converged": func() { a.Converged() },
	} {
		if n := testing.AllocsPerRun(100, lookup); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { a.Owners("room-17", 3) }); n > 1 {
		t.Errorf("Owners allocates %v times", n)
	}
}

// scopeOf returns a scope over every second node of an agent of agentOf.
func scopeOf(tb testing.TB, a *Agent) *Scope {
	tb.Helper()
	sc := &Scope{agent: a, name: "even", match: func(m *Member) bool { return m.ID[len(m.ID)-1]%2 == 0 }}
	sc.snap.Set(Snapshot{})
	if err := sc.update(a.snap.Load(), time.Now()); err != nil {
		tb.Fatal(err)
	}
	return sc
}

func TestLookupsInScopesDoNotAllocate(t *testing.T) {
	sc := scopeOf(t, agentOf(t, 100))
	for name, lookup := range map[string]func(){
		"Place":   func() { _, _ = sc.Place("room-17") },
		"IsOwner": func() { sc.IsOwner("room-17") },
		"OwnerOf": func() { sc.OwnerOf(17) },
		"Members": func() { sc.Members() },
	} {
		if n := testing.AllocsPerRun(100, lookup); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { sc.Owners("room-17", 3) }); n > 1 {
		t.Errorf("Owners allocates %v times", n)
	}
}

// BenchmarkScope compares the lookups in a scope with the agent's own.
func BenchmarkScope(b *testing.B) {
	for _, n := range nodeCounts {
		a := agentOf(b, n)
		sc := scopeOf(b, a)
		for _, of := range []struct {
			name    string
			place   func(string) (*Member, error)
			isOwner func(string) bool
			owners  func(string, int) []*Member
		}{{"agent", a.Place, a.IsOwner, a.Owners}, {"scope", sc.Place, sc.IsOwner, sc.Owners}} {
			b.Run(fmt.Sprintf("Place/nodes=%d/%s", n, of.name), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if m, err := of.place(keys[i&1023]); err != nil || m.ID == "" {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprintf("IsOwner/nodes=%d/%s", n, of.name), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					of.isOwner(keys[i&1023])
				}
			})
			b.Run(fmt.Sprintf("Owners/nodes=%d/%s", n, of.name), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					of.owners(keys[i&1023], 3)
				}
			})
		}
	}
}

// BenchmarkScopeUpdate is what a snapshot of the agent costs a scope over all nodes: nothing new, or one node
// fewer and one more in turns.
func BenchmarkScopeUpdate(b *testing.B) {
	for _, n := range nodeCounts {
		for _, changes := range []bool{false, true} {
			b.Run(fmt.Sprintf("nodes=%d/change=%v", n, changes), func(b *testing.B) {
				all, less := agentOf(b, n).snap.Load(), agentOf(b, n-1).snap.Load()
				sc := &Scope{agent: agentOf(b, n), name: "all", match: func(*Member) bool { return true }}
				sc.snap.Set(Snapshot{})
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					s := all
					if changes && i%2 == 1 {
						s = less
					}
					if err := sc.update(s, time.Time{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkPlace(b *testing.B) {
	for _, n := range nodeCounts {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			a := agentOf(b, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if m, err := a.Place(keys[i&1023]); err != nil || m.ID == "" {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPlaceParallel(b *testing.B) {
	a := agentOf(b, 100)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := a.Place(keys[i&1023]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkIsOwner(b *testing.B) {
	a := agentOf(b, 100)
	for i := 0; b.Loop(); i++ {
		a.IsOwner(keys[i&1023])
	}
}

func BenchmarkOwners(b *testing.B) {
	for _, n := range nodeCounts {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			a := agentOf(b, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				a.Owners(keys[i&1023], 3)
			}
		})
	}
}
