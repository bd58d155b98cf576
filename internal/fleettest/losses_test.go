package fleettest

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
)

var whole = flag.Bool("long", false, "100,000 rooms in TestFlushedRooms, all rows of TestOutages, and seven minutes in TestRedisAway; takes ten minutes")

// Redis loses all data about a node that hosts many rooms, while clients join these rooms at a node that knows none of
// them. No room loses its home, even if it takes a long time to restore all pins.
func TestFlushedRooms(t *testing.T) {
	long(t)
	t.Parallel()
	rooms := names(10_000)
	switch {
	case *whole:
		rooms = names(100_000)
	case underRace:
		rooms = names(2000)
	}
	redis := redistest.Start(t)
	f := newFleet(t, setup{URL: redis.URL()}, "a", "b")
	a, b := f.node("a"), f.node("b")
	weigh := func(n *node, weight uint32) {
		t.Helper()
		if err := n.agent.SetWeight(weight); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, "the weight", func() error {
			for _, o := range f.nodes {
				if m, _ := o.agent.Snapshot().Member(n.incarnation().Node); m == nil || m.Weight != weight {
					return errNotYet
				}
			}
			return nil
		})
	}
	weigh(b, 0) // all rooms go to a
	hosted := make([]*affinity.Hosting, len(rooms))
	each(64, rooms, func(i int, room string) {
		redistest.Eventually(t, "hosting "+room, func() (err error) {
			if hosted[i], err = a.rooms.Host(t.Context(), room, affinity.Demand{Size: 1}); err == nil && hosted[i].Epoch() == 0 {
				err = errNotYet
			}
			return err
		})
	})
	weigh(b, 200)
	least := make([]uint64, len(hosted))
	for i, h := range hosted {
		least[i] = h.Epoch()
	}

	redis.Do("FLUSHALL")
	probes := 0
	redistest.Eventually(t, "notice of the loss", func() error { // before that, a join may arrive
		probes++
		failed := b.rooms.Stats().StoreErrors
		as, err := b.rooms.Resolve(t.Context(), fmt.Sprint("probe-", probes), affinity.Demand{})
		// On a starved machine, the store may answer too late, and such an answer is degraded, too.
		restored := int(a.rooms.Stats().Repinned)
		degraded := err == nil && as.Source == affinity.Degraded && b.rooms.Stats().StoreErrors == failed
		if !degraded && restored < len(rooms) { // on a starved machine, all pins may have been restored before b was checked
			return fmt.Errorf("%w: a join is %s, and %d pins are restored", errNotYet, as.Source, restored)
		}
		return nil
	})
	since, joins, away := time.Now(), 0, 0
	look := newEye(t, redis.URL())
	redistest.Eventually(t, "all pins", func() error {
		room := rooms[joins*7919%len(rooms)] // each room, in no particular order
		joins++
		switch as, err := b.rooms.Resolve(t.Context(), room, affinity.Demand{Size: 1}); {
		case err != nil:
			t.Fatalf("%s: %+v, %v", room, as, err)
		case as.Epoch != 0 && as.Incarnation != a.incarnation():
			away++
		}
		n := int(a.rooms.Stats().Repinned)
		if n < len(rooms) && away == 0 && time.Since(since) > timeout/2 {
			// On a starved machine, a call may restore a pin, but be answered too late to count.
			var err error
			if n, err = look.of(a.incarnation()); err != nil {
				return err
			}
		}
		if n < len(rooms) && away == 0 {
			return fmt.Errorf("%d pins are restored", n)
		}
		return nil
	})
	t.Logf("%d of %d pins restored within %v; %d joins meanwhile",
		a.rooms.Stats().Repinned, len(rooms), time.Since(since).Round(10*time.Millisecond), joins)
	fallen := 0
	for i, h := range hosted {
		if lost(h) {
			away++
		} else if h.Epoch() <= least[i] {
			fallen++
		}
	}
	if away > 0 || fallen > 0 {
		t.Errorf("%d of %d rooms lost their home, and %d got no greater epoch", away, len(rooms), fallen)
	}
}
