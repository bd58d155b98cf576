package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// A process ends between the commands of a claim with a limit. Afterwards the room has at most one pin, the index has
// all pinned rooms, and the node gets at most one room beyond its limit.
func TestClaimCutShort(t *testing.T) {
	server := redistest.Start(t)
	a, b := ready(t, redisAt{URL: server.URL()}), ready(t, redisAt{URL: server.URL()})
	first, second := node("n", 1), node("m", 2)
	claim := func(room string, at lease.Incarnation) pinstore.Op {
		return pinstore.Op{
			Partition: 17, Room: room, Set: pinstore.Pin{Incarnation: at, Size: 2}, TTL: time.Hour,
			Limit: 20, Units: 10, Window: 30 * time.Second,
		}
	}
	rooms := func(at lease.Incarnation) map[string]pinstore.Pin {
		t.Helper()
		found, err := b.Index(t.Context(), []placement.Partition{17}, func(i lease.Incarnation) bool { return i == at }, 100)
		if err != nil {
			t.Fatal(err)
		}
		pins := make(map[string]pinstore.Pin)
		for _, e := range found {
			pins[e.Room] = e.Pin
		}
		return pins
	}
	for name, c := range map[string]struct {
		units, pin bool  // which commands have run
		beyond     int64 // by how many units the op lowers the limit
		more       int   // rooms that the node gets afterwards
	}{
		"before both":            {more: 2},
		"after the units":        {units: true, more: 1},
		"after the pin":          {pin: true, more: 2},
		"after both":             {units: true, pin: true, more: 1},
		"before a pin is undone": {units: true, pin: true, beyond: 15, more: 2},
	} {
		server.Do("FLUSHALL")
		op := claim("r", first)
		op.Limit -= c.beyond
		if c.units {
			if got := a.count(t.Context(), op, ""); got.err != nil {
				t.Fatal(got.err)
			}
		}
		if c.pin {
			if got := a.swapAll(t.Context(), []pinstore.Op{op})[0]; !got.Done {
				t.Fatalf("%+v", got)
			}
		}
		next := b.Swap(t.Context(), claim("r", second))[0]
		if next.Err != nil || next.Done == c.pin {
			t.Errorf("%s: the next claim of the room: %+v", name, next)
		}
		if is := rooms(next.Pin.Incarnation); len(is) != 1 || is["r"] != next.Pin {
			t.Errorf("%s: the index has %v, the pin is %v", name, is, next.Pin)
		}
		more := 0
		for i := range 4 {
			if b.Swap(t.Context(), claim(fmt.Sprint(i), first))[0].Done {
				more++
			}
		}
		if all := len(rooms(first)); more != c.more || all > 3 {
			t.Errorf("%s: then the node gets %d rooms more, and has %d; want %d, and 3 at most", name, more, all, c.more)
		}
	}
}

// If the pin of a claim cannot be written, the claim's units are returned. Otherwise, claims on a shard that is down
// would use up the limits of the nodes.
func TestUnitsOfAFailedClaim(t *testing.T) {
	server := redistest.Start(t)
	s := ready(t, redisAt{URL: server.URL()})
	claim := func(room string) pinstore.Result {
		return s.Swap(t.Context(), pinstore.Op{
			Partition: 17, Room: room, Set: pinstore.Pin{Incarnation: node("n", 1), Size: 2}, TTL: time.Hour,
			Limit: 20, Units: 10, Window: time.Hour,
		})[0]
	}
	server.Do("LPUSH", names(s).pin(17, "bad"), "no pin")
	for range 5 {
		if got := claim("bad"); got.Err == nil {
			t.Fatalf("%+v, want an error", got)
		}
	}
	const soon = 30 * time.Second // units would expire only after up to two minutes
	for began := time.Now(); !claim("good").Done; {
		if time.Since(began) > soon {
			t.Fatal("no other room can be claimed")
		}
	}
}
