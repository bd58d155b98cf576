package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/presence"
)

// BenchmarkPresence has 10,000 participants in 500 rooms: the heartbeat of all, which
// a node sends over an interval and here at once, the members of a room, the counts of all.
func BenchmarkPresence(b *testing.B) {
	const rooms, each = 500, 20
	store := ready(b, Options{URL: redistest.Start(b).URL()}).Presence()
	var seats []presence.Participant
	var refs []presence.Room
	for r := range rooms {
		name := fmt.Sprintf("room-%03d", r)
		refs = append(refs, presence.Room{Partition: placement.Of(name, placement.DefaultPartitions), Name: name})
		for i := range each {
			seats = append(seats, presence.Participant{Room: refs[r], Name: fmt.Sprintf("user-%05d/%d", r*each+i, i)})
		}
	}
	b.Run("heartbeat", func(b *testing.B) {
		for b.Loop() {
			if err := store.Beat(b.Context(), time.Hour, seats...); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rooms/each, "ns/participant")
	})
	b.Run("members", func(b *testing.B) {
		for b.Loop() {
			if m, err := store.Members(b.Context(), time.Hour, refs[0]); err != nil || len(m) != each {
				b.Fatal(len(m), err)
			}
		}
	})
	b.Run("counts", func(b *testing.B) {
		for b.Loop() {
			if n, err := store.Count(b.Context(), time.Hour, refs...); err != nil || n[rooms-1] != each {
				b.Fatal(n, err)
			}
		}
	})
}
