package node_test

import (
	"fmt"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Two nodes on a network without delay: the second one joins the first.
func Example() {
	now := time.Unix(1_700_000_000, 0)
	nodes := make(map[string]*node.Node)
	for i, id := range []string{"a", "b"} {
		nodes[id] = node.New(now, node.Config{
			Self:       lease.Record{ID: lease.NodeID(id), Incarnation: 1, Addr: id, Weight: 100},
			Partitions: 8, Strategy: placement.Rendezvous(),
			HeartbeatInterval: 2 * time.Second, LeaseTTL: 6 * time.Second, MaxSkew: 5 * time.Second,
			QuietWindow: 250 * time.Millisecond, StartupGrace: 10 * time.Second,
			GossipInterval: 200 * time.Millisecond, GossipNodes: 3, PacketBytes: 1400,
		}, uint64(i))
	}
	a, b := nodes["a"], nodes["b"]
	a.Joined(now, 0, false)
	a.Receive(now, b.Sync(now)) // a full exchange, as when b joins through a
	b.Receive(now, a.Sync(now))
	b.Joined(now, 0, true)
	for end := now.Add(5 * time.Second); now.Before(end); now = now.Add(10 * time.Millisecond) {
		for _, n := range []*node.Node{a, b} {
			for _, p := range n.Ready(now).Packets {
				nodes[p.To].Receive(now, p.Bytes)
				n.Sent(now, p)
			}
		}
	}
	for _, n := range []*node.Node{a, b} {
		v := n.View(now)
		fmt.Println(v.Phase, len(v.Live.Members), "members,", len(v.State.Owned()), "partitions, drift", v.Drift)
	}
	// Output:
	// active 2 members, 3 partitions, drift 0
	// active 2 members, 5 partitions, drift 0
}
