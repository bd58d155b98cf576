package lease_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// bench measures an operation for sets of 10, 100 and 1,000 nodes. It gets the operation from prepare.
func bench(b *testing.B, prepare func(s *lease.Set) (op func())) {
	b.Helper()
	for _, nodes := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			op := prepare(crowd(nodes))
			for b.Loop() {
				op()
			}
		})
	}
}

// restMessage returns the message of an idle cluster, which contains only the node's own row and the ages of all
// leases.
func restMessage(s *lease.Set) *lease.Message {
	for s.Compose(epoch, 1400, 100) != nil { // all news is sent
	}
	s.Heartbeat(epoch, lease.NoLoad, 0)
	m := composeOne(s, epoch, 1)
	for len(m.Records) > 0 {
		m = composeOne(s, epoch, 1)
	}
	m.Cluster = lease.ClusterID{s.Handle()}
	return m
}

// messages are the message of an idle cluster, the fullest packet, and a full sync.
var messages = map[string]func(s *lease.Set) *lease.Message{
	"rest":   restMessage,
	"gossip": fullMessage,
	"sync":   func(s *lease.Set) *lease.Message { return s.Sync(epoch) },
}

func BenchmarkEncode(b *testing.B) {
	for name, of := range messages {
		b.Run(name, func(b *testing.B) {
			bench(b, func(s *lease.Set) func() {
				m := of(s)
				b.ReportMetric(float64(len(lease.Encode(m))), "bytes")
				return func() { lease.Encode(m) }
			})
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, of := range messages {
		b.Run(name, func(b *testing.B) {
			bench(b, func(s *lease.Set) func() {
				wire := lease.Encode(of(s))
				return func() {
					if _, err := lease.Decode(wire); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// Every row and age of the message renews a lease.
func BenchmarkApplyDigest(b *testing.B) {
	bench(b, func(s *lease.Set) func() {
		m, now, tick := fullMessage(s), epoch, stamps(testParams.TTL)/16
		return func() {
			now = now.Add(millis(tick))
			m.Stamp, m.SentAt = stampAt(now), now
			for i := range m.Heartbeats {
				m.Heartbeats[i].At += tick
				m.Heartbeats[i].Renewed = 0
			}
			s.Apply(now, m)
		}
	})
}

// The set already knows every row and age of the message. In practice, a set knows most of them.
func BenchmarkApplyKnownDigest(b *testing.B) {
	bench(b, func(s *lease.Set) func() {
		m := fullMessage(s)
		return func() { s.Apply(epoch, m) }
	})
}

// The message is the first full sync of a node that joins.
func BenchmarkApplySync(b *testing.B) {
	bench(b, func(s *lease.Set) func() {
		m := s.Sync(epoch)
		return func() { newSet(rec("z", 1)).Apply(epoch, m) }
	})
}

// The message has only rows and ages to choose from.
func BenchmarkCompose(b *testing.B) {
	bench(b, func(s *lease.Set) func() {
		fullMessage(s)
		now := epoch
		return func() {
			if s.Compose(now, 1400, 1) == nil {
				now = now.Add(ms)
				changeLoads(s, now)
			}
		}
	})
}

func BenchmarkView(b *testing.B) {
	bench(b, func(s *lease.Set) func() { return func() { s.View() } })
}

func BenchmarkExpire(b *testing.B) {
	bench(b, func(s *lease.Set) func() { return func() { s.Expire(epoch.Add(time.Second)) } })
}

// The operation includes the update of the cluster's clock.
func BenchmarkHeartbeat(b *testing.B) {
	bench(b, func(s *lease.Set) func() { return func() { s.Heartbeat(epoch, 1, 1) } })
}

// The leases of all other nodes ended long ago, so the set forgets all these nodes at the same time.
func BenchmarkForget(b *testing.B) {
	for _, nodes := range []int{1000, 4000, 16000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s := crowd(nodes)
				s.Expire(epoch.Add(testParams.TTL + time.Second))
				b.StartTimer()
				if s.Expire(epoch.Add(2 * forgetAfter(testParams))); s.Sizes()["nodes"] > 1 {
					b.Fatalf("%d nodes are left", s.Sizes()["nodes"])
				}
			}
		})
	}
}

// A node learns of all other nodes from packets that contain a few nodes each, and relays what it has learned.
func BenchmarkMassStart(b *testing.B) {
	const inPacket = 12
	for _, nodes := range []int{500, 1000, 2000, 4000} {
		var messages []*lease.Message
		for i := 0; i < nodes; i += inPacket {
			var heartbeats []lease.Heartbeat
			var records []*lease.Record
			for k := range inPacket {
				r := rec(lease.NodeID(fmt.Sprintf("node-%04d", (i+k)*7919%nodes)), 1)
				heartbeats, records = append(heartbeats, sent(r, epoch)), append(records, r)
			}
			messages = append(messages, messageFrom(epoch, records[0], heartbeats, records...))
		}
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s := newSet(rec("z", 1))
				for _, m := range messages {
					s.Apply(epoch, m)
					s.Compose(epoch, 1331, 3)
				}
			}
		})
	}
}
