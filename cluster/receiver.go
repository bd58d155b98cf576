package cluster

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

// These constants limit the data that waits for the loop, usually to 1,024 packets of a few kilobytes.
const (
	queuedPackets  = 1024
	maxPacketBytes = 64 << 10
)

// receiver passes gossip messages to the loop.
type receiver struct{ agent *Agent }

// traffic counts incoming messages.
type traffic struct {
	packets, bytes, dropped atomic.Uint64
}

// Receive implements gossip.Receiver.
func (r receiver) Receive(packet []byte) {
	in := &r.agent.in
	in.packets.Add(1)
	in.bytes.Add(uint64(len(packet)))
	if len(packet) > maxPacketBytes {
		in.dropped.Add(1)
		return
	}
	select {
	case r.agent.packets <- packet:
	default:
		in.dropped.Add(1)
	}
}

// State implements gossip.Receiver.
func (r receiver) State() (state []byte) {
	_ = r.agent.do(context.Background(), func(now time.Time, n *node.Node) { state = n.Sync(now) })
	return state
}

// handle returns the handle of this node's incarnation, or 0 before the loop runs.
func (a *Agent) handle() lease.Handle {
	s, _ := a.snap.Get()
	if s.Self == nil {
		return 0
	}
	return lease.Incarnation{Node: a.self, Number: s.Self.Incarnation}.Handle()
}

// peer returns the data with which this node identifies itself to a node that connects to it.
func (a *Agent) peer() gossip.Peer { return gossip.Peer{Node: a.handle(), Cluster: *a.cluster.Load()} }

// live reports whether the node at a gossip address has a live lease.
func (a *Agent) live(addr string) bool {
	s, _ := a.snap.Get()
	return slices.ContainsFunc(s.Members, func(m *Member) bool { return m.Addr == addr })
}

// streamEnded tells the loop what the end of a watch stream proves about a node.
func (a *Agent) streamEnded(h lease.Handle, e lease.Evidence) {
	_ = a.do(context.Background(), func(now time.Time, n *node.Node) { n.StreamEnded(now, h, e) })
}

// Merge implements gossip.Receiver.
func (r receiver) Merge(state []byte) {
	if len(state) > lease.MaxMessageBytes {
		r.agent.in.dropped.Add(1)
		return
	}
	_ = r.agent.do(context.Background(), func(now time.Time, n *node.Node) { n.Merge(now, state) })
}
