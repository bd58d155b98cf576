package redisstore

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// After random ops, some of which move the expiry of the index to its next step, the index of an incarnation lasts at
// least as long as each of its pins. The list of incarnations contains the incarnation at least as long as its index
// lasts.
func TestIndexSteps(t *testing.T) {
	server, s := started(t)
	lasts := func(key string) int {
		t.Helper()
		ttl, err := strconv.Atoi(server.Do("PTTL", key))
		if err != nil || ttl == -1 {
			t.Fatalf("%s lasts %d ms (%v)", key, ttl, err)
		}
		return ttl
	}
	// outlives checks that long expires after short, with a second of tolerance because the keys are read one after the
	// other.
	outlives := func(long, short string) {
		t.Helper()
		if brief := lasts(short); brief > 0 && lasts(long) < brief-1000 {
			t.Fatalf("%s lasts %d ms, %s %d ms", long, lasts(long), short, brief)
		}
	}
	owners := []lease.Incarnation{node("n", 1), node("m", 2)}
	pins := make(map[string]pinstore.Pin)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 150 {
		room := strconv.Itoa(rng.IntN(4))
		op := pinstore.Op{Partition: 17, Room: room, If: pins[room]}
		if rng.IntN(3) > 0 {
			op.Set = pinstore.Pin{Incarnation: owners[rng.IntN(2)], Size: 2}
			op.TTL = []time.Duration{20 * time.Second, time.Minute, time.Hour}[rng.IntN(3)]
		}
		pins[room] = swap(t, s, op).Pin
		for room, pin := range pins {
			if pin.Number == 0 {
				continue
			}
			index := names(s).rooms(17, textOf(pin.Incarnation))
			outlives(index, names(s).pin(17, room))
			outlives(names(s).incarnations(17), index)
			listed, err := strconv.ParseFloat(server.Do("ZSCORE", names(s).incarnations(17), textOf(pin.Incarnation)), 64)
			until := time.Now().Add(time.Duration(lasts(index)) * time.Millisecond)
			if err != nil || listed < float64(until.Add(-time.Second).UnixMilli()) {
				t.Fatalf("the incarnation of %s is listed until %f (%v), its index lasts until %v", room, listed, err, until)
			}
		}
	}
}
