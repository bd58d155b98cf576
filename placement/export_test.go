package placement_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// reread writes a table as JSON and reads it.
func reread(t rapid.TB, table *placement.Table) *placement.Table {
	t.Helper()
	b, err := json.Marshal(table.Export(7))
	if err != nil {
		t.Fatal(err)
	}
	var e placement.Export
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatal(err)
	}
	read, err := e.Table()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(table.Export(7), read.Export(e.Version)); diff != "" {
		t.Fatal("written and read (-want +got):\n", diff)
	}
	return read
}

// After an export and an import, a table is the same in every respect, for any strategy.
func TestExport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := anyNodes(0, 6).Draw(t, "nodes")
		for i := range nodes {
			nodes[i].Weight = min(nodes[i].Weight, 1000)
			nodes[i].Zone = rapid.SampledFrom([]string{"", "x", "\u202e"}).Draw(t, "zone")
			nodes[i].Capacity = rapid.Int64().Draw(t, "capacity")
			if rapid.Bool().Draw(t, "labelled") {
				nodes[i].Labels = map[string]string{"role": "sfu"}
			}
		}
		table := mustComputeBy(t, anyBuiltin().Draw(t, "strategy"), anyPartitions().Draw(t, "partitions"), nodes...)
		read := reread(t, table)
		if read.Digest() != table.Digest() || !cmp.Equal(read.Balance(), table.Balance()) {
			t.Fatalf("digest %v, balance %v; want %v, %v", read.Digest(), read.Balance(), table.Digest(), table.Balance())
		}
		for p := range placement.Partition(table.Partitions()) {
			if want, got := table.Rank(p, 4), read.Rank(p, 4); !slices.Equal(want, got) {
				t.Fatalf("partition %d ranks %v, want %v", p, got, want)
			}
		}
	})
}

// An imported table keeps its owners even if the reader does not have the strategy.
func TestExportOfAForeignTable(t *testing.T) {
	for _, name := range []string{"by-turns", "by-turns+zones", "bounded-rendezvous"} {
		table := mustComputeBy(t, fixed{name: name, assign: []int{1, 0, 1}, rank: []int{0, 1}}, 3, equals("a", "b")...)
		read := reread(t, table)
		if got := read.Rank(0, 2); read.Digest() != table.Digest() || !slices.Equal(got, []lease.NodeID{"b"}) {
			t.Errorf("%s: digest %v, want %v; ranks %v", name, read.Digest(), table.Digest(), got)
		}
	}
}

// Rank does not build a ring that Assign would reject. Otherwise each imported table could need memory for millions of
// points.
func TestImportOfARingTooLarge(t *testing.T) {
	nodes := []placement.Node{{ID: "a", Weight: math.MaxUint32}, {ID: "b", Weight: math.MaxUint32}}
	read := reread(t, mustComputeBy(t, fixed{name: "vnode-ring", assign: []int{1}}, 1, nodes...))
	if got := read.Rank(0, 2); !slices.Equal(got, []lease.NodeID{"b"}) {
		t.Errorf("it ranks %v", got)
	}
}

// Compute does not use an imported table as a base, because its owners may be wrong, as in this test.
func TestImportIsNoBase(t *testing.T) {
	nodes := fleet(1, 20)
	honest := mustCompute(t, 64, nodes...)
	var wrong []int
	for p := range placement.Partition(64) {
		wrong = append(wrong, (honest.OwnerIndex(p)+1)%len(nodes))
	}
	for _, name := range []string{"rendezvous", "rendezvous+zones"} {
		strategy, _ := placement.ParseStrategy(name)
		base := reread(t, mustComputeBy(t, fixed{name: name, assign: wrong}, 64, nodes...))
		in := placement.Input{Nodes: nodes[1:], Partitions: 64, Strategy: strategy, Base: base}
		table, err := placement.Compute(in)
		if want := mustComputeBy(t, strategy, 64, nodes[1:]...); err != nil || table.Digest() != want.Digest() {
			t.Errorf("%s: %v, %v; want %v", name, table.Digest(), err, want.Digest())
		}
	}
}

// Table rejects an export that contradicts itself, and the error gives the reason.
func TestImportRejects(t *testing.T) {
	const whole = `{"format":1,"version":3,"digest":"DIGEST","partitions":2,"strategy":"modulo","nodes":[{"id":"a","weight":1},{"id":"b","weight":1}],"owners":["a","b"]}`
	digest := mustComputeBy(t, placement.Modulo(), 2, equals("a", "b")...).Digest().String()
	read := func(text string) error {
		var e placement.Export
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return err
		}
		_, err := e.Table()
		return err
	}
	good := strings.Replace(whole, "DIGEST", digest, 1)
	if err := read(good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"format":1,`, ``, "its format is 0, but this program reads format 1"},
		{`"format":1`, `"format":2`, "its format is 2"},
		{`"partitions":2`, `"partitions":0`, "0 partitions; there must be 1 to 65536"},
		{`"partitions":2`, `"partitions":-1`, "-1 partitions"},
		{`"partitions":2`, `"partitions":65537`, "65537 partitions"},
		{`"partitions":2`, `"partitions":3`, "2 owners for 3 partitions"},
		{`"partitions":2`, `"partitions":1e99`, "cannot unmarshal number 1e99"},
		{`["a","b"]`, `null`, "0 owners for 2"},
		{`["a","b"]`, `["a","c"]`, `partition 1 belongs to "c", which is not among the 2 nodes`},
		{`["a","b"]`, `["a",""]`, `partition 1 belongs to ""`},
		{`["a","b"]`, `["b","a"]`, "its digest is " + digest + ", but the digest of its content is "},
		{digest, "00000000000000ff", "its digest is 00000000000000ff"},
		{digest, "f", "is not a digest"},
		{`"digest":"` + digest + `",`, ``, "its digest is 0000000000000000"},
		{`modulo`, `rendezvous`, "its digest is"},
		{`"modulo"`, `""`, "the strategy has no name"},
		{`modulo`, strings.Repeat("x", 257), "the strategy's name has 257 bytes, at most 256"},
		{`"id":"b"`, `"id":"a"`, `"a" is given twice`},
		{`"id":"b"`, `"id":"b c"`, "is not one of"},
		{`"id":"b"`, `"id":"` + strings.Repeat("b", 65) + `"`, "has 65 bytes"},
		{`"b","weight":1`, `"b","weight":0`, `belongs to "b", which is not among the 1 nodes with a weight`},
		{`"b","weight":1`, `"b","weight":4294967296`, "cannot unmarshal number 4294967296"},
		{`"b","weight":1`, `"b","weight":-1`, "cannot unmarshal number -1"},
		{`[{"id":"a","weight":1},{"id":"b","weight":1}]`, `[]`, `partition 0 belongs to "a", but there are no nodes`},
		{`{"id":"a","weight":1},`, strings.Repeat(`{"id":"a","weight":1},`, 65536), "65537 nodes, at most 65536"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%q is not in the document", c.old)
		}
		if err := read(text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q for %.40q: %v, want %q", c.new, c.old, err, c.want)
		}
	}
}

// The export of a nil table is empty, and cannot be imported.
func TestExportOfNoTable(t *testing.T) {
	var none *placement.Table
	b, err := json.Marshal(none.Export(0))
	want := `{"format":1,"version":0,"digest":"0000000000000000","partitions":0,"strategy":"","nodes":[],"owners":[]}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v; want %s", b, err, want)
	}
	if _, err := none.Export(0).Table(); err == nil {
		t.Error("it was read")
	}
}

// For any input, an import returns an error or a consistent table.
func FuzzImport(f *testing.F) {
	for _, s := range []placement.Strategy{
		nil, placement.LeastPartitions(1, 3), placement.Zoned(placement.Bounded(110)),
		fixed{name: "x", assign: []int{0, 1, 1}},
	} {
		b, err := json.Marshal(mustComputeBy(f, s, 3, equals("a", "b")...).Export(1))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"format":1,"partitions":2,"strategy":"vnode-ring","nodes":[{"id":"a","weight":4294967295},{"id":"b"}],"owners":["a","a"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e placement.Export
		if json.Unmarshal(b, &e) != nil {
			return
		}
		table, err := e.Table()
		if err != nil && strings.Contains(err.Error(), "the digest of its content is ") {
			// The fuzzer cannot compute a digest, so continue with the right digest.
			_, after, _ := strings.Cut(err.Error(), "the digest of its content is ")
			if err := e.Digest.UnmarshalText([]byte(after[:16])); err != nil {
				t.Fatal(err)
			}
			table, err = e.Table()
		}
		if err != nil {
			return
		}
		if read := reread(t, table); read.Digest() != table.Digest() {
			t.Fatal("it changes when it is written and read")
		}
		if c := placement.Diff(table, table); len(c.Moves) != 0 || c.ExpectedMin != 0 || placement.KeysMoved(table, table) != 0 {
			t.Fatalf("it differs from itself: %+v", c)
		}
		for p := range placement.Partition(min(table.Partitions(), 4)) {
			owner, ok := table.Owner(p)
			if ranked := table.Rank(p, 3); ok != (len(ranked) > 0) || ok && ranked[0] != owner {
				t.Fatalf("partition %d of %q ranks %v", p, owner, ranked)
			}
			_ = table.Why(p)
		}
		if total := sum(table.Balance().Counts); len(table.Nodes()) > 0 && total != table.Partitions() {
			t.Fatalf("%d partitions are owned of %d", total, table.Partitions())
		}
		if len(table.Nodes()) < 10 {
			assignment.Levelled(table)
		}
	})
}

func sum(counts map[lease.NodeID]int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

func ExampleTable_Export() {
	table, _ := placement.Compute(placement.Input{Partitions: 2, Nodes: []placement.Node{{ID: "a", Weight: 100, Zone: "x"}}})
	b, _ := json.Marshal(table.Export(12))
	fmt.Println(string(b))
	// Output: {"format":1,"version":12,"digest":"fab8d31addddac7a","partitions":2,"strategy":"rendezvous","nodes":[{"id":"a","weight":100,"zone":"x"}],"owners":["a","a"]}
}
