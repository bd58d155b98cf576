package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/placement"
)

// BenchmarkPresenceHeartbeat sends the heartbeats of 10,000 participants in 500 rooms. A node would spread them over an
// interval, but the benchmark sends them in one call. For comparison, a bare client sends a ZADD for each participant,
// and a ZADD for each room.
func BenchmarkPresenceHeartbeat(b *testing.B) {
	const rooms, each = 500, 20
	server := redistest.Start(b)
	store, client := ready(b, redisAt{URL: server.URL()}).Presence(), bareClient(b, server)
	ctx := context.Background()
	var seats []presence.Participant
	var keys []string
	for r := range rooms {
		name := fmt.Sprintf("room-%03d", r)
		room := presence.Room{Partition: placement.Of(name, placement.DefaultPartitions), Name: name}
		keys = append(keys, fmt.Sprintf("bare:{%d}:u:%s", room.Partition, name))
		for i := range each {
			seats = append(seats, presence.Participant{Room: room, Name: fmt.Sprintf("user-%05d/%d", r*each+i, i)})
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
			if err := store.Heartbeat(ctx, time.Minute, seats...); err != nil {
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

// BenchmarkPresenceMembers reads a room of 100,000 participants. max-µs is the longest time for which one command
// occupied the server. For comparison, a bare client reads the room with one command.
func BenchmarkPresenceMembers(b *testing.B) {
	server := redistest.Start(b)
	store := ready(b, redisAt{URL: server.URL()}).Presence()
	client := bareClient(b, server)
	ctx := context.Background()
	room := presence.Room{Partition: 17, Name: "r"}
	seats := make([]presence.Participant, 100_000)
	for i := range seats {
		seats[i] = presence.Participant{Room: room, Name: fmt.Sprintf("user-%05d/1", i)}
	}
	if err := store.Heartbeat(ctx, time.Hour, seats...); err != nil {
		b.Fatal(err)
	}
	run := func(name string, read func() error) {
		b.Run(name, func(b *testing.B) {
			server.Do("CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "100000")
			server.Do("SLOWLOG", "RESET")
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
			longest := int64(0)
			entries, err := client.Do(ctx, client.B().SlowlogGet().Count(-1).Build()).ToArray()
			for _, e := range entries {
				fields, _ := e.ToArray()
				us, _ := fields[2].AsInt64()
				longest = max(longest, us)
			}
			if err != nil || longest == 0 {
				b.Fatal(longest, err)
			}
			b.ReportMetric(float64(longest), "max-µs")
		})
	}
	run("roost", func() error {
		_, err := store.Members(ctx, time.Hour, room)
		return err
	})
	key := store.store.participants(room)
	run("bare ZRANGE", func() error {
		_, err := client.Do(ctx, client.B().Zrange().Key(key).Min("0").Max("-1").Withscores().Build()).ToArray()
		return err
	})
}
