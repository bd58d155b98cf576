package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// BenchmarkStore compares the calls of a join with bare commands on the same server, by
// one caller and by 64.
func BenchmarkStore(b *testing.B) {
	server := redistest.Start(b)
	s := open(b, Options{URL: server.URL()})
	opt, _, err := s.opt.client()
	if err != nil {
		b.Fatal(err)
	}
	bare, err := rueidis.NewClient(opt)
	if err != nil {
		b.Fatal(err)
	}
	defer bare.Close()
	one := newScript("return 1")
	one.run(context.Background(), bare, call{[]string{"k"}, nil})
	server.Do("SET", "k", "v")
	if r := s.Swap(b.Context(), first("pinned", node("n", 1)))[0]; r.Err != nil {
		b.Fatal(r.Err)
	}
	var unique atomic.Int64
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"bare GET", func() error {
			return bare.Do(context.Background(), bare.B().Get().Key("k").Build()).Error()
		}},
		{"bare EVALSHA", func() error {
			return one.run(context.Background(), bare, call{[]string{"k"}, nil})[0].Error()
		}},
		{"read", func() error { return benchSwap(s, read("pinned")) }},
		{"claim of a new room", func() error {
			return benchSwap(s, first(strconv.FormatInt(unique.Add(1), 10), node("n", 1)))
		}},
		{"claim of a pinned room", func() error { return benchSwap(s, first("pinned", node("m", 1))) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if err := c.call(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/64 callers", func(b *testing.B) {
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := c.call(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
	benchBatch(b, s)
}

// benchBatch replaces the pins of 64 rooms of one partition at a time.
func benchBatch(b *testing.B, s *Store) {
	b.Helper()
	const n = 64
	nodes := []lease.Incarnation{node("n", 1), node("m", 1)}
	ops := make([]affinity.Op, n)
	for i := range ops {
		ops[i] = first(fmt.Sprint("batch ", i), nodes[0])
		if err := benchSwap(s, ops[i]); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("replace of 64", func(b *testing.B) {
		turn := 0
		for b.Loop() {
			for i := range ops {
				ops[i].If, ops[i].Set = affinity.Pin{Incarnation: nodes[turn%2]}, affinity.Pin{Incarnation: nodes[(turn+1)%2]}
			}
			turn++
			for _, r := range s.Swap(context.Background(), ops...) {
				if r.Err != nil || !r.Done {
					b.Fatal(r)
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/room")
		for range turn % 2 { // as it was, for the next round
			for i := range ops {
				ops[i].If, ops[i].Set = affinity.Pin{Incarnation: nodes[1]}, affinity.Pin{Incarnation: nodes[0]}
			}
			s.Swap(context.Background(), ops...)
		}
	})
}

// benchSwap has a deadline, as calls of a resolver have.
func benchSwap(s *Store, op affinity.Op) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.Swap(ctx, op)[0].Err
}
