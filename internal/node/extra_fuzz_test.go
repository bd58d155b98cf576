package node_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/wire"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// FuzzExtra sends a node arbitrary data about assignments and handoffs. The node must continue to run, and its own
// messages must remain readable.
func FuzzExtra(f *testing.F) {
	change := func(c *node.Config) {
		c.Strategy = placement.LeastPartitions(1, 3)
		c.Handoff = time.Minute
	}
	f.Add([]byte{}, []byte{})
	stamp := wire.Append(nil, func(w *wire.Writer) {
		w.Array(3)
		w.Uint(node.ExtraStamp)
		w.Uint(math.MaxUint64)
		w.Uint(math.MaxUint64)
	})
	f.Add(stamp, []byte{0x95, 1, 1, 1, 0x91, 1, 0x90})
	f.Add([]byte{0x92, node.ExtraAssignment, 0x9a, 1, 8, 1, 0x90, 0, 0, 0, 0, 0x90, 0x98, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0},
		stamp)
	f.Add([]byte{0x92, node.ExtraAssignment, 0xdd, 255, 255, 255, 255}, bytes.Repeat([]byte{0x91}, 1000))
	f.Add(append([]byte{0x92, node.ExtraAssignment}, bytes.Repeat([]byte{0x91}, 1000)...), []byte{1})
	f.Fuzz(func(t *testing.T, extra, handoff []byte) {
		if len(extra)+len(handoff) > 1<<16 {
			return
		}
		w := newNetwork(t, change, "a", "b")
		a, b := w.nodes["a"], w.nodes["b"]
		m := &lease.Message{From: b.Handle(), Stamp: b.Leases().Stamp(w.at("b")), SentAt: w.at("b"), Extra: extra, Handoff: handoff}
		a.Receive(w.at("a"), lease.Encode(m))
		w.run(time.Second)
		if a.View().Ended || b.View().Ended {
			t.Errorf("a has ended: %v, b: %v", a.View().Ended, b.View().Ended)
		}
		if _, err := lease.Decode(a.Sync(w.at("a"))); err != nil {
			t.Errorf("what a says: %v", err)
		}
	})
}
