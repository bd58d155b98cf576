package fleettest

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// leaseTTL is the time until other nodes notice that a node has died. It is far longer than the default of a local
// cluster, because a busy machine may stall a live process for that long.
const leaseTTL = 5 * time.Second

// herd is a cluster of processes.
type herd struct {
	t     testing.TB
	nodes map[lease.NodeID]*process
	rooms []string // hosted by host
}

func newHerd(tb testing.TB, s setup, ids ...string) *herd {
	tb.Helper()
	s.Cluster, s.Capacity = clusterName(), capacity
	s.TTL = cmp.Or(s.TTL, leaseTTL)
	s.Budget = cmp.Or(s.Budget, timeout) // the store must decide, even on a busy machine
	h := &herd{t: tb, nodes: make(map[lease.NodeID]*process)}
	for _, id := range ids {
		s.ID = id
		p := startProcess(tb, s)
		h.nodes[p.id] = p
		s.Join = append(s.Join, p.addr)
	}
	h.waitAgreed()
	return h
}

func (h *herd) waitAgreed() {
	h.t.Helper()
	redistest.Eventually(h.t, "all processes to agree", func() error {
		for _, p := range h.nodes {
			if s := p.status(); s.Members != len(h.nodes) || !s.Converged || !s.Loads {
				return fmt.Errorf("%s: %+v", p.id, s)
			}
		}
		return nil
	})
}

// kill kills a node.
func (h *herd) kill(id lease.NodeID) {
	h.t.Helper()
	h.nodes[id].kill()
	delete(h.nodes, id)
}

// size is the size of every room of a herd.
const size = 2

// host resolves each room at some node, and hosts it on the node that was returned.
func (h *herd) host(rooms []string) {
	h.t.Helper()
	parts := make(map[lease.NodeID][]string)
	homes := make(map[lease.NodeID][]string)
	i := 0
	for id := range h.nodes {
		n := len(h.nodes)
		parts[id] = rooms[i*len(rooms)/n : (i+1)*len(rooms)/n]
		i++
	}
	for id, part := range parts {
		for i, a := range h.settled("Resolve", part, h.nodes[id]) {
			homes[a.Node] = append(homes[a.Node], part[i])
		}
	}
	for id, part := range homes {
		h.settled("Host", part, h.nodes[id])
	}
	h.rooms = append(h.rooms, rooms...)
}

// settled repeats a call until the store has decided about all rooms, because a connection may break on a busy machine.
func (h *herd) settled(method string, rooms []string, at *process) (answers []Answer) {
	h.t.Helper()
	redistest.Eventually(h.t, "the store's answers", func() error {
		answers = at.rooms(method, rooms)
		for i, a := range answers {
			if a.Err != "" {
				h.t.Fatalf("%s: %+v", rooms[i], a)
			}
			if a.Epoch == 0 {
				return fmt.Errorf("%s: %+v", rooms[i], a)
			}
		}
		return nil
	})
	return answers
}
