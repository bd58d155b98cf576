package redisstore

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/internal/redistest"
)

// The store behaves like a map from each participant to its last heartbeat. The test sets the clock that the scripts
// read.
func TestPresenceReference(t *testing.T) {
	server := redistest.Start(t)
	store := ready(t, redisAt{URL: server.URL()}).Presence()
	const stale = 10 * time.Second
	rapid.Check(t, func(t *rapid.T) {
		server.Do("FLUSHALL", "SYNC") // scripts stay
		ctx, now, reference := context.Background(), int64(1_700_000_000_000), map[presence.Participant]int64{}
		rooms := []presence.Room{{Partition: 0, Name: "r"}, {Partition: 0, Name: "s"}, {Partition: 1, Name: "r"}}
		seats := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) presence.Participant {
			room := rapid.SampledFrom(rooms).Draw(t, "room")
			return presence.Participant{Room: room, Name: rapid.StringMatching("[a-e]").Draw(t, "who")}
		}), 0, 4)
		t.Repeat(map[string]func(*rapid.T){
			"heartbeat": func(t *rapid.T) {
				s := seats.Draw(t, "seats")
				if err := frozen(store, now).Heartbeat(ctx, stale, s...); err != nil {
					t.Fatal(err)
				}
				for _, seat := range s {
					reference[seat] = now
				}
			},
			"leave": func(t *rapid.T) {
				s := seats.Draw(t, "seats")
				if err := store.Leave(ctx, s...); err != nil {
					t.Fatal(err)
				}
				for _, seat := range s {
					delete(reference, seat)
				}
			},
			"wait": func(t *rapid.T) { now += 1000 * rapid.Int64Range(0, 11).Draw(t, "s") },
			"": func(t *rapid.T) {
				counts, err := frozen(store, now).Count(ctx, stale, rooms...)
				if err != nil {
					t.Fatal(err)
				}
				for i, room := range rooms {
					want, got := map[string]string{}, map[string]string{}
					for seat, at := range reference {
						if seat.Room == room && at > now-stale.Milliseconds() {
							want[seat.Name] = fmt.Sprint(time.Duration(now-at) * time.Millisecond)
						}
					}
					members, err := frozen(store, now).Members(ctx, stale, room)
					for _, m := range members {
						got[m.Name] = fmt.Sprint(m.Idle)
					}
					if err != nil || counts[i] != len(want) || len(members) != len(want) || !maps.Equal(got, want) {
						t.Fatalf("%v: %d members %v, %v; want %v", room, counts[i], members, err, want)
					}
				}
			},
		})
	})
}
