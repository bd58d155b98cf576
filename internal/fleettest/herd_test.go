package fleettest

import (
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// leaseTTL is how long the death of a process goes unnoticed. The default of a
// local cluster is half of that, for which a busy machine may leave one waiting.
const leaseTTL = 2 * time.Second

// herd is a cluster of processes.
type herd struct {
	t     *testing.T
	setup setup // but for ID, Join and perhaps URL
	nodes map[lease.NodeID]*process
	rooms []string // that were hosted
}

func newHerd(t *testing.T, s setup, ids ...string) *herd {
	t.Helper()
	s.Cluster, s.Capacity = clusterName(), capacity
	s.TTL = leaseTTL
	h := &herd{t: t, setup: s, nodes: make(map[lease.NodeID]*process)}
	for _, id := range ids {
		h.start(id)
	}
	h.waitAgreed()
	return h
}

func (h *herd) start(id string) {
	h.t.Helper()
	s := h.setup
	s.ID = id
	for _, p := range h.nodes {
		s.Join = append(s.Join, p.addr)
	}
	p := startProcess(h.t, s)
	h.nodes[p.id] = p
}

func (h *herd) waitAgreed() {
	h.t.Helper()
	eventually(h.t, "all processes to agree", func() error {
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

// size of all rooms of a herd.
const size = 2

// host has rooms resolved by all nodes in turn and hosted where they live.
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
		for i, a := range h.nodes[id].resolve(part) {
			if a.Err != "" || a.Degraded {
				h.t.Fatalf("%s resolves %s: %+v", id, part[i], a)
			}
			homes[a.Node] = append(homes[a.Node], part[i])
		}
	}
	for id, part := range homes {
		for i, a := range h.nodes[id].host(part) {
			if a.Err != "" || a.Epoch == 0 {
				h.t.Fatalf("%s hosts %s: %+v", id, part[i], a)
			}
		}
	}
	h.rooms = append(h.rooms, rooms...)
}
