package pinstore

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// A store that performs batches for days keeps data only for its current pins.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		pins := make([]Pin, 128)
		for range 500 {
			var ops []Op
			for i := range pins {
				ops = append(ops, Op{
					Room: fmt.Sprint("r-", i),
					If:   pins[i],
					Set:  Pin{Incarnation: lease.Incarnation{Node: "a", Number: 1}},
					TTL:  time.Hour,
				})
			}
			for i, res := range m.Swap(t.Context(), ops...) {
				if !res.Done {
					t.Fatalf("%+v: %+v", ops[i], res)
				}
				pins[i] = res.Pin
			}
			time.Sleep(20 * time.Minute)
		}
		if n := len(m.due); n > 8*len(pins) {
			t.Errorf("%d dates for %d pins", n, len(pins))
		}
	})
}

// A copy starts with all data of the store. Later changes of the copy do not affect the store.
func TestMemoryCopy(t *testing.T) {
	m := NewMemory()
	at := lease.Incarnation{Node: "a", Number: 1}
	m.Notify(func(room string) {
		if room == "later" {
			t.Errorf("the users of the store are notified of a change in its copy")
		}
	})
	claim := func(m *Memory, room string) Result {
		op := Op{Room: room, Set: Pin{Incarnation: at}, TTL: time.Hour, Limit: 10, Units: 4, Window: time.Minute}
		return m.Swap(t.Context(), op)[0]
	}
	first := claim(m, "first")
	if _, err := m.Heartbeat(t.Context(), at, time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	c := m.Copy()
	if res := c.Swap(t.Context(), Op{Room: "first"})[0]; res.Pin != first.Pin {
		t.Errorf("the copy has %v, want %v", res.Pin, first.Pin)
	}
	found, err := c.Index(t.Context(), []placement.Partition{0}, func(lease.Incarnation) bool { return true }, 10)
	if err != nil || len(found) != 1 {
		t.Errorf("the index of the copy has %v, %v", found, err)
	}
	if alive, err := c.Heartbeat(t.Context(), lease.Incarnation{}, 0, []lease.Incarnation{at}); err != nil || !alive[0] {
		t.Errorf("the copy has no heartbeat of %v: %v", at, err)
	}
	if res := claim(c, "later"); !res.Done || res.Pin.Epoch <= first.Pin.Epoch {
		t.Errorf("a claim in the copy: %+v", res)
	}
	if res := claim(c, "too much"); !res.Full || res.Counted != 8 {
		t.Errorf("the copy does not count the units of the store: %+v", res)
	}
	if res := m.Swap(t.Context(), Op{Room: "later"})[0]; res.Pin != (Pin{}) {
		t.Errorf("a claim in the copy is one in the store: %v", res.Pin)
	}
	if res := claim(m, "second"); !res.Done {
		t.Errorf("the store counts the units of its copy: %+v", res)
	}
}

// Two clusters record settings in the same store. The settings of one cluster do not affect the settings of the other.
func TestMemoryClusters(t *testing.T) {
	m := NewMemory()
	state := func(node lease.NodeID, ttl time.Duration, cluster, partitions string) Agreed {
		t.Helper()
		got, err := m.Agree(t.Context(), lease.Incarnation{Node: node, Number: 1}, ttl, Settings{
			Cluster: cluster,
			Values:  []Setting{{"partitions", partitions}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for cluster, partitions := range map[string]string{"c": "64", "d": "128"} {
		if got := state("a", time.Hour, cluster, partitions); len(got.Differ) > 0 {
			t.Errorf("cluster %s: %+v", cluster, got)
		}
	}
	state("a", 0, "c", "64")
	if got := state("b", time.Hour, "c", "256"); len(got.Differ) > 0 {
		t.Errorf("after the end of the settings of c: %+v", got)
	}
	if got := state("b", time.Hour, "d", "256"); len(got.Differ) != 1 || got.Differ[0].Theirs != "128" {
		t.Errorf("d goes on: %+v", got)
	}
}
