package presence_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/cluster/affinity/presence"
)

// memoryReference is a simple model of Memory.
type memoryReference map[presence.Participant]time.Time

func (m memoryReference) members(now time.Time, stale time.Duration, room presence.Room) map[string]time.Duration {
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
		rooms := []presence.Room{{Name: "r"}, {Name: "s"}, {Partition: 1, Name: "r"}}
		// The struct hides the *testing.T, because rapid would call its Deadline method, which does not work in a
		// bubble.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			m, reference, ctx := presence.NewMemory(), memoryReference{}, context.Background()
			participants := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) presence.Participant {
				room := rapid.SampledFrom(rooms).Draw(t, "room")
				return presence.Participant{Room: room, Name: rapid.StringMatching("[a-e]").Draw(t, "who")}
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

// Count ignores stale members, even if there are more than a single call frees, and even if a member that joined
// earlier is not stale.
func TestMemoryManyStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, room := presence.NewMemory(), presence.Room{Name: "r"}
		var participants []presence.Participant
		for i := range 100 {
			participants = append(participants, presence.Participant{Room: room, Name: fmt.Sprint(i)})
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

// The store frees stale participants even if no call names their rooms. Each call frees only a few participants.
func TestMemoryCollectsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, ctx := presence.NewMemory(), t.Context()
		const stale, abandoned = time.Second, 10_000
		for i := range abandoned {
			if err := m.Heartbeat(ctx, stale, presence.Participant{Room: presence.Room{Name: fmt.Sprint("room-", i)}, Name: "ada"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(stale)
		room := presence.Room{Partition: 1, Name: "r"}
		calls := []func(i int) error{
			func(int) error { return m.Heartbeat(ctx, stale, presence.Participant{Room: room, Name: "bob"}) },
			func(int) error { return m.Leave(ctx, presence.Participant{Room: room, Name: "absent"}) },
			func(int) error { _, err := m.Members(ctx, stale, room); return err },
			func(int) error { _, err := m.Count(ctx, stale, room); return err },
		}
		for i := range abandoned / 16 {
			_, before := m.Held()
			if err := calls[i%len(calls)](i); err != nil {
				t.Fatal(err)
			}
			_, after := m.Held()
			if freed := before - after; freed > 20 || (before > 20 && freed < 15) {
				t.Fatalf("call %d freed %d of %d", i, freed, before)
			}
		}
		if rooms, participants := m.Held(); rooms != 1 || participants != 1 {
			t.Errorf("%d rooms and %d participants are left", rooms, participants)
		}
	})
}
