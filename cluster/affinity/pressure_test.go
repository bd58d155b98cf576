package affinity

import (
	"context"
	"encoding/json"
	"iter"
	"testing"
	"testing/synctest"
)

func pressureOf(load int64, rooms ...RoomLoad) *Pressure {
	return &Pressure{Node: "node-a", Load: load, Ceiling: 80, Capacity: 100, Over: load > 80, Heaviest: rooms}
}

func readPressures(values iter.Seq[Pressure]) <-chan Pressure {
	out := make(chan Pressure)
	go func() {
		defer close(out)
		for p := range values {
			out <- p
		}
	}()
	return out
}

func TestPressureJSON(t *testing.T) {
	b, err := json.Marshal(pressureOf(90, RoomLoad{"r", 9, 72}))
	want := `{"node":"node-a","load":90,"ceiling":80,"capacity":100,"over":true,"heaviest":[{"room":"r","size":9,"units":72}]}`
	if err != nil || string(b) != want {
		t.Errorf("got %s, %v\nwant %s", b, err, want)
	}
}

func TestPressureEqual(t *testing.T) {
	p := pressureOf(90, RoomLoad{"r", 9, 72})
	for _, o := range []Pressure{
		{"node-b", p.Load, p.Ceiling, p.Capacity, p.Over, p.Heaviest},
		{p.Node, 91, p.Ceiling, p.Capacity, p.Over, p.Heaviest},
		{p.Node, p.Load, 81, p.Capacity, p.Over, p.Heaviest},
		{p.Node, p.Load, p.Ceiling, 101, p.Over, p.Heaviest},
		{p.Node, p.Load, p.Ceiling, p.Capacity, false, p.Heaviest},
		{p.Node, p.Load, p.Ceiling, p.Capacity, p.Over, []RoomLoad{{"r", 9, 73}}},
		{p.Node, p.Load, p.Ceiling, p.Capacity, p.Over, nil},
	} {
		if p.equal(&o) || o.equal(p) {
			t.Errorf("%+v and %+v count as equal: readers miss the change", *p, o)
		}
	}
	if same := pressureOf(90, RoomLoad{"r", 9, 72}); !p.equal(same) {
		t.Error("two equal ones differ")
	}
}

func TestPressures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed pressures // the zero value must do
		values := readPressures(feed.watch(t.Context()))
		expect := func(what string, load int64) {
			t.Helper()
			synctest.Wait()
			select {
			case p, open := <-values:
				if !open && load != 0 || open && p.Load != load {
					t.Errorf("%s: got load %d (open %v), want %d", what, p.Load, open, load)
				}
			default:
				if load >= 0 {
					t.Errorf("%s: got nothing, want load %d", what, load)
				}
			}
		}
		const nothing, end = -1, 0
		expect("no value", nothing)
		feed.Set(pressureOf(10))
		expect("first value", 10)
		feed.Set(pressureOf(10))
		expect("equal value", nothing)
		feed.Set(pressureOf(20))
		synctest.Wait() // the reader is busy with 20
		feed.Set(pressureOf(30))
		feed.Set(pressureOf(40))
		expect("change", 20)
		expect("newest of two", 40)
		feed.Set(pressureOf(50))
		synctest.Wait()
		feed.Set(pressureOf(60))
		feed.Set(pressureOf(50))
		expect("change", 50)
		expect("back to the value that the reader has", nothing)
		feed.Set(pressureOf(70))
		feed.Close()
		expect("last value before Close", 70)
		expect("after Close", end)
		if p := <-readPressures(feed.watch(t.Context())); p.Load != 70 {
			t.Errorf("a late reader gets %d, want 70", p.Load)
		}
	})
}

func TestPressuresEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed pressures
		ctx, cancel := context.WithCancel(t.Context())
		seq := feed.watch(ctx)
		waiting := readPressures(seq)
		synctest.Wait()
		cancel()
		if p, more := <-waiting; more {
			t.Errorf("got %+v after the end of the context", p)
		}
		feed.Set(pressureOf(10))
		for p := range seq {
			t.Errorf("got %+v in a second loop after the end of the context", p)
		}
		seq = feed.watch(t.Context())
		for range 2 { // each loop starts over
			n := 0
			for range seq {
				n++
				break
			}
			if n != 1 {
				t.Error("a loop gets nothing")
			}
		}
	})
}
