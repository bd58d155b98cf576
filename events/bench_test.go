package events

import (
	"fmt"
	"sync"
	"testing"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// fleet returns n members and their table.
func fleet(b *testing.B, n, partitions int) (*placement.Table, []lease.Incarnation) {
	b.Helper()
	in := placement.Input{Partitions: partitions}
	var members []lease.Incarnation
	for i := range n {
		id := lease.NodeID(fmt.Sprintf("node-%03d", i))
		in.Nodes = append(in.Nodes, placement.Node{ID: id, Weight: 1})
		members = append(members, lease.Incarnation{Node: id, Number: 1})
	}
	table, err := placement.Compute(in)
	if err != nil {
		b.Fatal(err)
	}
	return table, members
}

func BenchmarkDiff(b *testing.B) {
	for _, partitions := range []int{1024, 16384} {
		table, members := fleet(b, 10, partitions)
		bigger, more := fleet(b, 11, partitions)
		old := Next(nil, "node-000", table, members, true)
		for _, c := range []struct {
			name string
			cur  *State
		}{
			{"refresh", Next(old, "node-000", table, members, true)},
			{"join", Next(old, "node-000", bigger, more, true)},
			{"first", nil},
		} {
			b.Run(fmt.Sprintf("%s/partitions=%d", c.name, partitions), func(b *testing.B) {
				b.ReportAllocs()
				from, to := old, c.cur
				if to == nil {
					from, to = nil, old
				}
				for b.Loop() {
					Diff(from, to)
				}
			})
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for _, partitions := range []int{1024, 16384} {
		table, members := fleet(b, 10, partitions)
		bigger, more := fleet(b, 11, partitions)
		old := Next(nil, "node-000", table, members, true)
		for _, c := range []struct {
			name    string
			table   *placement.Table
			members []lease.Incarnation
		}{
			{"refresh", table, members},
			{"join", bigger, more},
		} {
			b.Run(fmt.Sprintf("%s/partitions=%d", c.name, partitions), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Next(old, "node-000", c.table, c.members, true)
				}
			})
		}
	}
}

// BenchmarkPublish measures the publisher alone: all watchers wait again before each
// Publish.
func BenchmarkPublish(b *testing.B) {
	table, members := fleet(b, 10, 1024)
	for _, watchers := range []int{0, 1000} {
		b.Run(fmt.Sprintf("watchers=%d", watchers), func(b *testing.B) {
			var feed Feed
			s := Next(nil, "node-000", table, members, true)
			feed.Publish(s)
			var ready, ended sync.WaitGroup
			ready.Add(watchers)
			for range watchers {
				ended.Go(func() {
					for {
						_, next := feed.Latest()
						if next == nil {
							return
						}
						ready.Done()
						<-next
						// The next round starts with this publication.
					}
				})
			}
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				ready.Wait()
				s = Next(s, "node-000", table, members, true)
				ready.Add(watchers)
				b.StartTimer()
				feed.Publish(s)
			}
			b.StopTimer()
			ready.Wait()
			feed.Close()
			ended.Wait()
		})
	}
}

func BenchmarkLatest(b *testing.B) {
	table, members := fleet(b, 10, 1024)
	var feed Feed
	feed.Publish(Next(nil, "node-000", table, members, true))
	b.ReportAllocs()
	for b.Loop() {
		feed.Latest()
	}
}
