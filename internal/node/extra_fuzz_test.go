package node

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// FuzzExtra: a member may say anything about its assignment and about handoffs; the receiver goes on, and its
// own messages can be read.
func FuzzExtra(f *testing.F) {
	change := func(c *Config) {
		c.Strategy = placement.LeastPartitions(1, 3)
		c.Handoff = time.Minute
	}
	f.Add([]byte{}, []byte{})
	f.Add(binary.BigEndian.AppendUint64(binary.AppendUvarint([]byte{extraStamp}, math.MaxUint64), math.MaxUint64), []byte{1})
	f.Add([]byte{extraAssignment, 1, 8, 1, 0}, bytes.Repeat([]byte{1}, 30))
	f.Fuzz(func(t *testing.T, extra, handoff []byte) {
		if len(extra)+len(handoff) > 1<<16 {
			return
		}
		w := newNetwork(t, change, "a", "b")
		a, b := w.nodes["a"], w.nodes["b"]
		m := &lease.Message{From: b.set.Handle(), Stamp: b.set.Stamp(w.at("b")), SentAt: w.at("b"), Extra: extra, Handoff: handoff}
		a.Receive(w.at("a"), lease.Encode(m))
		w.run(time.Second)
		if a.ended || b.ended {
			t.Errorf("a has ended: %v, b: %v", a.ended, b.ended)
		}
		if _, err := lease.Decode(a.Sync(w.at("a"))); err != nil {
			t.Errorf("what a says: %v", err)
		}
	})
}
