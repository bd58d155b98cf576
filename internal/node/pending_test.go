package node

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// The bytes that wait are bounded, and a full state takes the place of packets.
func TestWaitingBytes(t *testing.T) {
	w := pendingSenders{Node: lone()}
	half := make([]byte, lease.MaxMessageBytes/2)
	for i := range lease.Handle(3) {
		w.confirm(epoch, 1+i, "n", pendingMessage{bytes: half})
	}
	if w.bytes > lease.MaxMessageBytes {
		t.Errorf("%d bytes wait", w.bytes)
	}
	w.confirm(epoch, 4, "n", pendingMessage{half, true})
	if s := w.sender(4); s == nil || len(s.messages) != 1 || w.bytes > lease.MaxMessageBytes {
		t.Errorf("a full state has no place: %d bytes wait", w.bytes)
	}
}

// lone returns a node that knows no other.
func lone() *Node {
	return New(epoch, Config{
		Self:       lease.Record{Profile: lease.Profile{ID: "a", Incarnation: 1, Addr: "a", Weight: 1}},
		Partitions: 8, Strategy: placement.Rendezvous(), HeartbeatInterval: 2 * time.Second, LeaseTTL: 6 * time.Second,
		MaxSkew: 5 * time.Second, Debounce: 250 * time.Millisecond, StartupGrace: 10 * time.Second, RejoinInterval: 10 * time.Second,
		GossipInterval: 200 * time.Millisecond, GossipNodes: 3, PacketBytes: 1400,
	}, 1)
}
