package lease

import (
	"fmt"
	"testing"
	"time"
)

// bench measures op, which prepare returns for a set of 10, 100 and 1,000 nodes.
func bench(b *testing.B, prepare func(s *Set) (op func())) {
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

// digestOf returns the fullest digest of one packet, without records.
func digestOf(s *Set) *Message {
	m := s.Compose(epoch, 1400, 100)
	for ; len(m.Records) > 0; m = s.Compose(epoch, 1400, 100) {
		for _, e := range s.byID {
			e.beatsSent = 0
		}
	}
	return m
}

// messages are the two kinds of large messages: one packet, and a full sync.
var messages = map[string]func(s *Set) *Message{
	"digest": digestOf,
	"sync":   func(s *Set) *Message { return s.Sync(epoch) },
}

func BenchmarkEncode(b *testing.B) {
	for name, of := range messages {
		b.Run(name, func(b *testing.B) {
			bench(b, func(s *Set) func() {
				m := of(s)
				return func() { Encode(m) }
			})
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, of := range messages {
		b.Run(name, func(b *testing.B) {
			bench(b, func(s *Set) func() {
				wire := Encode(of(s))
				return func() {
					if _, err := Decode(wire); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// Every row of the digest renews a lease.
func BenchmarkApplyDigest(b *testing.B) {
	bench(b, func(s *Set) func() {
		m := digestOf(s)
		return func() {
			for i := range m.Beats[1:] {
				m.Beats[i+1].Seq++
			}
			s.Apply(epoch, m)
		}
	})
}

// Every row of the digest is known already, as most are in practice.
func BenchmarkApplyKnownDigest(b *testing.B) {
	bench(b, func(s *Set) func() {
		m := digestOf(s)
		return func() { s.Apply(epoch, m) }
	})
}

// The first full sync of a node that joins.
func BenchmarkApplySync(b *testing.B) {
	bench(b, func(s *Set) func() {
		m := s.Sync(epoch)
		return func() { newSet(rec("z", 1)).Apply(epoch, m) }
	})
}

// The digest has only rows to choose from.
func BenchmarkCompose(b *testing.B) {
	bench(b, func(s *Set) func() {
		digestOf(s)
		return func() {
			if s.Compose(epoch, 1400, 1) == nil {
				for _, e := range s.byID {
					e.beatsSent = 0
				}
			}
		}
	})
}

func BenchmarkView(b *testing.B) {
	bench(b, func(s *Set) func() { return func() { s.View() } })
}

func BenchmarkExpire(b *testing.B) {
	bench(b, func(s *Set) func() { return func() { s.Expire(epoch.Add(time.Second)) } })
}

// Includes the update of the cluster's clock.
func BenchmarkBeat(b *testing.B) {
	bench(b, func(s *Set) func() { return func() { s.Beat(epoch, 1, 1) } })
}
