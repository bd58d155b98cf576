package events_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/roost-cluster/roost/events"
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

// BenchmarkDiff compares pairs of states: a state of 10 nodes with a successor in which nothing changed, the same state
// with a successor that has an eleventh node, and no state with a first state.
func BenchmarkDiff(b *testing.B) {
	for _, partitions := range []int{1024, 16384} {
		table, members := fleet(b, 10, partitions)
		bigger, more := fleet(b, 11, partitions)
		old := events.Next(nil, "node-000", table, members, true)
		refresh, join := events.Next(old, "node-000", table, members, true), events.Next(old, "node-000", bigger, more, true)
		for name, states := range map[string][2]*events.State{"refresh": {old, refresh}, "join": {old, join}, "first": {nil, old}} {
			b.Run(fmt.Sprintf("partitions=%d/%s", partitions, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					events.Diff(states[0], states[1])
				}
			})
		}
	}
}

// BenchmarkPublish measures only the publisher. Before each Publish, all watchers are waiting again.
func BenchmarkPublish(b *testing.B) {
	table, members := fleet(b, 10, 1024)
	for _, watchers := range []int{0, 1000} {
		b.Run(fmt.Sprintf("watchers=%d", watchers), func(b *testing.B) {
			var feed events.Feed
			s := events.Next(nil, "node-000", table, members, true)
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
						// The next iteration reads the state that was just published.
					}
				})
			}
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				ready.Wait()
				s = events.Next(s, "node-000", table, members, true)
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

// BenchmarkFollow measures how long it takes until all watchers have received the batch of a join or a leave.
func BenchmarkFollow(b *testing.B) {
	table, members := fleet(b, 10, 1024)
	bigger, more := fleet(b, 11, 1024)
	for _, watchers := range []int{1, 1000} {
		b.Run(fmt.Sprintf("watchers=%d", watchers), func(b *testing.B) {
			var feed events.Feed
			s := events.Next(nil, "node-000", table, members, true)
			feed.Publish(s)
			var received, ended sync.WaitGroup
			received.Add(watchers)
			for range watchers {
				ended.Go(func() {
					for range events.Watch(b.Context(), &feed) {
						received.Done()
					}
				})
			}
			received.Wait()
			b.ReportAllocs()
			for b.Loop() {
				received.Add(watchers)
				table, members, bigger, more = bigger, more, table, members
				s = events.Next(s, "node-000", table, members, true)
				feed.Publish(s)
				received.Wait()
			}
			feed.Close()
			ended.Wait()
		})
	}
}
