package affinitytest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// The index lists the rooms of a dead node.
func indexSelects(p *pins) {
	const n = 300
	want := map[placement.Partition]map[lease.Incarnation][]string{}
	all := []lease.Incarnation{p.first, p.again, p.second}
	var ops []pinstore.Op
	var partitions []placement.Partition
	for i := range n {
		part, l := placement.Partition(i%10), all[i%len(all)]
		room := fmt.Sprint(p.room, " ", i)
		if want[part] == nil {
			want[part] = map[lease.Incarnation][]string{}
			partitions = append(partitions, part)
		}
		want[part][l] = append(want[part][l], room)
		ops = append(ops, pinstore.Op{Partition: part, Room: room, Set: pinstore.Pin{Incarnation: l}, TTL: long})
	}
	p.all(p.a, ops...)
	for _, l := range all {
		var all []string
		for _, part := range partitions {
			rooms := want[part][l]
			all = append(all, rooms...)
			found := slices.Collect(maps.Keys(p.indexOf(p.b, n, []placement.Partition{part}, l)))
			if !sameSet(found, rooms) {
				p.Fatalf("partition %d, %v: %d rooms; want %d", part, l, len(found), len(rooms))
			}
		}
		if found := slices.Collect(maps.Keys(p.indexOf(p.b, n, partitions, l))); !sameSet(found, all) {
			p.Fatalf("%v: %d rooms; want %d", l, len(found), len(all))
		}
	}
	entries, err := p.b.Index(p.Context(), partitions, func(l lease.Incarnation) bool { return slices.Contains(all, l) }, 10*n)
	if err != nil || len(entries) != n {
		p.Fatalf("%d entries of all incarnations (%v); want %d", len(entries), err, n)
	}
	for _, e := range entries {
		if !slices.Contains(want[e.Partition][e.Pin.Incarnation], e.Room) {
			p.Fatalf("unexpected %v", e)
		}
	}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// The index must reflect every change of a pin, because nodes use only the index to find the rooms of a dead
// node.
func indexFollows(p *pins) {
	is := func(l lease.Incarnation, pin pinstore.Pin) {
		p.Helper()
		for _, other := range []lease.Incarnation{p.first, p.again, p.second} {
			found := p.index(p.b, other)
			switch {
			case other == l && (len(found) != 1 || found[p.room] != pin.Epoch):
				p.Fatalf("index of %v: %v; want epoch %d", other, found, pin.Epoch)
			case other != l && len(found) != 0:
				p.Fatalf("index of %v: %v; want none", other, found)
			}
		}
	}
	pin := p.claim(p.a, p.first)
	is(p.first, pin)
	p.fail(p.a, claimOf(p.second), pin)
	is(p.first, pin)
	p.fail(p.a, pinstore.Op{If: pinstore.Pin{Incarnation: p.again}, Set: pinstore.Pin{Incarnation: p.second}, TTL: long}, pin)
	is(p.first, pin)
	pin = p.succeed(p.b, pinstore.Op{If: pin, Set: pinstore.Pin{Incarnation: p.second}, TTL: long}, p.second)
	is(p.second, pin)
	pin = p.succeed(p.a, pinstore.Op{If: pin, Set: pinstore.Pin{Incarnation: p.second, Size: 3}, TTL: long}, p.second)
	is(p.second, pin)
	p.fail(p.a, pinstore.Op{If: pinstore.Pin{Incarnation: p.second, Epoch: pin.Epoch + 1}}, pin)
	is(p.second, pin)
	p.succeed(p.b, pinstore.Op{If: pin}, lease.Incarnation{})
	is(lease.Incarnation{}, pinstore.Pin{})
	pin = p.claim(p.a, p.again)
	is(p.again, pin)
}

func indexForgets(p *pins) {
	op := claimOf(p.first)
	op.TTL = brief
	p.succeed(p.a, op, p.first)
	op.Room, op.TTL = p.room+" stays", long
	stays := p.succeed(p.a, op, p.first)
	if found := p.index(p.b, p.first); len(found) != 2 {
		p.Fatalf("index: %v; want two rooms", found)
	}
	p.eventually(func() error {
		found := p.index(p.b, p.first)
		if len(found) != 1 || found[op.Room] != stays.Epoch {
			return fmt.Errorf("index: %v; want only %q", found, op.Room)
		}
		return nil
	})
}

func indexLimits(p *pins) {
	const n = 250
	ops := make([]pinstore.Op, n)
	for i := range ops {
		ops[i] = pinstore.Op{
			Partition: placement.Partition(i % 2), Room: fmt.Sprint(p.room, " ", i),
			Set: pinstore.Pin{Incarnation: p.first}, TTL: long,
		}
	}
	results := p.all(p.a, ops...)
	for _, limit := range []int{1, 99, 100, n - 1, n, n + 1} {
		if found := p.indexOf(p.b, limit, []placement.Partition{0, 1}, p.first); len(found) != min(limit, n) {
			p.Fatalf("%d rooms; the limit was %d of %d", len(found), limit, n)
		}
	}
	if found := p.indexOf(p.b, n, nil, p.first); len(found) != 0 {
		p.Fatalf("%d rooms in no partition", len(found))
	}
	// The node that fails over the rooms queries the index until no room is left.
	for left := n; left > 0; left -= 100 {
		found := p.indexOf(p.b, 100, []placement.Partition{0, 1}, p.first)
		if len(found) != min(left, 100) {
			p.Fatalf("%d rooms; %d are left", len(found), left)
		}
		var moves []pinstore.Op
		for i, op := range ops {
			if _, ok := found[op.Room]; ok {
				op.If, op.Set = results[i].Pin, pinstore.Pin{Incarnation: p.second}
				moves = append(moves, op)
			}
		}
		p.all(p.b, moves...)
	}
}

// After two instances have performed ops concurrently, the index must match the pins.
func indexConcurrent(p *pins) {
	all := []lease.Incarnation{p.first, p.again, p.second}
	const rooms, rounds, callers = 5, 30, 4
	room := func(i int) string { return fmt.Sprint(p.room, " ", i%rooms) }
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			s := []pinstore.Store{p.a, p.b}[c%2]
			for i := range rounds {
				op := pinstore.Op{Partition: home, Room: room(c + i), Set: pinstore.Pin{Incarnation: all[(c+i)%3]}, TTL: long}
				pin := s.Swap(p.Context(), op)[0].Pin
				op.If, op.Set.Incarnation = pin, all[(c+i+1)%3]
				if i%4 == 0 {
					op.Set = pinstore.Pin{}
				}
				if err := s.Swap(p.Context(), op)[0].Err; err != nil {
					p.Error(err)
				}
				if _, err := s.Index(p.Context(), []placement.Partition{home}, func(lease.Incarnation) bool { return true }, 10); err != nil {
					p.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range rooms {
		pin := p.do(p.a, pinstore.Op{Room: room(i)}).Pin
		for _, l := range all {
			epoch, ok := p.index(p.b, l)[room(i)]
			if ok != (pin.Incarnation == l) || (ok && epoch != pin.Epoch) {
				p.Errorf("room %d has %v; the index of %v has it: %t, with %d", i, pin, l, ok, epoch)
			}
		}
	}
}

func (p *pins) heartbeat(s pinstore.Store, self lease.Incarnation, ttl time.Duration, ask ...lease.Incarnation) []bool {
	p.Helper()
	alive, err := s.Heartbeat(p.Context(), self, ttl, ask)
	if err != nil {
		p.Fatal(err)
	}
	if len(alive) != len(ask) {
		p.Fatalf("%d answers for %d incarnations", len(alive), len(ask))
	}
	return alive
}

func heartbeats(p *pins) {
	for _, step := range []struct {
		by   pinstore.Store
		self lease.Incarnation
		ttl  time.Duration
		want []bool // first, again, second
	}{
		{p.a, p.first, long, []bool{true, false, false}},
		{p.b, p.second, long, []bool{true, false, true}},
		{p.b, p.second, long, []bool{true, false, true}},
		{p.a, p.again, long, []bool{true, true, true}},
		{p.a, p.first, 0, []bool{false, true, true}},
		{p.a, p.first, 0, []bool{false, true, true}},
		{p.b, p.second, 0, []bool{false, true, false}},
		{p.a, p.again, 0, []bool{false, false, false}},
	} {
		if got := p.heartbeat(step.by, step.self, step.ttl, p.first, p.again, p.second); !slices.Equal(got, step.want) {
			p.Fatalf("heartbeat of %v for %v: %v; want %v", step.self, step.ttl, got, step.want)
		}
	}
	p.heartbeat(p.a, p.first, long)
	if got := p.heartbeat(p.b, p.second, long, p.second, p.first, p.second); !slices.Equal(got, []bool{true, true, true}) {
		p.Errorf("%v; an incarnation may be asked for twice, and by itself", got)
	}
}

func heartbeatsExpire(p *pins) {
	p.heartbeat(p.b, p.second, long)
	sent := time.Now()
	p.heartbeat(p.a, p.first, brief)
	p.eventually(func() error {
		if p.heartbeat(p.b, p.second, long, p.first)[0] {
			return errors.New("still alive")
		}
		return nil
	})
	p.lasted(sent)
	if !p.heartbeat(p.a, p.first, brief, p.second)[0] {
		p.Error("the other's heartbeat expired, too")
	}
}
