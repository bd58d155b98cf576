package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// BenchmarkPublish is for how long the loop stands still when one of 1,000 nodes
// drains or is back, with 16,384 partitions: table, snapshot, events and log.
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
					n.Drain(now) // publishes at once
				})
			}
			sync, err := lease.Decode(receiver{a}.State())
			if err != nil {
				b.Fatal(err)
			}
			others.From, others.Echo = others.Heartbeats[0].Handle, sync.Challenge // its sender runs
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
				one.Heartbeats[0].At, one.Heartbeats[0].State = one.Stamp, lease.Active+lease.State(seq%2) // Draining is next
				publish(&one)
			}
			if n := a.Snapshot().Stats.TableChanges; n < uint64(b.N) {
				b.Fatalf("%d changes in %d rounds", n, b.N)
			}
		})
	}
}
