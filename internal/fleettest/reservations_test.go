package fleettest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// counts waits until all nodes know that only one of them, or none if node is empty, carries the reserved units.
func (f *fleet) counts(what string, node lease.NodeID, units int64) {
	f.t.Helper()
	redistest.Eventually(f.t, what, func() error {
		for _, n := range f.nodes {
			for _, m := range n.agent.Snapshot().Members {
				want := int64(0)
				if m.ID == node {
					want = units
				}
				if m.Load != want {
					return fmt.Errorf("%s: the load of %s is %d, want %d", n.agent.Snapshot().Self.ID, m.ID, m.Load, want)
				}
			}
			all, err := n.rooms.Reservations(f.t.Context())
			switch {
			case err != nil:
				return err
			case node == "" && len(all) == 0:
			case len(all) != 1 || all[0].Node != node || all[0].Units != units:
				return fmt.Errorf("reservations %+v, want %d on %q", all, units, node)
			}
		}
		return nil
	})
}

// A reservation outlives its node, and a Redis that loses its data.
func TestReservation(t *testing.T) {
	long(t)
	t.Parallel()
	redis := redistest.Start(t)
	f := newFleet(t, setup{URL: redis.URL(), Capacity: 1000, ReportLoad: true, Budget: timeout, Settle: time.Second}, "a", "b", "c")
	at, err := f.nodes[0].rooms.Reserve(t.Context(), "event", affinity.Demand{Units: 500}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	f.counts("a reservation", at.Node, 500)
	redis.Do("FLUSHALL")
	f.counts("the reservation after a loss of data", at.Node, 500)
	gone := f.node(at.Node)
	f.nodes = slices.DeleteFunc(f.nodes, func(n *node) bool { return n == gone })
	if err := gone.agent.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	var next lease.NodeID
	redistest.Eventually(t, "another node", func() error {
		a, err := f.nodes[0].rooms.Lookup(t.Context(), "event")
		if err == nil && a.Node == at.Node {
			err = errNotYet
		}
		next = a.Node
		return err
	})
	f.counts("the reservation on another node", next, 500)
	if err := f.nodes[1].rooms.CancelReservation(t.Context(), "event"); err != nil {
		t.Fatal(err)
	}
	f.counts("the end", "", 0)
}
