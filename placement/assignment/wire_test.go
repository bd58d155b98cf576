package assignment_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

func TestWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyHistory(nil, "x", 5).Draw(t, "a")
		b := a.Encode()
		back, err := assignment.Decode(b, 20)
		if err != nil || back.Digest() != a.Digest() || back.Version() != a.Version() {
			t.Fatalf("%d bytes are read back as version %d, %s: %v", len(b), back.Version(), back.Digest(), err)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if _, err := assignment.Decode(b[:cut], 20); !errors.Is(err, assignment.ErrMalformed) {
			t.Errorf("cut to %d of %d bytes: %v", cut, len(b), err)
		}
		if _, err := assignment.Decode(append(b, 0), 20); !errors.Is(err, assignment.ErrMalformed) {
			t.Errorf("a byte too many: %v", err)
		}
		if _, err := assignment.Decode(b, 21); !errors.Is(err, assignment.ErrMalformed) {
			t.Errorf("another number of partitions: %v", err)
		}
	})
	size := len(recorded(t, 1024, assignment.Coordinator{ID: "boss"}, fleet(100)...).Encode())
	if size > 12*1024 {
		t.Errorf("1,024 partitions take %d bytes", size)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(recorded(f, 3, assignment.Coordinator{ID: "a"}, equals("a", "b")...).Encode())
	last := binary.AppendUvarint([]byte{1, 3}, 1<<53)      // the last version
	f.Add(append(last, 1, 1, 'b', 0, 1, 0, 0, 0, 0, 0, 0)) // one id, the genesis, no voters, three partitions without an owner
	f.Add([]byte{1, 3, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := assignment.Decode(b, 3)
		if err != nil {
			if !errors.Is(err, assignment.ErrMalformed) || a != nil {
				t.Errorf("%v, %v", a, err)
			}
			return
		}
		again, err := assignment.Decode(a.Encode(), 3)
		if err != nil || again.Digest() != a.Digest() {
			t.Errorf("read back as %s instead of %s: %v", again.Digest(), a.Digest(), err)
		}
		for _, id := range a.Owners() {
			if err := id.Validate(); err != nil {
				t.Error(err)
			}
		}
		// Every assignment gives a table.
		in := placement.Input{Nodes: equals("a", "b"), Partitions: 3, Strategy: placement.LeastPartitions(1, 3), Memory: a}
		table, err := placement.Compute(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, next := range []*assignment.Assignment{
			level(t, table, assignment.Coordinator{ID: "a"}, a.Version(), false), assignment.Record(table, assignment.Coordinator{ID: "a"}),
		} { // and other nodes can decode the next version
			if _, err := assignment.Decode(next.Encode(), 3); err != nil {
				t.Error(err)
			}
		}
		_ = table.Why(0)
	})
}

// TestWireVectors pins the bytes: agents of different releases exchange them.
func TestWireVectors(t *testing.T) {
	m := &run{t: t, strategy: placement.LeastPartitions(1, 2), partitions: 6}
	step := func(c assignment.Coordinator, ids ...lease.NodeID) {
		m.compute(equals(ids...)...)
		m.assigned = assignment.Record(m.table, c)
		m.compute(equals(ids...)...)
	}
	step(assignment.Coordinator{ID: "a", Since: 300, Voters: []lease.NodeID{"a", "b"}, Active: 2}, "a", "b")
	step(assignment.Coordinator{ID: "a", Since: 300, Voters: []lease.NodeID{"a", "b", "c"}, Active: 3}, "a", "b", "c")
	m.assigned = level(t, m.table, assignment.Coordinator{ID: "a"}, m.assigned.Version(), false)
	step(assignment.Coordinator{ID: "c", Since: 400, Voters: []lease.NodeID{"a", "c"}, Active: 2}, "a", "c")
	step(assignment.Coordinator{
		ID:     "c",
		Since:  400,
		Voters: []lease.NodeID{"a", "c"},
		Active: 1,
		Gone:   func(id lease.NodeID) bool { return id == "b" },
	}, "c")
	const want = "01060503016101620163ac02010501020103030301010100000303020101000001010001000305030502030200000101000100030503050203020000"
	if got := hex.EncodeToString(m.assigned.Encode()); got != want || m.assigned.Digest().String() != "ce0d7b4629d0ca05" {
		t.Errorf("%s is %s\nwant %s", m.assigned.Digest(), got, want)
	}
	m = newRun(t, placement.LeastPartitions(1, 3), 1024, fleet(99)...)
	m.change(fleet(100)...)
	for range 5 {
		m.pass()
	}
	m.change(fleet(100)[3:]...)
	if b := m.assigned.Encode(); len(b) != 8673 || m.assigned.Digest().String() != "e9d270319b3be100" {
		t.Errorf("1,024 partitions of 100 nodes are %d bytes of digest %s", len(b), m.assigned.Digest())
	}
}
