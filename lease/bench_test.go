package lease

import (
	"fmt"
	"testing"
	"time"
)

// sizes are the measured cluster sizes.
var sizes = []int{10, 100, 1000}

func forSizes(b *testing.B, f func(b *testing.B, nodes int)) {
	b.Helper()
	for _, n := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			f(b, n)
		})
	}
}

// digestOf returns the fullest digest of one packet, without records.
func digestOf(s *Set) *Message {
	m := s.Compose(epoch, 1400, 100)
	for ; len(m.Records) > 0; m = s.Compose(epoch, 1400, 100) {
		for _, e := range s.byID {
			e.beats = 0
		}
	}
	return m
}

func BenchmarkEncodeDigest(b *testing.B) {
	forSizes(b, func(b *testing.B, nodes int) {
		b.Helper()
		m := digestOf(crowd(nodes))
		size := len(Encode(m))
		for b.Loop() {
			Encode(m)
		}
		b.ReportMetric(float64(size)/float64(len(m.Beats)), "B/row")
		b.ReportMetric(float64(len(m.Beats)), "rows")
	})
}

func BenchmarkDecodeDigest(b *testing.B) {
	forSizes(b, func(b *testing.B, nodes int) {
		b.Helper()
		wire := Encode(digestOf(crowd(nodes)))
		for b.Loop() {
			if _, err := Decode(wire); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEncodeSync(b *testing.B) {
	forSizes(b, func(b *testing.B, nodes int) {
		b.Helper()
		m := crowd(nodes).Sync(epoch)
		for b.Loop() {
			Encode(m)
		}
		b.ReportMetric(float64(len(Encode(m))), "B/msg")
	})
}

func BenchmarkDecodeSync(b *testing.B) {
	forSizes(b, func(b *testing.B, nodes int) {
		b.Helper()
		wire := Encode(crowd(nodes).Sync(epoch))
		for b.Loop() {
			if _, err := Decode(wire); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Every row of the digest renews a lease.
func BenchmarkApplyDigest(b *testing.B) {
	forSizes(b, func(b *testing.B, nodes int) {
		b.Helper()
		m, s := digestOf(crowd(nodes)), crowd(nodes)
		for b.Loop() {
			for i := range m.Beats[1:] {
				m.Beats[i+1].Seq++
			}
			s.Apply(epoch, m)
		}
		b.ReportMetric(float64(len(m.Beats)), "rows")
	})
}

// Every row of the digest is known already, as most are in practice.
func BenchmarkApplyKnownDigest(b *testing.B) {
	forSizes(b, func(b *testing.B, nodes int) {
		b.Helper()
		s := crowd(nodes)
		m := digestOf(s)
		for b.Loop() {
			s.Apply(epoch, m)
		}
	})
}

// The first full sync of a node that joins.
func BenchmarkApplySync(b *testing.B) {
	forSizes(b, func(b *testing.B, nodes int) {
		b.Helper()
		m := crowd(nodes).Sync(epoch)
		for b.Loop() {
			newSet(rec("z", 1)).Apply(epoch, m)
		}
	})
}

// The digest has only rows to choose from.
func BenchmarkCompose(b *testing.B) {
	forSizes(b, func(b *testing.B, nodes int) {
		b.Helper()
		s := crowd(nodes)
		digestOf(s)
		for b.Loop() {
			if s.Compose(epoch, 1400, 1) == nil {
				for _, e := range s.byID {
					e.beats = 0
				}
			}
		}
	})
}

func BenchmarkView(b *testing.B) {
	forSizes(b, func(b *testing.B, nodes int) {
		b.Helper()
		s := crowd(nodes)
		for b.Loop() {
			s.View()
		}
	})
}

func BenchmarkExpire(b *testing.B) {
	forSizes(b, func(b *testing.B, nodes int) {
		b.Helper()
		s := crowd(nodes)
		for b.Loop() {
			s.Expire(epoch.Add(time.Second))
		}
	})
}

// Includes the update of the cluster's clock.
func BenchmarkBeat(b *testing.B) {
	forSizes(b, func(b *testing.B, nodes int) {
		b.Helper()
		s := crowd(nodes)
		for b.Loop() {
			s.Beat(epoch, 1, 1)
		}
	})
}
