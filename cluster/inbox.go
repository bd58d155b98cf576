package cluster

import (
	"sync/atomic"

	"github.com/roost-cluster/roost/lease"
)

// The inbox bounds what can wait for the loop: 1,024 packets of a few kilobytes.
const (
	inboxFrames    = 1024
	maxPacketBytes = 64 << 10
)

// frame is one thing that gossip hands to the loop.
type frame struct {
	message []byte        // to merge
	merged  chan struct{} // closed then; nil for a packet
	state   chan []byte   // instead of a message: where to put the full state
}

// traffic counts what happens outside of the loop.
type traffic struct {
	packets, bytes, dropped atomic.Uint64
}

// Receive implements gossip.Receiver.
func (a *Agent) Receive(packet []byte) {
	a.in.packets.Add(1)
	a.in.bytes.Add(uint64(len(packet)))
	if len(packet) > maxPacketBytes {
		a.in.dropped.Add(1)
		return
	}
	select {
	case a.inbox <- frame{message: packet}:
	default:
		a.in.dropped.Add(1)
	}
}

// State implements gossip.Receiver.
func (a *Agent) State() []byte {
	reply := make(chan []byte, 1)
	select {
	case a.inbox <- frame{state: reply}:
	case <-a.ended:
		return nil
	}
	select {
	case b := <-reply:
		return b
	case <-a.ended:
		return nil
	}
}

// Merge implements gossip.Receiver.
func (a *Agent) Merge(state []byte) {
	if len(state) > lease.MaxMessageBytes {
		a.in.dropped.Add(1)
		return
	}
	merged := make(chan struct{})
	select {
	case a.inbox <- frame{message: state, merged: merged}:
	case <-a.ended:
		return
	}
	select {
	case <-merged:
	case <-a.ended:
	}
}
