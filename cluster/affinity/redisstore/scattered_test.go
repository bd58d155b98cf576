package redisstore

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// A server looks like a single server, but keeps its keys on several servers, so it refuses a script with keys of
// several partitions. The store then performs each op separately, exactly once.
func TestScattered(t *testing.T) {
	cluster := redistest.StartCluster(t, 1, 0)
	client := redis.NewClient(&redis.Options{Addr: cluster.Owner(keys{prefix: DefaultPrefix}.pin(17, "")).Addr(), MaxRetries: -1})
	s := goRedis(t, client, "")
	reads := make([]pinstore.Op, 3*maxOps)
	ops := make([]pinstore.Op, 3*maxOps)
	for i := range ops {
		ops[i] = first(fmt.Sprint("room ", i), node("n", 1))
		if i >= maxOps { // the first batch is in a single partition, so it is not refused
			ops[i].Partition = placement.Partition(i % 5)
		}
		reads[i] = pinstore.Op{Partition: ops[i].Partition, Room: ops[i].Room}
	}
	refused := func() {
		t.Helper()
		if !s.split.Swap(false) {
			t.Error("the server has refused nothing; want a refusal")
		}
	}
	for range 2 {
		for i, r := range s.Swap(t.Context(), ops...) {
			if r.Err != nil || !r.Done || r.Pin.Incarnation != node("n", 1) {
				t.Fatalf("op %d: %+v", i, r)
			}
			ops[i].If = r.Pin // the second pass refreshes each pin
		}
	}
	refused()
	for i, r := range s.Swap(t.Context(), reads...) {
		if r.Err != nil || r.Pin != ops[i].If {
			t.Fatalf("read %d: %+v, want %v", i, r, ops[i].If)
		}
	}
	refused()

	// A store that has not written anything also finds the rooms.
	later := goRedis(t, redis.NewClient(client.Options()), "")
	found, err := later.Index(t.Context(), []placement.Partition{1}, func(lease.Incarnation) bool { return true }, 1<<20)
	if err != nil || len(found) == 0 {
		t.Errorf("the index of a new store has %d rooms, %v", len(found), err)
	}
}
