package affinity

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// presenceTwin is a MemoryPresence without ideas.
type presenceTwin map[Seat]time.Time

func (m presenceTwin) members(now time.Time, stale time.Duration, room RoomRef) map[string]time.Duration {
	in := map[string]time.Duration{}
	for seat, at := range m {
		if seat.Ref() == room && at.After(now.Add(-stale)) {
			in[seat.Participant] = now.Sub(at)
		}
	}
	return in
}

func TestMemoryPresenceTwin(t *testing.T) { // S1.1 to S1.4
	synctest.Test(t, func(t *testing.T) {
		const stale = 10 * time.Second
		rooms := []RoomRef{{0, "r"}, {0, "s"}, {1, "r"}}
		// Hidden in a struct, since rapid asks a *testing.T for its deadline, which
		// a bubble does not have.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			m, twin, ctx := NewMemoryPresence(), presenceTwin{}, context.Background()
			seats := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Seat {
				room := rapid.SampledFrom(rooms).Draw(t, "room")
				return Seat{room.Partition, room.Room, rapid.StringMatching("[a-e]").Draw(t, "who")}
			}), 0, 4)
			t.Repeat(map[string]func(*rapid.T){
				"beat": func(t *rapid.T) {
					s := seats.Draw(t, "seats")
					if err := m.Beat(ctx, stale, s...); err != nil {
						t.Fatal(err)
					}
					for _, seat := range s {
						twin[seat] = time.Now()
					}
				},
				"leave": func(t *rapid.T) {
					s := seats.Draw(t, "seats")
					if err := m.Leave(ctx, s...); err != nil {
						t.Fatal(err)
					}
					for _, seat := range s {
						delete(twin, seat)
					}
				},
				"wait": func(t *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(0, 11).Draw(t, "s")) * time.Second) },
				"": func(t *rapid.T) {
					counts, err := m.Count(ctx, stale, rooms...)
					if err != nil {
						t.Fatal(err)
					}
					for i, room := range rooms {
						want := twin.members(time.Now(), stale, room)
						list, err := m.Members(ctx, stale, room)
						got := map[string]time.Duration{}
						for _, o := range list {
							got[o.Participant] = o.Idle
						}
						if err != nil || counts[i] != len(want) || len(list) != len(want) || !maps.Equal(got, want) {
							t.Fatalf("%v: %d members %v, %v; want %v", room, counts[i], list, err, want)
						}
					}
				},
			})
		})
	})
}

// Stale members do not count although there are more than a call sweeps up, and
// though one who was there before them is not stale.
func TestMemoryPresenceManyStale(t *testing.T) { // S1.3
	synctest.Test(t, func(t *testing.T) {
		m, room := NewMemoryPresence(), RoomRef{0, "r"}
		var seats []Seat
		for i := range 100 {
			seats = append(seats, Seat{0, "r", fmt.Sprint(i)})
		}
		check := func(want int) {
			t.Helper()
			n, err := m.Count(t.Context(), time.Minute, room)
			if err != nil || n[0] != want {
				t.Errorf("count is %v, %v; want %d", n, err, want)
			}
		}
		if err := m.Beat(t.Context(), time.Minute, seats...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - time.Nanosecond)
		if err := m.Beat(t.Context(), time.Minute, seats[0]); err != nil {
			t.Fatal(err)
		}
		check(100)
		time.Sleep(time.Nanosecond)
		check(1)
		time.Sleep(time.Minute - time.Nanosecond)
		check(0)
	})
}

// Those who went stale are freed though nobody asks for their rooms again, and no
// call frees many of them.
func TestMemoryPresenceCollectsAbandoned(t *testing.T) { // S1.4
	synctest.Test(t, func(t *testing.T) {
		m, ctx := NewMemoryPresence(), t.Context()
		const stale, abandoned = time.Second, 10_000
		for i := range abandoned {
			if err := m.Beat(ctx, stale, Seat{0, fmt.Sprint("room-", i), "ada"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(stale)
		calls := []func(i int) error{
			func(int) error { return m.Beat(ctx, stale, Seat{1, "r", "bob"}) },
			func(int) error { return m.Leave(ctx, Seat{1, "r", "nobody"}) },
			func(int) error { _, err := m.Members(ctx, stale, RoomRef{1, "r"}); return err },
			func(int) error { _, err := m.Count(ctx, stale, RoomRef{1, "r"}); return err },
		}
		for i := range abandoned / 16 {
			before := m.aging.Len()
			if err := calls[i%len(calls)](i); err != nil {
				t.Fatal(err)
			}
			if freed := before - m.aging.Len(); freed > 20 || (before > 20 && freed < 15) {
				t.Fatalf("call %d freed %d of %d", i, freed, before)
			}
		}
		if len(m.rooms) != 1 || m.aging.Len() != 1 {
			t.Errorf("%d rooms and %d seats are left: %v", len(m.rooms), m.aging.Len(), slices.Collect(maps.Keys(m.rooms)))
		}
	})
}
