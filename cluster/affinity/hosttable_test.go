package affinity

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/pincache"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

func hostingOf(room string) *Hosting {
	self := lease.Incarnation{Node: "a", Number: 1}
	return &Hosting{
		r:    new(Resolver),
		room: room,
		self: self,
		lost: make(chan struct{}),
		pin:  pinstore.Pin{Incarnation: self, Epoch: 7, Size: 2},
		use:  use{need: mesh(2)},
		kept: mesh(2),
	}
}

func newHostTable() *hostTable {
	return &hostTable{cache: pincache.New(100)}
}

// A store's answer from before the end of a hosting does not restart the hosting. This holds even if the
// store has confirmed the deletion of the pin and another caller asks before the old answer is processed,
// when the cache contains the pin again.
func TestHostTableLateAnswer(t *testing.T) {
	table := newHostTable()
	first := hostingOf("r")
	ends := table.endsOf("r").Load()
	late := table.cache.Begin("r", 0)
	if got, err := table.open(first, 0, ends); got != first || err != nil {
		t.Fatal(got, err)
	}
	if _, ok := table.release(first); !ok {
		t.Fatal("not released")
	}
	deleting := table.cache.Begin("r", 0)
	table.cache.Learn("r", deleting, pinstore.Pin{}, time.Time{})
	table.cache.Begin("r", 0)
	table.cache.Learn("r", late, first.pin, time.Now().Add(time.Minute))
	if got, err := table.open(hostingOf("r"), 0, ends); !errors.Is(err, errHostingEnded) {
		t.Errorf("the hosting that has ended goes on: %p, %v", got, err)
	}
}

func TestHostTableOpen(t *testing.T) {
	table, now := newHostTable(), time.Now()
	table.fence(1)
	h := hostingOf("r")
	if got, err := table.open(h, 1, 0); got != h || err != nil || table.get("r") != h {
		t.Fatalf("opened %p, %v; want %p", got, err, h)
	}
	if got, err := table.open(hostingOf("r"), 1, 0); got != h || err != nil {
		t.Errorf("opened twice: %p, %v; want the first, %p", got, err, h)
	}
	if _, err := table.open(hostingOf("s"), 0, 0); !errors.Is(err, ErrFenced) {
		t.Errorf("confirmed before a fence: %v", err)
	}
	if n := table.fence(1); n != 0 || h.err != nil {
		t.Errorf("the same fence ends %d hostings", n)
	}
	if n := table.fence(2); n != 1 || !errors.Is(h.err, ErrFenced) || table.count() != 0 {
		t.Errorf("a fence ends %d hostings: %v", n, h.err)
	}
	if n := table.fence(1); n != 0 || table.fences.Load() != 2 { // a reader that is late
		t.Errorf("an earlier fence count is taken: %d", table.fences.Load())
	}
	ends := table.endsOf("r").Load()
	later, _ := table.open(hostingOf("r"), 2, ends)
	if table.end(h, ErrReleased) || table.get("r") != later {
		t.Error("a hosting that has ended ends its successor")
	}
	if pin, ok := table.release(later); !ok || pin != later.pin || table.get("r") != nil {
		t.Errorf("released: %+v, %v", pin, ok)
	}
	if _, err := table.open(hostingOf("r"), 2, ends); !errors.Is(err, errHostingEnded) {
		t.Errorf("opened by the pin of a hosting that was released: %v", err)
	}
	known := hostingOf("r")
	known.pin.Epoch++
	table.cache.Learn("r", table.cache.Begin("r", 0), known.pin, now)
	if got, err := table.open(known, 2, ends); got != known || err != nil {
		t.Errorf("opened by the pin of the next hosting, which is known: %v", err)
	}
	if _, ok, _ := table.releaseIdle(known, time.Second, now.Add(time.Hour)); !ok || table.cache.Least("r") != known.pin.Epoch+1 {
		t.Errorf("idle, released %t: the least epoch is %d after %d", ok, table.cache.Least("r"), known.pin.Epoch)
	}
	unconfirmed := hostingOf("r")
	unconfirmed.pin.Epoch = 0
	if got, err := table.open(unconfirmed, 2, ends); got != unconfirmed || err != nil {
		t.Errorf("opened without the store: %v", err)
	}
	table.end(unconfirmed, ErrLapsed)
	last, _ := table.open(hostingOf("r"), 2, table.endsOf("r").Load())
	if table.void("r", last.pin) {
		t.Error("the pin of a room that is hosted here is void")
	}
	for i, why := range []error{ErrFenced, ErrClosed} { // the agent ends, then the resolver
		if n := table.close(why); n != 1-i || !errors.Is(last.err, ErrFenced) {
			t.Errorf("close ends %d hostings: %v", n, last.err)
		}
		if _, err := table.open(hostingOf("s"), 2, 0); !errors.Is(err, why) {
			t.Errorf("opened after the end: %v, want %v", err, why)
		}
	}
}

func TestHostTableDue(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		change      func(h *Hosting)
		write, read int
		err         error
	}{
		"quiet":       {change: func(*Hosting) {}},
		"unconfirmed": {change: func(h *Hosting) { h.pin.Epoch = 0 }, write: 1},
		"old":         {change: func(h *Hosting) { h.written = now.Add(-time.Minute - 1) }, write: 1},
		"grown":       {change: func(h *Hosting) { h.need = mesh(6) }, write: 1},
		"to verify":   {change: func(h *Hosting) { h.verify = now.Add(-1) }, read: 1},
		"lapsed":      {change: func(h *Hosting) { h.lapse, h.touched = time.Hour, now.Add(-time.Hour-1) }, err: ErrLapsed},
	} {
		table := newHostTable()
		h, _ := table.open(hostingOf("r"), 0, 0)
		h.written, h.touched = now, now
		c.change(h)
		write, read, _ := table.due(now, time.Minute, 10, 0)
		if len(write) != c.write || len(read) != c.read || !errors.Is(h.err, c.err) {
			t.Errorf("%s: %d to write, %d to read, %v", name, len(write), len(read), h.err)
		}
		if write, read, _ = table.due(now, time.Minute, 0, 0); len(write)+len(read) != 0 {
			t.Errorf("%s: over the limit", name)
		}
	}
}

// If the store has stopped answering about several pins, the node only asks for one of them until the store answers
// again.
func TestHostTableSilent(t *testing.T) {
	now := time.Now()
	table := newHostTable()
	var hosted []*Hosting
	for i := range 4 {
		h, _ := table.open(hostingOf(fmt.Sprint(i)), 0, 0)
		h.written, h.touched = now, now
		hosted = append(hosted, h)
	}
	want := func(what string, read int, probe, unconfirmed bool) {
		t.Helper()
		_, due, asked := table.due(now.Add(1), time.Minute, 10, 1)
		if len(due) != read || (asked != nil) != probe || table.unconfirmed(1) != unconfirmed {
			t.Errorf("%s: %d to read, probe %v, unconfirmed %v", what, len(due), asked != nil, table.unconfirmed(1))
		}
	}
	table.take(hosted[0], answer{res: pinstore.Result{Pin: hosted[0].pin}, asked: now, generation: 1}, 1)
	for range silentAfter - 1 {
		for _, h := range hosted[1:] {
			table.unanswered(h, 1, now)
		}
	}
	want("some calls", 3, false, true)
	for _, h := range hosted[1:] {
		table.unanswered(h, 1, now)
	}
	want("silent", 0, true, false)
	table.take(hosted[1], answer{res: pinstore.Result{Pin: hosted[1].pin}, asked: now, generation: 1}, 1)
	want("an answer", 2, false, true)
	for range silentAfter {
		table.unanswered(hosted[2], 1, now)
	}
	want("silent again, but for one", 1, true, true)
	if _, read, probe := table.due(now.Add(1), time.Minute, 10, 2); len(read) != 2 || probe != nil || !table.unconfirmed(2) {
		t.Errorf("after another loss: %d to read, probe %v", len(read), probe)
	}
}

func TestHostTableTake(t *testing.T) {
	other := pinstore.Pin{Incarnation: lease.Incarnation{Node: "b", Number: 1}, Epoch: 9, Size: 2}
	now := time.Now()
	table := newHostTable()
	h, _ := table.open(hostingOf("r"), 0, 0)
	h.pin.Epoch = 0
	mine := pinstore.Pin{Incarnation: h.self, Epoch: 8, Size: 5}
	first := answer{
		op:         pinstore.Op{Set: mine},
		res:        pinstore.Result{Pin: mine, Done: true, Fresh: time.Second},
		asked:      now,
		generation: 3,
	}
	if is := table.take(h, first, 3); is != (taken{}) {
		t.Errorf("first answer: %+v", is)
	}
	if h.pin != mine || h.written != now || h.generation != 3 || h.verify != now.Add(5*time.Second) {
		t.Errorf("after the first answer: %+v", h)
	}
	if is := table.take(h, answer{res: pinstore.Result{Pin: other}}, 3); is != (taken{wasSure: true}) || h.pin != mine {
		t.Errorf("pinned elsewhere: %+v, %+v", is, h.pin)
	}
	if is := table.take(h, answer{res: pinstore.Result{Pin: other}}, 4); is.wasSure {
		t.Error("sure after the store was lost")
	}
	table.end(h, ErrReleased)
	if is := table.take(h, answer{res: pinstore.Result{Pin: mine}}, 4); !is.over {
		t.Error("over is not reported")
	}
}

func TestWorklist(t *testing.T) {
	w := newWorklist[int]()
	w.add(1, 2, 2, 3)
	<-w.wake
	if got := w.take(2); len(got) != 2 {
		t.Errorf("took %v", got)
	}
	<-w.wake // more is left
	if got := w.take(2); len(got) != 1 {
		t.Errorf("then took %v", got)
	}
	select {
	case <-w.wake:
		t.Error("woken for nothing")
	default:
	}
}

func mesh(size int) capacity.Need { return needOf(Demand{Size: size}) }

// A participant who has seen a fence must never join a hosting from before the fence, even while rooms end and start
// again and the keeper maintains them. Afterwards all readers of the table must see the same rooms.
func TestHostTableConcurrent(t *testing.T) {
	const rooms, fences = 8, 30
	table := newHostTable()
	var fenced atomic.Uint64 // of the agent
	var joins atomic.Uint64
	var done atomic.Bool
	var wait sync.WaitGroup
	loop := func(step func(room string)) {
		wait.Go(func() {
			for i := 0; !done.Load(); i++ {
				step(strconv.Itoa(i % rooms))
			}
		})
	}
	for range 4 {
		loop(func(room string) { // a participant joins, as in Resolver.host
			joins.Add(1)
			count := fenced.Load()
			table.fence(count)
			if h := table.get(room); h != nil {
				if h.generation < count {
					t.Errorf("joined a hosting of fence %d after fence %d", h.generation, count)
				}
				_ = h.join(mesh(3))
				return
			}
			h := hostingOf(room)
			h.generation = count
			_, _ = table.open(h, count, 0)
		})
	}
	loop(func(room string) {
		if h := table.get(room); h != nil {
			table.end(h, ErrReleased)
		}
	})
	loop(func(string) { // the keeper
		write, _, _ := table.due(time.Now(), time.Hour, rooms, 0)
		table.ops(write, func(h *Hosting) pinstore.Op { return pinstore.Op{Set: h.needed().Pin(h.pin)} })
		table.needs()
	})
	for range fences {
		fenced.Add(1)
		for before := joins.Load(); joins.Load() < before+50; {
			runtime.Gosched()
		}
	}
	done.Store(true)
	wait.Wait()
	table.fence(fenced.Load())
	names := table.names()
	for i := range rooms {
		room := strconv.Itoa(i)
		if h := table.get(room); (h != nil) != slices.Contains(names, room) {
			t.Errorf("room %s is hosted: %v; the names are %q", room, h != nil, names)
		}
	}
}

// A hosting that only a reservation holds ends with the reservation. A participant who joins it before keeps it, and a
// participant who joins later gets another hosting.
func TestHeldHosting(t *testing.T) {
	for _, joins := range []bool{true, false} {
		table := newHostTable()
		h := hostingOf("r")
		h.held = true
		if _, err := table.open(h, 0, 0); err != nil {
			t.Fatal(err)
		}
		over, holds := table.reserve(map[string]int64{"r": 5}, true)
		if len(over) != 0 || !holds || h.needed().Ahead != 5 {
			t.Errorf("reserved: %v, %v, need %+v", over, holds, h.needed())
		}
		if over, holds = table.reserve(nil, false); len(over) != 0 || !holds {
			t.Errorf("over, and the store does not answer: %v, %v", over, holds)
		}
		if joins {
			if err := h.join(mesh(3)); err != nil {
				t.Fatal(err)
			}
		}
		over, holds = table.reserve(nil, true)
		if _, released := over[h]; released == joins || holds || (table.get("r") == h) != joins {
			t.Errorf("joined %v: %v, %v", joins, over, holds)
		}
		if err := h.join(mesh(3)); (err == nil) != joins || !joins && !errors.Is(err, errHostingEnded) {
			t.Errorf("joined %v: %v", joins, err)
		}
	}
}
