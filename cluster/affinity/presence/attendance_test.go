package presence

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// crossing is a write in progress. The store performs it at any moment before the write ends. If the write fails, the
// store may never perform it.
type crossing struct {
	write
	done bool
}

// world is an attendance with a slow store, and a simple model of which participants are present.
type world struct {
	here   *attendance
	store  map[Participant]bool
	want   map[Participant]bool
	sailed []*crossing
	now    time.Time
}

func (w *world) apply(c *crossing) {
	if c.gone() {
		delete(w.store, c.Participant)
	} else {
		w.store[c.Participant] = true
	}
	c.done = true
}

func (c *crossing) gone() bool { return c.write.gone }

func (w *world) end(i int, failed, carriedOut bool) {
	c := w.sailed[i]
	w.sailed = append(w.sailed[:i], w.sailed[i+1:]...)
	if !c.done && (!failed || carriedOut) {
		w.apply(c)
	}
	var err error
	if failed {
		err = errors.New("lost")
	}
	w.here.end(c.write, err)
}

func (w *world) begin(writes ...write) {
	for _, x := range writes {
		w.sailed = append(w.sailed, &crossing{write: x})
	}
}

// Writes reach the store in any order, and any write may fail. Once all writes have ended and failed writes have been
// repeated, the store has exactly the participants who are present, and attendance keeps no other participants.
func TestAttendanceAgreesWithStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{here: newAttendance(4), store: map[Participant]bool{}, want: map[Participant]bool{}, now: time.Unix(0, 0)}
		who := rapid.Custom(func(t *rapid.T) Participant {
			return Participant{Room{0, fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "room"))}, fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "who"))}
		})
		pick := func(t *rapid.T) int {
			if len(w.sailed) == 0 {
				t.Skip("no write is in progress")
			}
			return rapid.IntRange(0, len(w.sailed)-1).Draw(t, "write")
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				s := who.Draw(t, "participant")
				w.want[s] = true
				w.begin(w.here.join(s))
			},
			"leave": func(t *rapid.T) {
				s := who.Draw(t, "participant")
				delete(w.want, s)
				w.begin(w.here.leave(s, w.now))
			},
			"due":   func(*rapid.T) { w.begin(w.here.due(0, 4)...) },
			"debts": func(*rapid.T) { w.begin(w.here.debts(w.now)...) },
			"apply": func(t *rapid.T) { w.apply(w.sailed[pick(t)]) },
			"end": func(t *rapid.T) {
				w.end(pick(t), rapid.Bool().Draw(t, "failed"), rapid.Bool().Draw(t, "carried out"))
			},
			"": func(t *rapid.T) {
				if w.here.here != len(w.want) {
					t.Fatalf("%d are here, want %d", w.here.here, len(w.want))
				}
			},
		})
		for len(w.sailed) > 0 {
			w.end(0, false, true)
		}
		w.begin(w.here.debts(w.now)...)
		for len(w.sailed) > 0 {
			w.end(0, false, true)
		}
		if !maps.Equal(w.store, w.want) {
			t.Fatalf("the store has %v, want %v", w.store, w.want)
		}
		if len(w.here.owed) > 0 || w.here.gone != 0 || len(w.here.all()) != len(w.want) {
			t.Fatalf("kept: %d owed, %d gone, %v", len(w.here.owed), w.here.gone, w.here.all())
		}
	})
}

// After 100,000 participants have joined and left, attendance keeps none of them.
func TestAttendanceLeavesNothing(t *testing.T) {
	here := newAttendance(24)
	for i := range 100_000 {
		p := Participant{Room{0, fmt.Sprint(i % 1000)}, fmt.Sprint(i)}
		here.end(here.join(p), nil)
		here.end(here.leave(p, time.Unix(0, 0)), errors.New("down"))
	}
	if want := 100_000; here.gone < maxGone || here.gone > maxGone+1 || here.gone >= want {
		t.Errorf("%d departures are kept, want %d", here.gone, maxGone)
	}
	for _, w := range here.debts(time.Unix(0, 0)) {
		here.end(w, nil)
	}
	for i, slot := range here.slots {
		if slot != nil {
			t.Errorf("slot %d has a map of %d", i, len(slot))
		}
	}
	if here.owed != nil || here.gone != 0 || here.here != 0 {
		t.Errorf("left: %+v", here)
	}
}
