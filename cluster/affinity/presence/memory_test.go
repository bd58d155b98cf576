package presence

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

// memoryReference is the plain reference model of Memory.
type memoryReference map[Participant]time.Time

func (m memoryReference) members(now time.Time, stale time.Duration, room Room) map[string]time.Duration {
	in := map[string]time.Duration{}
	for p, at := range m {
		if p.Room == room && at.After(now.Add(-stale)) {
			in[p.Name] = now.Sub(at)
		}
	}
	return in
}

func TestMemoryReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stale = 10 * time.Second
		rooms := []Room{{0, "r"}, {0, "s"}, {1, "r"}}
		// Hidden in a struct, since rapid asks a *testing.T for its deadline, which
		// a bubble does not have.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			m, reference, ctx := NewMemory(), memoryReference{}, context.Background()
			participants := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Participant {
				room := rapid.SampledFrom(rooms).Draw(t, "room")
				return Participant{room, rapid.StringMatching("[a-e]").Draw(t, "who")}
			}), 0, 4)
			t.Repeat(map[string]func(*rapid.T){
				"heartbeat": func(t *rapid.T) {
					s := participants.Draw(t, "participants")
					if err := m.Heartbeat(ctx, stale, s...); err != nil {
						t.Fatal(err)
					}
					for _, p := range s {
						reference[p] = time.Now()
					}
				},
				"leave": func(t *rapid.T) {
					s := participants.Draw(t, "participants")
					if err := m.Leave(ctx, s...); err != nil {
						t.Fatal(err)
					}
					for _, p := range s {
						delete(reference, p)
					}
				},
				"wait": func(t *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(0, 11).Draw(t, "s")) * time.Second) },
				"": func(t *rapid.T) {
					counts, err := m.Count(ctx, stale, rooms...)
					if err != nil {
						t.Fatal(err)
					}
					for i, room := range rooms {
						want := reference.members(time.Now(), stale, room)
						list, err := m.Members(ctx, stale, room)
						got := map[string]time.Duration{}
						for _, o := range list {
							got[o.Name] = o.Idle
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

// Stale members are not counted, even if there are more than a call frees, and even if
// an earlier member is not stale.
func TestMemoryManyStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, room := NewMemory(), Room{0, "r"}
		var participants []Participant
		for i := range 100 {
			participants = append(participants, Participant{room, fmt.Sprint(i)})
		}
		check := func(want int) {
			t.Helper()
			n, err := m.Count(t.Context(), time.Minute, room)
			if err != nil || n[0] != want {
				t.Errorf("count is %v, %v; want %d", n, err, want)
			}
		}
		if err := m.Heartbeat(t.Context(), time.Minute, participants...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - time.Nanosecond)
		if err := m.Heartbeat(t.Context(), time.Minute, participants[0]); err != nil {
			t.Fatal(err)
		}
		check(100)
		time.Sleep(time.Nanosecond)
		check(1)
		time.Sleep(time.Minute - time.Nanosecond)
		check(0)
	})
}

// Stale participants are freed even if no call names their rooms, and no call frees
// many of them.
func TestMemoryCollectsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, ctx := NewMemory(), t.Context()
		const stale, abandoned = time.Second, 10_000
		for i := range abandoned {
			if err := m.Heartbeat(ctx, stale, Participant{Room{0, fmt.Sprint("room-", i)}, "ada"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(stale)
		calls := []func(i int) error{
			func(int) error { return m.Heartbeat(ctx, stale, Participant{Room{1, "r"}, "bob"}) },
			func(int) error { return m.Leave(ctx, Participant{Room{1, "r"}, "absent"}) },
			func(int) error { _, err := m.Members(ctx, stale, Room{1, "r"}); return err },
			func(int) error { _, err := m.Count(ctx, stale, Room{1, "r"}); return err },
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
			t.Errorf("%d rooms and %d participants are left: %v", len(m.rooms), m.aging.Len(), slices.Collect(maps.Keys(m.rooms)))
		}
	})
}
