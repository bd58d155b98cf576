package ring_test

import (
	stdcmp "cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement/ring"
)

func mustNew(t rapid.TB, ids ...lease.NodeID) *ring.Ring {
	t.Helper()
	r, err := ring.New(ids...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func owner(t rapid.TB, r *ring.Ring, key string) lease.NodeID {
	t.Helper()
	id, ok := r.Owner(key)
	if !ok {
		t.Fatal("nobody owns", key)
	}
	return id
}

// Every implementation of this ring must return these results.
func TestGolden(t *testing.T) {
	// The ring and its reference model must use the same hash.
	for s, want := range map[string]uint32{"node-a#0": 0xa6f3d383, "r-8842": 0x8b5f270a} {
		if got := ringHash(s); got != want {
			t.Errorf("hash of %q = %#x, want %#x", s, got, want)
		}
	}
	before := mustNew(t, "node-a", "node-b", "node-c")
	if id, ok := before.Owner("r-8842"); id != "node-c" || !ok {
		t.Errorf("r-8842 belongs to %q, %v; want node-c", id, ok)
	}
	joined, err := before.With("node-d")
	if err != nil {
		t.Fatal(err)
	}
	left, err := before.Without("node-b")
	if err != nil {
		t.Fatal(err)
	}
	counts, toD, fromB := map[lease.NodeID]int{}, 0, 0
	for i := range 1000 {
		room := "r-" + strconv.Itoa(i)
		was := owner(t, before, room)
		counts[was]++
		if now := owner(t, joined, room); now != was {
			toD++
			if now != "node-d" {
				t.Errorf("node-d joins, and %s moves from %s to %s", room, was, now)
			}
		}
		if now := owner(t, left, room); now != was {
			fromB++
			if was != "node-b" {
				t.Errorf("node-b leaves, and %s moves from %s to %s", room, was, now)
			}
		}
	}
	if diff := cmp.Diff(map[lease.NodeID]int{"node-a": 356, "node-b": 334, "node-c": 310}, counts); diff != "" {
		t.Errorf("rooms (-want +got):\n%s", diff)
	}
	if toD != 247 || fromB != 334 {
		t.Errorf("%d rooms moved to node-d and %d from node-b, want 247 and 334", toD, fromB)
	}
}

// anyIDs draws distinct ids.
func anyIDs(least, most int) *rapid.Generator[[]lease.NodeID] {
	id := rapid.Map(rapid.StringMatching(`[A-Za-z0-9._:-]{1,8}`), func(s string) lease.NodeID { return lease.NodeID(s) })
	return rapid.SliceOfNDistinct(id, least, most, rapid.ID)
}

func someKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "r-" + strconv.Itoa(i)
	}
	return keys
}

// The ring and its reference model agree about the owner, and about the next owner after each leave.
func TestAgreesWithScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := anyIDs(1, 10).Draw(t, "ids")
		key := rapid.String().Draw(t, "key")
		r, reference := mustNew(t, ids...), newScan(ids...)
		var want []lease.NodeID
		for len(want) < len(ids) {
			want = append(want, reference.owner(key, want...))
		}
		if got := owner(t, r, key); got != want[0] {
			t.Fatalf("owner %q, want %q", got, want[0])
		}
		for n := -1; n < len(ids)+2; n++ {
			if diff := cmp.Diff(want[:min(max(n, 0), len(ids))], r.Owners(key, n), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("Owners(%q, %d) (-want +got):\n%s", key, n, diff)
			}
		}
	})
}

// A point owns its own hash. Hashes beyond the last point belong to the first point.
func TestBoundaries(t *testing.T) {
	ids := []lease.NodeID{"node-a", "node-b", "node-c"}
	r, points := mustNew(t, ids...), newScan(ids...)
	for v := range 160 {
		for _, id := range ids {
			if key := string(id) + "#" + strconv.Itoa(v); owner(t, r, key) != id {
				t.Errorf("the hash of %s, a point of %s, belongs to %s", key, id, owner(t, r, key))
			}
		}
	}
	byHash := func(a, b scanned) int { return stdcmp.Compare(a.hash, b.hash) }
	first, last := slices.MinFunc(points, byHash), slices.MaxFunc(points, byHash)
	if first.id == last.id {
		t.Fatal("the first and the last point have one owner: the test cannot fail")
	}
	below, beyond := 0, 0
	for _, key := range someKeys(10_000) {
		switch hash := ringHash(key); {
		case hash < first.hash:
			below++
		case hash > last.hash:
			beyond++
		default:
			continue
		}
		if got := owner(t, r, key); got != first.id {
			t.Errorf("%s lies between the last point and the first, and belongs to %s, want %s", key, got, first.id)
		}
	}
	if below == 0 || beyond == 0 {
		t.Errorf("%d keys below the first point, %d beyond the last: the test cannot fail", below, beyond)
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := anyIDs(1, 12).Draw(t, "ids")
		shuffled := rapid.Permutation(ids).Draw(t, "shuffled")
		given := slices.Clone(shuffled)
		a, b := mustNew(t, ids...), mustNew(t, shuffled...)
		if !slices.Equal(given, shuffled) {
			t.Fatal("New modified its arguments")
		}
		if diff := cmp.Diff(a.Nodes(), b.Nodes()); diff != "" || !slices.IsSorted(a.Nodes()) {
			t.Fatalf("nodes %v, shuffled %v", a.Nodes(), b.Nodes())
		}
		for _, key := range someKeys(100) {
			if diff := cmp.Diff(a.Owners(key, 12), b.Owners(key, 12)); diff != "" {
				t.Fatalf("owners of %s:\n%s", key, diff)
			}
		}
	})
}

// When a node joins, keys move only to that node. When it leaves again, all keys return to their earlier owners.
func TestMovesTheMinimum(t *testing.T) {
	moved := 0
	rapid.Check(t, func(t *rapid.T) {
		ids := anyIDs(2, 12).Draw(t, "ids")
		one, others := ids[0], ids[1:]
		before := mustNew(t, others...)
		joined, err := before.With(one)
		if err != nil {
			t.Fatal(err)
		}
		left, err := joined.Without(one)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range someKeys(100) {
			was, is := owner(t, before, key), owner(t, joined, key)
			if is != was && is != one {
				t.Fatalf("%q joins, and %s moves from %q to %q", one, key, was, is)
			}
			if is != was {
				moved++
			}
			if diff := cmp.Diff(before.Owners(key, 12), left.Owners(key, 12)); diff != "" {
				t.Fatalf("%q came and went, and the owners of %s differ:\n%s", one, key, diff)
			}
		}
		if diff := cmp.Diff(before.Nodes(), left.Nodes()); diff != "" {
			t.Fatalf("nodes differ:\n%s", diff)
		}
		if slices.Contains(before.Nodes(), one) || !slices.Contains(joined.Nodes(), one) {
			t.Fatalf("a ring changed: %v before %q joined, %v after", before.Nodes(), one, joined.Nodes())
		}
	})
	if moved == 0 {
		t.Error("no join moved a key: nothing tested")
	}
}

// These pairs of points have the same hash (found by search). The hash belongs to the node with the smaller id, and to
// the other node when that node leaves. No node loses any of its points.
func TestCollisions(t *testing.T) {
	for _, tt := range []struct{ smaller, greater string }{
		{"node-196#40", "node-548#18"},
		{"node-144#150", "node-601#9"},
		{"node-1061#132", "node-314#75"},
		{"node-1263#19", "node-613#47"},
		{"node-1356#99", "node-1402#40"},
	} {
		if ringHash(tt.smaller) != ringHash(tt.greater) {
			t.Fatalf("%s and %s do not collide: this test tests nothing", tt.smaller, tt.greater)
		}
		id := func(point string) lease.NodeID {
			id, _, _ := strings.Cut(point, "#")
			return lease.NodeID(id)
		}
		smaller, greater := id(tt.smaller), id(tt.greater)
		for _, both := range []*ring.Ring{mustNew(t, smaller, greater), mustNew(t, greater, smaller)} {
			if diff := cmp.Diff([]lease.NodeID{smaller, greater}, both.Owners(tt.greater, 2)); diff != "" {
				t.Errorf("owners of the common hash (-want +got):\n%s", diff)
			}
		}
		// If a point were lost, a third node would become the second owner.
		three := mustNew(t, smaller, greater, "third")
		if diff := cmp.Diff([]lease.NodeID{smaller, greater}, three.Owners(tt.greater, 2)); diff != "" {
			t.Errorf("owners with a third node (-want +got):\n%s", diff)
		}
		for gone, want := range map[lease.NodeID]lease.NodeID{smaller: greater, greater: smaller, "third": smaller} {
			left, err := three.Without(gone)
			if err != nil {
				t.Fatal(err)
			}
			if got := owner(t, left, tt.smaller); got != want {
				t.Errorf("without %s the common hash belongs to %s, want %s", gone, got, want)
			}
		}
	}
}

// The errors name the problem.
func TestErrors(t *testing.T) {
	r := mustNew(t, "a", "b")
	one := mustNew(t, "a")
	for _, tt := range []struct {
		name string
		ring func() (*ring.Ring, error)
		want string
	}{
		{"empty", func() (*ring.Ring, error) { return ring.New() }, "a ring needs at least one node"},
		{"invalid id", func() (*ring.Ring, error) { return ring.New("a", "a#1") }, `node id "a#1": byte '#'`},
		{"no id", func() (*ring.Ring, error) { return ring.New("") }, `node id "" has 0 bytes`},
		{"twice", func() (*ring.Ring, error) { return ring.New("a", "b", "a") }, `node id "a" is given twice`},
		{"with an invalid id", func() (*ring.Ring, error) { return r.With("a b") }, `node id "a b": byte ' '`},
		{"with one more", func() (*ring.Ring, error) { return r.With("b") }, `node "b" is already on the ring`},
		{"without an unknown node", func() (*ring.Ring, error) { return r.Without("c") }, `node "c" is not on the ring`},
		{"without the last", func() (*ring.Ring, error) { return one.Without("a") }, "a ring needs at least one node"},
		{"nil without", func() (*ring.Ring, error) { return (*ring.Ring)(nil).Without("a") }, `node "a" is not on the ring`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.ring()
			if err == nil || !strings.HasPrefix(err.Error(), "ring: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want ring: … %s", err, tt.want)
			}
			if got != nil {
				t.Error("a ring beside the error")
			}
			if empty := strings.Contains(tt.want, "at least one"); errors.Is(err, ring.ErrEmpty) != empty {
				t.Errorf("%v is ErrEmpty: %v, want %v", err, !empty, empty)
			}
		})
	}
	for name, r := range map[string]*ring.Ring{"nil": nil, "zero": new(ring.Ring)} {
		if id, ok := r.Owner("key"); ok || id != "" {
			t.Errorf("the %s ring says that %q owns key, %v", name, id, ok)
		}
		if ids := r.Owners("key", 3); len(ids) != 0 || len(r.Nodes()) != 0 {
			t.Errorf("the %s ring has owners %v of nodes %v", name, ids, r.Nodes())
		}
		if with, err := r.With("a"); err != nil || owner(t, with, "key") != "a" {
			t.Errorf("the %s ring with a node: %v", name, err)
		}
	}
}

// The sink keeps the compiler from dropping the measured calls.
var sinkID lease.NodeID

// A lookup does not allocate, however long the key is.
func TestLookupDoesNotAllocate(t *testing.T) {
	r := mustNew(t, "node-a", "node-b", "node-c")
	for _, key := range []string{"", "r-8842", strings.Repeat("a long room name ", 20)} {
		if n := testing.AllocsPerRun(100, func() { sinkID, _ = r.Owner(key) }); n != 0 {
			t.Errorf("the lookup of %d bytes allocates %v times", len(key), n)
		}
	}
}
