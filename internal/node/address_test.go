package node_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
)

// move gives a node of the network another address. Packets to its former address are lost.
func (w *network) move(from, to string) {
	w.nodes[to], w.last[to] = w.nodes[from], w.last[from]
	delete(w.nodes, from)
	w.ids[slices.Index(w.ids, from)] = to
}

// If a host's address changes, its node announces the new one before its lease ends, so no partition moves.
func TestOwnAddressChanges(t *testing.T) {
	looks := 0
	w := newNetwork(t, nil, "a", "b", "c")
	w.locate = func(id string) node.Located { looks++; return node.Located{Addr: id, HTTP: 7} }
	w.run(time.Minute)
	if looks > 0 {
		t.Errorf("the node looked at its address %d times while others reached it", looks)
	}
	w.move("c", "c2")
	before := w.exchanged
	w.run(10 * time.Second)
	w.agreed(t)
	if w.exchanged == before {
		t.Error("its memberlist, which began anew, has met nobody")
	}
	if r := w.nodes["a"].View().Live.Members[2].Record; r.Addr != "c2" || r.HTTP != 7 {
		t.Errorf("a has %s and %d in the record of c", r.Addr, r.HTTP)
	}
	for _, id := range w.ids {
		if s := w.nodes[id].View().Stats; s.Fences > 0 || s.TableChanges > 3 {
			t.Errorf("%s was fenced %d times and changed its table %d times", id, s.Fences, s.TableChanges)
		}
	}
	if n := w.logged("c2", "own address changed"); n != 1 {
		t.Errorf("%d lines", n)
	}
	looks = 0
	w.run(time.Minute)
	if looks > 0 {
		t.Errorf("%d looks afterwards", looks)
	}
}

// If a node loses its address and cannot adopt another, it reports why other nodes cannot reach it, until they can
// reach it again.
func TestOwnAddressIsGone(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c")
	gone := errors.New("this host no longer has it")
	w.locate = func(string) node.Located { return node.Located{Addr: "c", Reason: gone} }
	w.move("c", "c2")
	w.run(20 * time.Second)
	v := w.nodes["c2"].View()
	if v.Phase != node.Joining || !errors.Is(v.Unreachable, gone) || v.Waits == nil ||
		!strings.Contains(v.Waits.Error(), gone.Error()) || strings.Contains(v.Waits.Error(), "blocked") {
		t.Errorf("it is %v, and says %v, %v", v.Phase, v.Unreachable, v.Waits)
	}
	if w.owned("c2") > 0 {
		t.Error("it owns partitions")
	}
	w.run(time.Minute)
	if n := w.logged("c2", "others cannot reach this node"); n < 1 || n > 2 {
		t.Errorf("%d lines in 80 s", n)
	}
	w.locate = func(string) node.Located { return node.Located{Addr: "c"} }
	w.move("c2", "c")
	w.run(20 * time.Second)
	w.agreed(t)
	if v := w.nodes["c"].View(); v.Unreachable != nil || v.Waits != nil {
		t.Errorf("it says %v, %v", v.Unreachable, v.Waits)
	}
}

// A new node ends if no seed can ever reach it. A node that already runs alone continues, and checks its address from
// time to time.
func TestNoSeedReachesIt(t *testing.T) {
	never := node.Located{Addr: "a", Reason: errors.New("it is a loopback address"), Final: true}
	w := &network{now: epoch, nodes: make(map[string]*node.Node), last: make(map[string]node.Ready)}
	w.change = func(c *node.Config) { c.Seeds = []string{"far"} }
	looks := 0
	w.locate = func(string) node.Located { looks++; return never }
	w.add("a")
	for range 300 {
		w.run(10 * time.Millisecond)
		if w.last["a"].Hopeless != nil {
			break
		}
	}
	if r := w.last["a"]; !errors.Is(r.Hopeless, never.Reason) || !w.nodes["a"].View().Ended {
		t.Errorf("the newcomer goes on: %v", r.Hopeless)
	}

	w.nodes, w.ids, w.last = make(map[string]*node.Node), nil, make(map[string]node.Ready)
	w.change = func(c *node.Config) { c.Seeds, c.Bootstrap = []string{"far"}, true }
	w.add("a")
	w.run(time.Second)
	looks = 0
	w.run(100 * time.Second)
	if v := w.nodes["a"].View(); v.Phase != node.Active || v.Unreachable == nil {
		t.Errorf("it is %v, and says %v", v.Phase, v.Unreachable)
	}
	if looks < 9 || looks > 11 {
		t.Errorf("%d looks in 100 s", looks)
	}
}
