package affinitytest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/roomname"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func readsNothing(p *pins) {
	if r := p.do(p.a, pinstore.Op{}); r.Pin != (pinstore.Pin{}) {
		p.Errorf("pin %v", r.Pin)
	}
}

func firstClaimWins(p *pins) {
	op := claimOf(p.first)
	op.Set.Size = 50
	pin := p.succeed(p.a, op, p.first)
	if pin.Size != 50 || pin.Epoch == 0 || pin.Epoch >= 1<<53 {
		p.Errorf("pin %v; want size 50 and an epoch from 1 to 2^53-1", pin)
	}
	p.fail(p.b, claimOf(p.second), pin)
	p.fail(p.b, claimOf(p.again), pin)
	p.fail(p.a, claimOf(p.first), pin) // a caller repeats its claim after the answer was lost
}

// If several callers claim a room concurrently, exactly one claim wins and every caller receives the winning
// pin.
func claimsRace(p *pins) {
	stores := []pinstore.Store{p.a, p.b, p.instance(), p.instance()}
	for round := range 10 {
		p.race(stores, 200, pinstore.Op{Room: fmt.Sprint(p.room, " ", round)})
	}
}

func replacesRace(p *pins) {
	p.race([]pinstore.Store{p.a, p.b}, 50, pinstore.Op{Room: p.room, If: p.claim(p.a, p.first)})
}

// race performs an op from many callers concurrently, each with its own Set.
func (p *pins) race(stores []pinstore.Store, callers int, op pinstore.Op) {
	p.Helper()
	results := make([]pinstore.Result, callers)
	op.Partition, op.TTL = home, long
	var wg sync.WaitGroup
	for i := range callers {
		own := op
		own.Set = pinstore.Pin{Incarnation: lease.Incarnation{Node: p.second.Node, Number: uint64(i) + 1}, Size: i}
		wg.Go(func() { results[i] = stores[i%len(stores)].Swap(p.Context(), own)[0] })
	}
	wg.Wait()
	winners := 0
	for i, r := range results {
		switch {
		case r.Err != nil || r.Pin != results[0].Pin:
			p.Fatalf("some got %v, some %v (%v)", results[0].Pin, r.Pin, r.Err)
		case r.Done && r.Pin.Size != i:
			p.Fatalf("caller %d won as well, with %v", i, r.Pin)
		case r.Done:
			winners++
		}
	}
	if winners != 1 {
		p.Fatalf("%d winners", winners)
	}
}

func replaceCompares(p *pins) {
	pin := p.claim(p.a, p.first)
	set := pinstore.Pin{Incarnation: p.second, Size: 7}
	for _, stands := range []pinstore.Pin{
		{},
		{Incarnation: p.second},
		{Incarnation: p.again, Epoch: pin.Epoch},
		{Incarnation: p.first, Epoch: pin.Epoch + 1},
		{Incarnation: p.first, Epoch: pin.Epoch - 1},
	} {
		p.fail(p.b, pinstore.Op{If: stands, Set: set, TTL: long}, pin)
	}
	moved := p.succeed(p.b, pinstore.Op{If: pin, Set: set, TTL: long}, p.second)
	if moved.Epoch <= pin.Epoch || moved.Size != 7 {
		p.Fatalf("%v after %v; want a greater epoch and size 7", moved, pin)
	}
	p.fail(p.a, pinstore.Op{If: pin, Set: pinstore.Pin{Incarnation: p.again}, TTL: long}, moved)
	again := p.succeed(p.a, pinstore.Op{If: pinstore.Pin{Incarnation: p.second}, Set: pinstore.Pin{Incarnation: p.first}, TTL: long}, p.first)
	p.fail(p.a, pinstore.Op{If: pin, Set: pinstore.Pin{Incarnation: p.second}, TTL: long}, again) // again has another epoch
}

func refreshKeepsEpoch(p *pins) {
	pin := p.claim(p.a, p.first)
	refreshed := p.succeed(p.b, pinstore.Op{If: pin, Set: pinstore.Pin{Incarnation: p.first, Size: 9}, TTL: long}, p.first)
	if refreshed.Epoch != pin.Epoch || refreshed.Size != 9 {
		p.Errorf("%v after %v; want the same epoch and size 9", refreshed, pin)
	}
	// The node was replaced but has not noticed yet.
	moved := p.succeed(p.b, pinstore.Op{If: pin, Set: pinstore.Pin{Incarnation: p.second}, TTL: long}, p.second)
	p.fail(p.a, pinstore.Op{If: pin, Set: pinstore.Pin{Incarnation: p.first}, TTL: long}, moved)
}

// Everyone who reads a room's pin sees what the room needs. The needs are stored only in the pin.
func needsAreKept(p *pins) {
	is := func(what string, got pinstore.Pin, want string) {
		p.Helper()
		if got.Needs != want {
			p.Errorf("%s: needs %q, want %q", what, got.Needs, want)
		}
	}
	const needs, other = "publishers=1&require=recorder%3Dyes", "units=7"
	op := claimOf(p.first)
	op.Set.Size, op.Set.Needs = 1001, needs
	pin := p.succeed(p.a, op, p.first)
	is("claimed", pin, needs)
	p.fail(p.b, claimOf(p.second), pin)
	is("read", p.read(p.b), needs)
	found, err := p.b.Index(p.Context(), []placement.Partition{home}, func(at lease.Incarnation) bool { return at == p.first }, 10)
	if err != nil || len(found) != 1 || found[0].Pin != pin {
		p.Errorf("the index has %+v, %v; want %v", found, err, pin)
	}
	moved := p.succeed(p.b, pinstore.Op{If: pin, Set: pinstore.Pin{Incarnation: p.second, Needs: other}, TTL: long}, p.second)
	is("moved", moved, other)
	is("moved, read", p.read(p.a), other)
	p.fail(p.a, pinstore.Op{If: pin, Set: pinstore.Pin{Incarnation: p.first, Needs: needs}, TTL: long}, moved)
	is("refused", p.read(p.b), other)
	moved = p.succeed(p.a, pinstore.Op{If: moved, Set: pinstore.Pin{Incarnation: p.second}, TTL: long}, p.second)
	is("refreshed without", moved, "")
	is("refreshed without, read", p.read(p.b), "")
	moved = p.succeed(p.a, pinstore.Op{If: moved, Set: pinstore.Pin{Incarnation: p.second, Needs: needs}, TTL: long}, p.second)
	p.succeed(p.a, pinstore.Op{If: moved}, lease.Incarnation{})
	is("claimed after a release", p.claim(p.b, p.first), "")
}

// Concurrent claims by several users do not exceed a limit. A claim that would exceed the limit leaves
// nothing behind.
func limitHolds(p *pins) {
	stores := []pinstore.Store{p.a, p.b}
	op := claimOf(p.first)
	op.Partition, op.Limit, op.Units, op.Window = home, 100, 10, 30*time.Second
	const rooms = 40
	results := make([]pinstore.Result, rooms)
	var wg sync.WaitGroup
	for i := range rooms {
		own := op
		own.Room = fmt.Sprint(p.room, " ", i)
		wg.Go(func() { results[i] = stores[i%2].Swap(p.Context(), own)[0] })
	}
	wg.Wait()
	done, first := 0, -1
	for i, r := range results {
		if full := (pinstore.Result{Full: true, Counted: 100}); !r.Done && r != full {
			p.Errorf("room %d: %+v, want %+v", i, r, full)
		}
		if r.Done {
			done, first = done+1, i
		}
	}
	found, err := p.a.Index(p.Context(), []placement.Partition{home}, func(at lease.Incarnation) bool { return at == p.first }, 100)
	if err != nil || done != 10 || len(found) != 10 {
		p.Errorf("10 rooms of 10 units reach a limit of 100: %d are done, the index has %d (%v)", done, len(found), err)
	}
	op.Room = fmt.Sprint(p.room, " ", first)
	if r := p.b.Swap(p.Context(), op)[0]; r.Done || r.Full || r.Pin != results[first].Pin {
		p.Errorf("a claim of a room that has a pin: %+v", r)
	}
}

// If a node has headroom for a room only once and several callers claim that room for the node concurrently,
// one claim wins. No claim exceeds the limit.
func limitCountsARoomOnce(p *pins) {
	stores := []pinstore.Store{p.a, p.b}
	const rooms, claims = 50, 4
	for i := range rooms {
		op := claimOf(lease.Incarnation{Node: p.first.Node, Number: p.first.Number + uint64(i)})
		op.Partition, op.Room, op.Limit, op.Units, op.Window = home, fmt.Sprint(p.room, " ", i), 15, 10, 30*time.Second
		var results [claims]pinstore.Result
		var wg sync.WaitGroup
		for j := range claims {
			wg.Go(func() { results[j] = stores[j%2].Swap(p.Context(), op)[0] })
		}
		wg.Wait()
		done := 0
		for _, r := range results {
			if r.Err != nil || r.Full || r.Pin != results[0].Pin || r.Pin.Incarnation != op.Set.Incarnation {
				p.Errorf("room %d: %+v, want the pin of one claim: %+v", i, r, results[0])
			}
			if r.Done {
				done++
			}
		}
		if done != 1 {
			p.Errorf("room %d: %d claims are done, want 1", i, done)
		}
	}
}

// If a replacement would exceed the limit, the pin stays as it is, because its room has a host.
func limitKeepsThePin(p *pins) {
	pin := p.claim(p.a, p.first)
	op := pinstore.Op{Partition: home, Room: p.room, If: pin, Set: pinstore.Pin{Incarnation: p.second, Needs: "units=7"}, TTL: long}
	op.Limit, op.Units, op.Window = 9, 10, 30*time.Second
	r := p.a.Swap(p.Context(), op)[0]
	if r.Err != nil || !r.Full || r.Done || r.Pin != pin || p.read(p.b) != pin {
		p.Errorf("a replacement beyond the limit: %+v", r)
	}
	op.If, op.Limit = r.Pin, 10
	if r := p.b.Swap(p.Context(), op)[0]; r.Err != nil || !r.Done || r.Full || r.Pin.Incarnation != p.second {
		p.Errorf("a replacement within the limit: %+v", r)
	}
}

func releaseCompares(p *pins) {
	pin := p.claim(p.a, p.first)
	p.fail(p.b, pinstore.Op{If: pinstore.Pin{Incarnation: p.again}}, pin)
	p.fail(p.b, pinstore.Op{If: pinstore.Pin{Incarnation: p.first, Epoch: pin.Epoch + 1}}, pin)
	p.succeed(p.b, pinstore.Op{If: pin}, lease.Incarnation{})
	if got := p.read(p.a); got != (pinstore.Pin{}) {
		p.Errorf("%v stands after the release", got)
	}
	p.fail(p.b, pinstore.Op{If: pin}, pinstore.Pin{})
	p.claim(p.a, p.second)
}

func epochGrows(p *pins) {
	pin := p.claim(p.a, p.first)
	grow := func(op pinstore.Op, l lease.Incarnation, above uint64) {
		p.Helper()
		op.Set.Incarnation, op.TTL = l, long
		next := p.succeed(p.b, op, l)
		if next.Epoch <= above || next.Epoch >= 1<<53 {
			p.Fatalf("epoch %d; want one above %d and below 2^53", next.Epoch, above)
		}
		pin = next
	}
	for range 5 {
		p.succeed(p.a, pinstore.Op{If: pin}, lease.Incarnation{})
		grow(pinstore.Op{}, p.first, pin.Epoch)
		grow(pinstore.Op{If: pin}, p.second, pin.Epoch)
	}
	// The store may have been restored to older data, so the pinned node can have a greater epoch than the
	// store.
	own := pin.Epoch + 1
	grow(pinstore.Op{If: pin, Set: pinstore.Pin{Epoch: own}}, pin.Incarnation, own)
	// The store may have lost its data or its clock may be behind, but the callers still know the epoch.
	known := pin.Epoch + 1_000_000_000
	grow(pinstore.Op{If: pin, Set: pinstore.Pin{Epoch: known}}, p.again, known)
	p.succeed(p.a, pinstore.Op{If: pin}, lease.Incarnation{})
	known = pin.Epoch + 1_000_000_000
	grow(pinstore.Op{Set: pinstore.Pin{Epoch: known}}, p.first, known)
	grow(pinstore.Op{If: pinstore.Pin{Incarnation: p.first}}, p.second, known)
}

func expires(p *pins) {
	op := claimOf(p.first)
	op.TTL = brief
	claimed := time.Now()
	pin := p.succeed(p.a, op, p.first)
	p.eventually(func() error {
		if got := p.read(p.b); got != (pinstore.Pin{}) {
			return fmt.Errorf("%v still stands", got)
		}
		return nil
	})
	p.lasted(claimed)
	p.fail(p.a, pinstore.Op{If: pin, Set: pinstore.Pin{Incarnation: p.first}, TTL: long}, pinstore.Pin{})
	if next := p.claim(p.b, p.second); next.Epoch <= pin.Epoch {
		p.Errorf("epoch %d after %d", next.Epoch, pin.Epoch)
	}
}

func refreshProlongs(p *pins) {
	op := claimOf(p.first)
	op.TTL = brief
	pin := p.succeed(p.a, op, p.first)
	p.succeed(p.a, pinstore.Op{If: pin, Set: pin, TTL: long}, p.first)
	op.Room = p.room + " meanwhile"
	p.succeed(p.a, op, p.first)
	p.eventually(func() error {
		if r := p.do(p.b, pinstore.Op{Room: op.Room}); r.Pin != (pinstore.Pin{}) {
			return fmt.Errorf("%v still stands", r.Pin)
		}
		return nil
	})
	if got := p.read(p.b); got != pin {
		p.Errorf("%v stands; want %v", got, pin)
	}
	if found := p.index(p.b, p.first); len(found) != 1 || found[p.room] != pin.Epoch {
		p.Errorf("index: %v; want %q", found, p.room)
	}
}

func batch(p *pins) {
	const n = 500
	taken := p.claim(p.a, p.second)
	ops := make([]pinstore.Op, n, n+1)
	for i := range ops {
		ops[i] = pinstore.Op{
			Partition: placement.Partition(i % 3), Room: fmt.Sprint(p.room, " ", i),
			Set: pinstore.Pin{Incarnation: p.first, Size: i}, TTL: long,
		}
	}
	claimed := p.all(p.a, append(ops, pinstore.Op{Partition: home, Room: p.room, Set: pinstore.Pin{Incarnation: p.first}, TTL: long})...)
	if r := claimed[n]; r.Done || r.Pin != taken {
		p.Fatalf("the room that was taken: done %t, %v", r.Done, r.Pin)
	}
	for i := range ops {
		if r := claimed[i]; !r.Done || r.Pin.Size != i || r.Pin.Incarnation != p.first {
			p.Fatalf("room %d: done %t, %v", i, r.Done, r.Pin)
		}
	}
	batchReplaces(p, ops, claimed[:n])
}

// batchReplaces replaces all pins in one batch. Every fifth op has a wrong epoch, so it must fail.
func batchReplaces(p *pins, ops []pinstore.Op, claimed []pinstore.Result) {
	for i := range ops {
		ops[i].If, ops[i].Set = claimed[i].Pin, pinstore.Pin{Incarnation: p.second, Size: i}
		if i%5 == 0 {
			ops[i].If.Epoch++
		}
	}
	for i, r := range p.all(p.b, ops...) {
		want := pinstore.Result{Pin: pinstore.Pin{Incarnation: p.second, Epoch: r.Pin.Epoch, Size: i}, Done: true, Fresh: r.Fresh}
		if i%5 == 0 {
			want.Pin, want.Done = claimed[i].Pin, false
		}
		if r != want || (r.Done && r.Pin.Epoch <= claimed[i].Pin.Epoch) {
			p.Fatalf("room %d: %+v after %+v", i, r, claimed[i])
		}
	}
}

func roomNames(p *pins) {
	for _, name := range []string{
		" ", "r", "a|b|c|1", "17", ":r:", "a:b", "50%", `"quoted"`, `back\slash`, "日本語 🐦", "[x]?^",
		strings.Repeat("x", roomname.MaxBytes-20),
	} {
		p.room = fmt.Sprintf("%s%d", name, time.Now().UnixNano())
		pin := p.claim(p.a, p.first)
		if got := p.read(p.b); got != pin {
			p.Errorf("room %.40q: %v stands; want %v", name, got, pin)
		}
		if found := p.index(p.b, p.first); found[p.room] != pin.Epoch {
			p.Errorf("room %.40q is not in the index: %v", name, found)
		}
		p.succeed(p.b, pinstore.Op{If: pin}, lease.Incarnation{})
	}
}

func noTTL(p *pins) {
	for _, ttl := range []time.Duration{0, -time.Second, time.Millisecond - 1} {
		r := p.a.Swap(p.Context(), pinstore.Op{Partition: home, Room: p.room, Set: pinstore.Pin{Incarnation: p.first}, TTL: ttl})[0]
		if !errors.Is(r.Err, pinstore.ErrStore) || r.Done {
			p.Errorf("TTL %v: error %v, done %t; want an ErrStore", ttl, r.Err, r.Done)
		}
	}
	if got := p.read(p.b); got != (pinstore.Pin{}) {
		p.Errorf("%v stands", got)
	}
}
