package assignment_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
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
	if size > 8*1024 {
		t.Errorf("1,024 partitions take %d bytes", size)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(recorded(f, 3, assignment.Coordinator{ID: "a"}, equals("a", "b")...).Encode())
	f.Add(encoded(1, 3, uint64(1<<53), []string{"b"}, 0, 1, 0, 0, nil, []any{nil, nil, nil})) // the last version, and partitions without an owner
	for _, b := range hostile() {
		f.Add(b)
	}
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
		// Compute accepts every assignment that Decode accepts.
		in := placement.Input{Nodes: equals("a", "b"), Partitions: 3, Strategy: placement.LeastPartitions(1, 3), Memory: a}
		table, err := placement.Compute(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, next := range []*assignment.Assignment{
			level(t, table, assignment.Coordinator{ID: "a"}, a.Version(), false), assignment.Record(table, assignment.Coordinator{ID: "a"}),
		} { // other nodes can decode the next version
			if _, err := assignment.Decode(next.Encode(), 3); err != nil {
				t.Error(err)
			}
		}
		_ = table.Why(0)
	})
}

// encoded returns an array of fields. Each field is an integer, a text, nil, or an array of these.
func encoded(fields ...any) []byte {
	var b []byte
	if err := codec.NewEncoderBytes(&b, &codec.MsgpackHandle{WriteExt: true, PositiveIntUnsigned: true}).Encode(fields); err != nil {
		panic(err)
	}
	return b
}

// tooManyIDs returns more ids than an assignment of three partitions can have.
func tooManyIDs() (ids []string) {
	for i := range 4*3 + lease.MaxNodes + 2 {
		ids = append(ids, fmt.Sprintf("n%06d", i))
	}
	return ids
}

// hostile returns encodings for three partitions that Decode must reject.
func hostile() map[string][]byte {
	ids := []string{"a", "b"}
	none := []any{nil, nil, nil}
	good := encoded(1, 3, 7, ids, 0, 1, 0, 0, []int{}, none)
	instead := func(last ...byte) []byte { return append(good[:len(good)-4:len(good)-4], last...) }
	entry := func(numbers ...int) []byte {
		return encoded(1, 3, 7, ids, 0, 1, 0, 0, []int{}, []any{nil, append([]int{}, numbers...), nil})
	}
	return map[string][]byte{
		"nothing":                    {},
		"an empty array":             {0x90},
		"a field too many":           encoded(1, 3, 7, ids, 0, 1, 0, 0, []int{}, none, nil),
		"a field missing":            encoded(1, 3, 7, ids, 0, 1, 0, 0, []int{}),
		"format 2":                   encoded(2, 3, 7, ids, 0, 1, 0, 0, []int{}, none),
		"four partitions":            encoded(1, 4, 7, ids, 0, 1, 0, 0, []int{}, append(none, nil)),
		"two entries":                encoded(1, 3, 7, ids, 0, 1, 0, 0, []int{}, none[:2]),
		"four entries":               encoded(1, 3, 7, ids, 0, 1, 0, 0, []int{}, append(none, nil)),
		"version 0":                  encoded(1, 3, 0, ids, 0, 1, 0, 0, []int{}, none),
		"version nil":                encoded(1, 3, nil, ids, 0, 1, 0, 0, []int{}, none),
		"version -1":                 encoded(1, 3, -1, ids, 0, 1, 0, 0, []int{}, none),
		"version 1.0":                encoded(1, 3, 1.0, ids, 0, 1, 0, 0, []int{}, none),
		"version 2^64-1":             encoded(1, 3, uint64(math.MaxUint64), ids, 0, 1, 0, 0, []int{}, none),
		"a bad id":                   encoded(1, 3, 7, []string{"a b"}, 0, 1, 0, 0, []int{}, none),
		"an empty id":                encoded(1, 3, 7, []string{""}, 0, 1, 0, 0, []int{}, none),
		"an unknown id":              encoded(1, 3, 7, ids, 0, 3, 0, 0, []int{}, none),
		"more active than voters":    encoded(1, 3, 7, ids, 0, 1, 7, 2, []int{1}, none),
		"a quorum of later":          encoded(1, 3, 7, ids, 0, 1, 8, 1, []int{1}, none),
		"ids out of order":           encoded(1, 3, 7, []string{"b", "a"}, 0, 1, 0, 0, []int{}, none),
		"an id twice":                encoded(1, 3, 7, []string{"a", "a"}, 0, 1, 0, 0, []int{}, none),
		"too many ids":               encoded(1, 3, 7, tooManyIDs(), 0, 1, 0, 0, []int{}, none),
		"voters out of order":        encoded(1, 3, 7, ids, 0, 1, 7, 1, []int{2, 1}, none),
		"a voter twice":              encoded(1, 3, 7, ids, 0, 1, 7, 1, []int{1, 1}, none),
		"no voter":                   encoded(1, 3, 7, ids, 0, 1, 7, 0, []int{0}, none),
		"an empty entry":             entry(),
		"an entry of two numbers":    entry(1, 1),
		"an entry of eight numbers":  entry(1, 1, 1, 0, 0, 0, 0, 0),
		"an entry without an owner":  entry(0, 1, 1),
		"an entry without a version": entry(1, 0, 1),
		"an entry of later":          entry(1, 8, 1),
		"an entry of an unknown id":  entry(3, 1, 1),
		"an entry of a wide cause":   entry(1, 1, 1, 0, 99),
		"a deputy of no version":     entry(1, 1, 1, 0, 0, 2),
		"entries of 2^32-1":          instead(0xdd, 0xff, 0xff, 0xff, 0xff),
		"entries as bytes":           instead(0xc6, 0xff, 0xff, 0xff, 0xff),
		"nested entries":             instead(bytes.Repeat([]byte{0x93}, 6<<20)...),
		"ids of 2^32-1":              {0x9a, 1, 3, 7, 0xdd, 0xff, 0xff, 0xff, 0xff},
		"an id of 4 GiB":             {0x9a, 1, 3, 7, 0x91, 0xdb, 0xff, 0xff, 0xff, 0xff, 'x'},
		"nested ids":                 append([]byte{0x9a, 1, 3, 7}, bytes.Repeat([]byte{0x91}, 6<<20)...),
		"two":                        append(bytes.Clone(good), good...),
	}
}

// Decode allocates only a little memory for hostile encodings, whatever sizes they claim.
func TestDecodeOfHostileBytes(t *testing.T) {
	_, err := assignment.Decode(encoded(1, 3, 7, []string{"a", "b"}, 0, 1, 7, 2, []int{1, 2}, []any{nil, []int{1, 7, 2, 2, 1, 2, 7}, nil}), 3)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range hostile() {
		a, err := assignment.Decode(b, 3)
		if a != nil || !errors.Is(err, assignment.ErrMalformed) {
			t.Errorf("%s: %v, %v", name, a, err)
		}
		least := uint64(math.MaxUint64)
		for range 3 { // the garbage collector may have emptied the pool of reusable buffers
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _ = assignment.Decode(b, 3)
			runtime.ReadMemStats(&after)
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		if least > 8<<10 {
			t.Errorf("%s: %d bytes take %d", name, len(b), least)
		}
	}
}

// Even a very large assignment fits into the space that a message has for it.
func TestLargestFits(t *testing.T) {
	a := recorded(t, 16384, assignment.Coordinator{ID: "boss"}, fleet(1000)...)
	b := a.Encode()
	back, err := assignment.Decode(b, 16384)
	if err != nil || back.Digest() != a.Digest() || len(b) > lease.MaxExtraBytes/4 {
		t.Errorf("%d bytes: %v", len(b), err)
	}
	t.Logf("16,384 partitions of 1,000 nodes take %d bytes", len(b))
}

// TestWireVectors pins the encoded bytes, because agents of different releases exchange them.
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
	const want = "9a01060593a161a162a163cd012c0105019201039695030301010195030301020197010101c0c0030595030503020297010101c0c00305950305030202"
	if got := hex.EncodeToString(m.assigned.Encode()); got != want || m.assigned.Digest().String() != "26c2a169c5e02f1b" {
		t.Errorf("%s is %s\nwant %s", m.assigned.Digest(), got, want)
	}
	// An independent decoder finds each field at the position that the page about the wire format specifies.
	handle := &codec.MsgpackHandle{}
	handle.RawToString = true
	var v any
	err := codec.NewDecoderBytes(m.assigned.Encode(), handle).Decode(&v)
	if got := fmt.Sprint(v); err != nil ||
		got != "[1 6 5 [a b c] 300 1 5 1 [1 3] [[3 3 1 1 1] [3 3 1 2 1] [1 1 1 <nil> <nil> 3 5] [3 5 3 2 2] [1 1 1 <nil> <nil> 3 5] [3 5 3 2 2]]]" {
		t.Errorf("%s, %v", got, err)
	}
	m = newRun(t, placement.LeastPartitions(1, 3), 1024, fleet(99)...)
	m.change(fleet(100)...)
	for range 5 {
		m.pass()
	}
	m.change(fleet(100)[3:]...)
	if b := m.assigned.Encode(); len(b) != 5752 || m.assigned.Digest().String() != "1dd34f45d46e36ce" {
		t.Errorf("1,024 partitions of 100 nodes are %d bytes of digest %s", len(b), m.assigned.Digest())
	}
}
