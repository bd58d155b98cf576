package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Each node watches the four that follow it in the order of handles, so each is watched by
// the four before it.
func TestWatch(t *testing.T) { // S5.4
	for _, c := range []struct{ nodes, watched int }{{1, 0}, {2, 1}, {3, 2}, {5, 4}, {6, 4}, {12, 4}} {
		t.Run(fmt.Sprint(c.nodes), func(t *testing.T) {
			var ids []string
			for i := range c.nodes {
				ids = append(ids, fmt.Sprintf("n%02d", i))
			}
			w := newNetwork(t, nil, ids...)
			var order []lease.Handle
			for _, id := range ids {
				order = append(order, w.nodes[id].set.Handle())
			}
			slices.Sort(order)
			for _, id := range ids {
				own := slices.Index(order, w.nodes[id].set.Handle())
				var want []lease.Handle
				for k := range c.watched {
					want = append(want, order[(own+1+k)%len(order)])
				}
				var got []lease.Handle
				for _, n := range w.last[id].Watch {
					got = append(got, n.Node)
					if n.Addr != w.nodes[id].set.AddrOf(n.Node) || n.Addr == "" {
						t.Errorf("%s watches %v at %q", id, n.Node, n.Addr)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s watches %v, want %v", id, got, want)
				}
			}
		})
	}
}

// The shell learns of changes alone, and a node that has ended watches nothing.
func TestWatchChanges(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c")
	clear(w.last)
	w.run(10 * time.Second)
	if got := w.last["a"].Watch; got != nil {
		t.Errorf("the shell is told again to watch %v", got)
	}
	w.nodes["a"].Leave(w.now)
	w.run(time.Second)
	if got := w.last["a"].Watch; got == nil || len(got) != 0 {
		t.Errorf("a node that has left watches %v", got)
	}
	if got := w.last["b"].Watch; len(got) != 1 || got[0].Addr != "c" {
		t.Errorf("after a left, b watches %v", got)
	}
}
