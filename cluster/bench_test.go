package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// agentOf returns an agent that has published a table over n nodes. Its loop and its gossip do not run.
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

// scopeOf returns a scope over every second node of an agent that agentOf made.
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

// BenchmarkScope compares lookups in a scope with lookups at the agent.
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

// BenchmarkScopeUpdate measures how long a scope over all nodes takes to follow a snapshot of the agent, both if
// nothing has changed, and if a node alternately leaves and joins.
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

// BenchmarkPublish measures for how long the loop is busy when one of 1,000 nodes drains or returns, with 16,384
// partitions. The time includes the table, the snapshot, the events and the log.
func BenchmarkPublish(b *testing.B) {
	for _, s := range []placement.Strategy{
		placement.Rendezvous(), placement.LeastPartitions(1, 3), placement.Bounded(125), placement.VnodeRing(),
	} {
		b.Run(s.Name(), func(b *testing.B) {
			a, err := Start(b.Context(), Config{
				ID: "self", Bind: "127.0.0.1:0", Bootstrap: true, LeaseTTL: time.Hour, HeartbeatInterval: 20 * time.Minute,
				Partitions: 16384, Strategy: s, StartDraining: true, Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = a.Close() }()
			<-a.Ready()
			others := lease.Message{Settings: settingsOf(a.cfg).hash(), SentAt: time.Now(), Stamp: lease.Stamp(time.Now().UnixMilli())}
			for i := range 999 {
				r := &lease.Record{
					Profile: lease.Profile{ID: lease.NodeID(fmt.Sprintf("node-%04d", i)), Incarnation: 1 << 62, Weight: 100, Addr: "127.0.0.1:1"},
					Version: 1,
				}
				others.Records = append(others.Records, r)
				others.Heartbeats = append(others.Heartbeats, lease.Heartbeat{Handle: r.Handle(), At: others.Stamp, State: lease.Active, Version: 1})
			}
			publish := func(m *lease.Message) {
				message := lease.Encode(m)
				_ = a.do(context.Background(), func(now time.Time, n *node.Node) {
					n.Receive(now, message)
					n.Drain(now) // publishes without the debounce
				})
			}
			sync, err := lease.Decode(receiver{a}.State())
			if err != nil {
				b.Fatal(err)
			}
			others.From, others.Echo = others.Heartbeats[0].Handle, sync.Challenge // proves that the sender runs
			publish(&others)
			if n := len(a.Snapshot().Table.Nodes()); n != 999 {
				b.Fatalf("%d nodes", n)
			}
			one := lease.Message{
				Settings:   others.Settings,
				SentAt:     time.Now(),
				Stamp:      others.Stamp,
				From:       others.From,
				Heartbeats: others.Heartbeats[500:501],
			}
			seq := 1
			for b.Loop() {
				seq++
				one.Stamp++
				one.Heartbeats[0].At, one.Heartbeats[0].State = one.Stamp, lease.Active+lease.State(seq%2) // alternates between Active and the next state, Draining
				publish(&one)
			}
			if n := a.Snapshot().Stats.TableChanges; n < uint64(b.N) {
				b.Fatalf("%d changes in %d rounds", n, b.N)
			}
		})
	}
}
