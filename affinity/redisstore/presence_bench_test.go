package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/presence"
)

// BenchmarkPresenceHeartbeat is a heartbeat of 10,000 participants in 500 rooms, as
// a node sends it over an interval, here at once; for comparison a bare client with as
// many ZADDs, one a participant and one a room.
func BenchmarkPresenceHeartbeat(b *testing.B) {
	const rooms, each = 500, 20
	server := redistest.Start(b)
	store := openPresence(b, server.URL())
	client := store.store.link.Load().plain
	ctx := context.Background()
	var (
		seats []presence.Participant
		keys  []string
	)
	for r := range rooms {
		room := fmt.Sprintf("room-%03d", r)
		p := placement.Of(room, placement.DefaultPartitions)
		keys = append(keys, fmt.Sprintf("bare:{%d}:u:%s", p, room))
		for i := range each {
			seats = append(seats, presence.Participant{Room: presence.Room{Partition: p, Name: room}, Name: fmt.Sprintf("user-%05d/%d", r*each+i, i)})
		}
	}
	name := func(i int) string { return seats[i].Name }
	check := func(b *testing.B, results []rueidis.RedisResult) {
		b.Helper()
		for _, r := range results {
			if err := r.Error(); err != nil {
				b.Fatal(err)
			}
		}
	}

	b.Run("roost", func(b *testing.B) {
		for b.Loop() {
			if err := store.Beat(ctx, time.Minute, seats...); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rooms/each, "ns/participant")
	})
	b.Run("bare ZADD each", func(b *testing.B) {
		for b.Loop() {
			now := float64(time.Now().UnixMilli())
			cmds := make([]rueidis.Completed, len(seats))
			for i := range seats {
				cmds[i] = client.B().Zadd().Key(keys[i/each]).ScoreMember().ScoreMember(now, name(i)).Build()
			}
			check(b, client.DoMulti(ctx, cmds...))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rooms/each, "ns/participant")
	})
	b.Run("bare ZADD a room", func(b *testing.B) {
		for b.Loop() {
			now := strconv.FormatInt(time.Now().UnixMilli(), 10)
			cmds := make([]rueidis.Completed, rooms)
			for r := range rooms {
				args := make([]string, 0, 2*each)
				for i := range each {
					args = append(args, now, name(r*each+i))
				}
				cmds[r] = client.B().Arbitrary("ZADD").Keys(keys[r]).Args(args...).Build()
			}
			check(b, client.DoMulti(ctx, cmds...))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rooms/each, "ns/participant")
	})
}

// BenchmarkPresenceRead asks for a room of 50, and for the counts of 100 such.
func BenchmarkPresenceRead(b *testing.B) {
	server := redistest.Start(b)
	store := openPresence(b, server.URL())
	ctx := context.Background()
	var refs []presence.Room
	for r := range 100 {
		ref := presence.Room{Partition: placement.Partition(r), Name: fmt.Sprint("room-", r)}
		refs = append(refs, ref)
		var seats []presence.Participant
		for i := range 50 {
			seats = append(seats, presence.Participant{Room: ref, Name: fmt.Sprintf("user-%d/1", i)})
		}
		if err := store.Beat(ctx, time.Hour, seats...); err != nil {
			b.Fatal(err)
		}
	}
	client := store.store.link.Load().plain
	b.Run("members of 50", func(b *testing.B) {
		for b.Loop() {
			if m, err := store.Members(ctx, time.Hour, refs[0]); err != nil || len(m) != 50 {
				b.Fatal(len(m), err)
			}
		}
	})
	b.Run("counts of 100 rooms", func(b *testing.B) {
		for b.Loop() {
			if n, err := store.Count(ctx, time.Hour, refs...); err != nil || n[99] != 50 {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("bare PING", func(b *testing.B) {
		for b.Loop() {
			if err := client.Do(ctx, client.B().Ping().Build()).Error(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
