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

func TestPressuresNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed pressures // the zero value must do
		values := readPressures(feed.watch(t.Context()))
		expect := func(what string, load int64) {
			t.Helper()
			synctest.Wait()
			select {
			case p := <-values:
				if p.Load != load {
					t.Errorf("%s: got load %d, want %d", what, p.Load, load)
				}
			default:
				if load >= 0 {
					t.Errorf("%s: nothing comes, want load %d", what, load)
				}
			}
		}
		expect("nothing published", -1)
		feed.Set(pressureOf(10))
		expect("the first value", 10)
		feed.Set(pressureOf(10))
		expect("the same again", -1)
		feed.Set(pressureOf(20))
		synctest.Wait() // the reader is busy with 20
		feed.Set(pressureOf(30))
		feed.Set(pressureOf(40))
		expect("a change", 20)
		expect("the newest of two", 40)
		feed.Set(pressureOf(50))
		synctest.Wait()
		feed.Set(pressureOf(60))
		feed.Set(pressureOf(50))
		expect("there", 50)
		expect("back while the reader was busy", -1)

		late := readPressures(feed.watch(t.Context()))
		if p := <-late; p.Load != 50 {
			t.Errorf("a late reader gets %d first, want 50", p.Load)
		}
		feed.Set(pressureOf(70))
		feed.Close()
		feed.Close()
		feed.Set(pressureOf(80))
		expect("the last before close", 70)
		if p, more := <-values; more {
			t.Errorf("after the last value: %+v", p)
		}
		if p := <-late; p.Load != 70 {
			t.Errorf("the late reader ends at %d, want 70", p.Load)
		}
		if p, more := <-late; more {
			t.Errorf("after the last value: %+v", p)
		}
	})
}

func TestPressuresEnd(t *testing.T) {
	var feed pressures
	feed.Set(pressureOf(10))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for p := range feed.watch(done) {
		t.Errorf("got %+v although the context is done", p)
	}
	seq := feed.watch(t.Context())
	for range 2 { // each loop starts over
		loops := 0
		for range seq {
			loops++
			break
		}
		if loops != 1 {
			t.Error("a loop gets nothing")
		}
	}
	var none pressures
	none.Close()
	for p := range none.watch(t.Context()) {
		t.Errorf("got %+v of a feed that was closed without a value", p)
	}
	synctest.Test(t, func(t *testing.T) {
		var feed pressures
		ctx, cancel := context.WithCancel(t.Context())
		values := readPressures(feed.watch(ctx))
		synctest.Wait()
		cancel()
		if p, more := <-values; more {
			t.Errorf("got %+v", p)
		}
	})
}
