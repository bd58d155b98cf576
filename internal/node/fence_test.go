package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
)

// When a node is fenced or leaves, its own lease also ends in views that were taken before.
func TestFenceEndsOlderViews(t *testing.T) {
	for what, begin := range map[string]func(w *network){
		"a fence for the clock": func(w *network) { w.clock["b"] = 2300 * time.Millisecond },
		"a fence":               func(w *network) { w.drop["b"] = true },
		"a leave message":       func(w *network) { w.nodes["b"].Leave(w.now) },
	} {
		w := newNetwork(t, func(c *node.Config) { c.MaxSkew = 2 * time.Second }, "a", "b", "c")
		b := w.nodes["b"]
		v := b.View()
		begin(w)
		for limit := w.now.Add(time.Minute); b.View().Stats.Fences == 0 && b.View().Phase != node.Over && w.now.Before(limit); {
			w.run(10 * time.Millisecond)
		}
		if b.View().Stats.Fences == 0 && b.View().Phase != node.Over {
			t.Fatalf("%s did not happen", what)
		}
		if v.Lease.Holds(w.at("b").Sub(b.Started())) {
			t.Errorf("the lease of a view holds after %s", what)
		}
	}
}

// When a node becomes a candidate again after a drain, a failed health check or a hold, it acquires its partitions at
// the same time as the other members release them.
func TestComesBackWithTheOthers(t *testing.T) {
	const debounce = time.Second
	checked := func(n *node.Node, now time.Time, err error) {
		for range max(node.FailuresInARow, node.SuccessesInARow) {
			n.Checked(now, err)
		}
	}
	for name, c := range map[string]struct {
		goes, comes func(w *network, a *node.Node)
	}{
		"drain": {
			func(w *network, a *node.Node) { a.Drain(w.now) },
			func(w *network, a *node.Node) { a.Undrain(w.now) },
		},
		"unhealthy": {
			func(w *network, a *node.Node) { checked(a, w.now, errors.New("unhealthy")) },
			func(w *network, a *node.Node) { checked(a, w.now, nil) },
		},
		"hold": {
			func(w *network, _ *node.Node) { w.comesAndGoes("a") },
			func(w *network, a *node.Node) { w.run(flapping(a).Sub(w.now) - 10*time.Millisecond) },
		},
	} {
		w := newNetwork(t, func(c *node.Config) { c.Debounce, c.Checked = debounce, name == "unhealthy" }, "a", "b", "c")
		w.run(5 * time.Second)
		a := w.nodes["a"]
		if name == "unhealthy" {
			for _, id := range w.ids {
				w.nodes[id].Checked(w.now, nil)
			}
			w.run(5 * time.Second)
		}
		share := w.owned("a")
		c.goes(w, a)
		if w.run(5 * time.Second); w.owned("a") != 0 || share == 0 {
			t.Fatalf("%s: owns %d partitions, and %d before", name, w.owned("a"), share)
		}
		c.comes(w, a)
		twice := time.Duration(0)
		for range 300 {
			if w.run(10 * time.Millisecond); w.owned("a")+w.owned("b")+w.owned("c") > 8 {
				twice += 10 * time.Millisecond
			}
		}
		if twice > debounce/4 || w.owned("a") != share {
			t.Errorf("%s: for %v, partitions have two owners; it owns %d, and %d before", name, twice, w.owned("a"), share)
		}
	}
}

// A node has lost all other members, and is about to find out that none of them hears it. If it is undrained at this
// moment, it takes over nothing.
func TestUndrainWhileCutOff(t *testing.T) {
	for _, drained := range []bool{false, true} {
		w := newNetwork(t, func(c *node.Config) {
			if c.Self.ID == "b" {
				c.HeartbeatInterval = 200 * time.Millisecond // the lease of a ends before b is fenced
			}
		}, "a", "b")
		a, b := w.nodes["a"], w.nodes["b"]
		await := func(condition func() bool) {
			for limit := w.now.Add(10 * time.Second); !condition() && w.now.Before(limit); {
				w.run(10 * time.Millisecond)
			}
		}
		if w.run(5 * time.Second); drained {
			b.Drain(w.now)
			w.run(5 * time.Second)
		}
		await(func() bool { return w.now.Sub(a.Leases().Renewed()) > 1700*time.Millisecond })
		w.drop["a"] = true
		await(func() bool { return b.Leases().PeerCount() == 0 })
		if len(b.View().Table.Nodes()) == 0 || b.View().Phase == node.Joining {
			t.Fatalf("drained: %v; b is %v, its table has %d nodes", drained, b.View().Phase, len(b.View().Table.Nodes()))
		}
		before, most := w.owned("b"), 0
		b.Undrain(w.now)
		await(func() bool { most = max(most, w.owned("b")); return b.View().Phase == node.Joining })
		if most > before || b.View().Phase != node.Joining {
			t.Errorf("drained: %v; b is %v; it owned up to %d partitions, and %d before", drained, b.View().Phase, most, before)
		}
	}
}
