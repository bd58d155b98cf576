package redisstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// A slot moves key by key to another master and back, while two stores claim, read and refresh its rooms. Each claim
// returns the room's current pin, and no call fails. The stores connect as a user that has only the rights in doc.go.
func TestSlotMigration(t *testing.T) {
	long(t)
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	cluster.DoAll(append([]string{"ACL", "SETUSER", "roost", "on", ">" + secret}, accessList(t)...)...)
	opt := redisAt{URL: cluster.URL(), Credentials: func(context.Context) (string, string, error) { return "roost", secret, nil }}
	a, b := ready(t, opt), ready(t, opt)
	const rooms = 40
	pinned := make([]pinstore.Pin, rooms)
	for i := range pinned {
		pinned[i] = swap(t, a, first(fmt.Sprint("room ", i), node("n", 1))).Pin
	}
	quit := make(chan struct{})
	var wait sync.WaitGroup
	var mu sync.Mutex
	calls, failed := 0, make(map[string]int)
	fresh := make(map[string]pinstore.Pin) // rooms that are claimed during the moves
	for c, s := range []*Store{a, b} {
		wait.Go(func() {
			for i := c; ; i++ {
				select {
				case <-quit:
					return
				case <-time.After(500 * time.Microsecond):
				}
				op := first(fmt.Sprint("room ", i%rooms), node("m", 2)) // another node claims the room
				isNew := i/2%4 == 0
				switch {
				case isNew: // both stores claim each new room
					op = first(fmt.Sprint("new ", i/2), node("x", uint64(c)+1))
					op.Set.Needs = "p=1"
				case i%3 == 0:
					op = read(op.Room)
				case i%3 == 1: // the host of the room refreshes its pin
					op.If, op.Set.Incarnation = pinned[i%rooms], pinned[i%rooms].Incarnation
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // the machine may be busy
				r := s.Swap(ctx, op)[0]
				cancel()
				mu.Lock()
				calls++
				switch {
				case r.Err != nil:
					failed[r.Err.Error()]++
				case isNew && fresh[op.Room] == (pinstore.Pin{}):
					fresh[op.Room] = r.Pin
				case isNew:
					if was := fresh[op.Room]; r.Pin.Incarnation != was.Incarnation || r.Pin.Epoch != was.Epoch {
						t.Errorf("%s: claimed as %v and as %v", op.Room, was, r.Pin)
					}
				case r.Pin.Incarnation != pinned[i%rooms].Incarnation || r.Pin.Epoch != pinned[i%rooms].Epoch:
					t.Errorf("%s: pin %v, was %v", op.Room, r.Pin, pinned[i%rooms])
				}
				mu.Unlock()
			}
		})
	}
	for range 2 {
		cluster.Migrate(names(a).pin(17, "room 0"), 5*time.Millisecond)
	}
	close(quit)
	wait.Wait()
	t.Logf("%d calls, %d new rooms", calls, len(fresh))
	entries, err := b.Index(t.Context(), []placement.Partition{17}, func(lease.Incarnation) bool { return true }, 1<<20)
	if err != nil || len(entries) != rooms+len(fresh) {
		t.Errorf("the index has %d rooms, %v; want %d", len(entries), err, rooms+len(fresh))
	}
	for _, e := range entries {
		if was, ok := fresh[e.Room]; ok && (e.Pin.Incarnation != was.Incarnation || e.Pin.Needs != "p=1") {
			t.Errorf("%s: %v with needs %q, was claimed as %v", e.Room, e.Pin, e.Pin.Needs, was)
		}
	}
	for err, n := range failed {
		t.Errorf("%d calls failed: %s", n, err)
	}
}

// An op has the same result, whether the store performs it with one script or with a command for each key.
func TestApartAsAtOnce(t *testing.T) {
	server, s := started(t)
	const epoch = 5_000_000_000_000_000 // an epoch of the year 2128, so greater than the server's time
	pin := func(at lease.Incarnation, epoch uint64) pinstore.Pin {
		return pinstore.Pin{Incarnation: at, Epoch: epoch, Size: 2, Needs: "p=1|3"}
	}
	a, b, c := node("a", 7), node("b", 8), node("c", 9)
	for name, op := range map[string]pinstore.Op{
		"read":     {},
		"claim":    {Set: pin(a, 0)},
		"refresh":  {If: pin(a, epoch), Set: pin(a, epoch)},
		"renew":    {If: pin(a, 0), Set: pin(a, epoch+1000)},
		"replace":  {If: pin(a, epoch), Set: pin(b, 0)},
		"mismatch": {If: pin(b, 0), Set: pin(c, 0)},
		"older":    {If: pin(a, epoch-1), Set: pin(b, 0)},
		"release":  {If: pin(a, epoch)},
	} {
		op.Partition, op.Room, op.TTL = 17, "r", time.Hour
		key := names(s).pin(op.Partition, op.Room)
		reset := func() { server.Do("SET", key, fmt.Sprintf("a|7|%d|2|p=1|2", uint64(epoch)), "PX", "3600000") }
		reset()
		atOnce := swap(t, s, op)
		reset()
		results := make([]pinstore.Result, 1)
		s.swapApart(t.Context(), names(s), batch{0}, []pinstore.Op{op}, results)
		apart := results[0]
		atOnce.Fresh, apart.Fresh = 0, 0
		if atOnce != apart {
			t.Errorf("%s: at once %+v, apart %+v", name, atOnce, apart)
		}
	}
}
