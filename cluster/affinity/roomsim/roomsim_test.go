package roomsim_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/roomsim"
)

// day is a day of rooms: how many start follows the hour, sizes follow Zipf's law, and participants join one after
// the other.
func day(seed uint64, rooms, largest int) (events []roomsim.Event) {
	random := rand.New(rand.NewPCG(seed, 2))
	zipf := rand.NewZipf(random, 1.1, 1, uint64(largest-2))
	for i := range rooms {
		var start time.Duration
		for { // most meetings start by day
			start = time.Duration(random.Int64N(int64(24 * time.Hour)))
			if random.Float64() < 0.55-0.45*math.Cos(2*math.Pi*start.Hours()/24) {
				break
			}
		}
		size := int(zipf.Uint64()) + 2
		name := fmt.Sprint("r-", i)
		for n := range size {
			events = append(events, roomsim.Event{At: start, Room: name, Participants: n + 1})
			start += time.Duration(random.Int64N(int64(20 * time.Second)))
		}
		end := start + 10*time.Minute + time.Duration(random.Int64N(int64(50*time.Minute)))
		for n := size; n > 0; n-- {
			events = append(events, roomsim.Event{At: end, Room: name, Participants: n - 1})
			end += time.Duration(random.Int64N(int64(5 * time.Second)))
		}
	}
	slices.SortStableFunc(events, func(a, b roomsim.Event) int { return cmp.Compare(a.At, b.At) })
	return events
}

func run(tb testing.TB, events []roomsim.Event, c roomsim.Config) roomsim.Result {
	tb.Helper()
	r, err := roomsim.Run(events, c)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// TestDay is a day of 20 nodes, with load reports up to 2 s and up to 5 s old.
func TestDay(t *testing.T) {
	for seed := range uint64(2) {
		events := day(seed, 30_000, 50)
		for _, report := range []time.Duration{2 * time.Second, 5 * time.Second} {
			c := roomsim.Config{Nodes: 20, Capacity: 25_000, Report: report, Seed: seed}
			off := run(t, events, c)
			c.Rebalance = 90
			on := run(t, events, c)
			t.Logf("seed %d, reports every %v: %d joins, %d rooms, peak %d units; fullest %d of %d units (%d without moves); uneven %.2f (%.2f); %d moves, at least %d",
				seed, report, on.Joins, on.Rooms, on.Peak.Units, on.Fullest.Units, c.Capacity, off.Fullest.Units, on.Uneven, off.Uneven, on.Moves, on.LeastMoves)
			switch {
			case on.MovedAgain > 0:
				t.Errorf("%d rooms moved twice within ten minutes", on.MovedAgain)
			case on.Uneven > 1.3:
				t.Errorf("the fullest node carried %.2f times the mean", on.Uneven)
			case float64(on.Moves) > 1.2*float64(on.LeastMoves):
				t.Errorf("%d moves; at least %d were necessary", on.Moves, on.LeastMoves)
			case off.Moves > 0:
				t.Errorf("%d moves without Rebalance", off.Moves)
			case on.Moves == 0:
				t.Error("no room moved; the day is too quiet to test anything")
			}
		}
	}
}

func TestReadTrace(t *testing.T) {
	events, err := roomsim.ReadTrace(strings.NewReader("time,room,participants,zone\n10,a,1,eu\n10.5,b,2\n2026-05-04T10:00:00Z,a,0,\n"))
	if err != nil || len(events) != 3 || events[0] != (roomsim.Event{Room: "a", Participants: 1, Zone: "eu"}) || events[1].At != 500*time.Millisecond {
		t.Errorf("read %+v, %v", events, err)
	}
	for text, want := range map[string]string{
		"":                   "empty",
		"1,a,1\n0,a,2\n":     "line 2: the time is before",
		"1,a,1\n2,a,x\n":     `line 2: "x" participants`,
		"1,a,1\nnow,a,2\n":   `line 2: time "now"`,
		"1,a,1\n2,,2\n":      "line 2: the room has no name",
		"1,a,1\n2,a\n":       "line 2: 2 fields",
		"1,a,1\n2,\"a,1\n":   "line 2",
		"1,a,1\n2,a,-1\n":    `line 2: "-1" participants`,
		"1,a,1\n-2,a,1\n":    `line 2: time "-2"`,
		"time,room,people\n": "empty",
	} {
		if _, err := roomsim.ReadTrace(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// The report names a room that a single node cannot carry.
func TestNeeded(t *testing.T) {
	events := day(1, 1000, 20)
	c := roomsim.Config{Capacity: 1000}
	r, err := roomsim.Needed(events, c, nil)
	if err != nil || r.Refused > 0 || r.Fullest.Units > c.Capacity || r.Peak.Units > int64(r.Nodes)*c.Capacity {
		t.Errorf("%+v, %v", r, err)
	}
	c.Nodes = r.Nodes - 1
	if r := run(t, events, c); r.Refused == 0 && r.Fullest.Units <= c.Capacity {
		t.Errorf("%d nodes are enough, too", c.Nodes)
	}
	if _, err := roomsim.Needed([]roomsim.Event{{Room: "big", Participants: 100}}, c, nil); err == nil || !strings.Contains(err.Error(), `"big"`) {
		t.Errorf("a room of 9,900 units on nodes of 1,000: %v", err)
	}
}

// With a hard ceiling, rooms are refused, and no node gets a room beyond it.
func TestHardCeiling(t *testing.T) {
	var events []roomsim.Event
	for i := range 100 {
		events = append(events, roomsim.Event{Room: fmt.Sprint(i), Participants: 4}) // 12 units each, all at once
	}
	r := run(t, events, roomsim.Config{Nodes: 5, Capacity: 100, HardCeiling: 100})
	if r.Refused != 100-5*8 || r.Fullest.Units != 96 {
		t.Errorf("refused %d rooms, and the fullest node carries %d units; want 60 and 96", r.Refused, r.Fullest.Units)
	}
}

// Zones are preferred.
func TestZones(t *testing.T) {
	var events []roomsim.Event
	for i := range 50 {
		events = append(events, roomsim.Event{At: time.Duration(i) * time.Second, Room: fmt.Sprint(i), Participants: 2, Zone: "b"})
	}
	r := run(t, events, roomsim.Config{Nodes: 2, Capacity: 1000, Zones: []string{"a", "b"}})
	if r.Fullest.Units != 100 || r.Fullest.Node != "n-2" {
		t.Errorf("the fullest node is %+v; want all 100 units on n-2", r.Fullest)
	}
}

func TestChecks(t *testing.T) {
	_, err := roomsim.Run(nil, roomsim.Config{SoftCeiling: 90, HardCeiling: 80, Rebalance: 85, Report: -1})
	for _, want := range []string{"0 nodes", "capacity of 0", "hard ceiling (80 %)", "Rebalance (85 %)", "report every -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if _, err := roomsim.Run([]roomsim.Event{{At: 2, Room: "a"}, {At: 1, Room: "a"}}, roomsim.Config{Nodes: 1, Capacity: 1}); err == nil {
		t.Error("events out of order are accepted")
	}
}

// BenchmarkRun simulates a million joins.
func BenchmarkRun(b *testing.B) {
	events := day(1, 120_000, 50)
	joins := 0
	for b.Loop() {
		joins = run(b, events, roomsim.Config{Nodes: 50, Capacity: 20_000, Rebalance: 90}).Joins
	}
	b.ReportMetric(float64(joins), "joins")
}
