// Package ring is the ring of consistent hashing (Karger et al., "Consistent
// hashing and random trees", 1997), for keys rather than partitions. Every node has
// points on a circle of hashes, and a key belongs to the node of the first point at
// or after its own hash; past the last point, to that of the first. A join therefore
// moves keys only to the joiner, a leave only the leaver's.
//
// placement.ClassicRing and placement.VnodeRing place partitions by such rings.
package ring

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // classic rings are by SHA-1; nothing relies on it
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unsafe"

	"github.com/cespare/xxhash/v2"

	"github.com/roost-cluster/roost/lease"
)

// ErrEmpty is the error of a ring without nodes: of New without arguments, and of
// Without for the last node.
var ErrEmpty = errors.New("ring: a ring needs at least one node")

// maxPoints bounds the memory of a ring, at 16 bytes a point.
const maxPoints = 4 << 20

// Ring is a ring as [New] or [NewWeighted] makes it. It is immutable: any number of
// goroutines may read one, and a change of nodes is a new Ring. In the nil Ring, like
// the zero one, no key has an owner.
//
// # Balance
//
// A share is the sum of random arcs, and far from equal. Over many fleets of random
// names on rings of [New], the busiest node's keys less the idlest's, relative to the
// mean:
//
//	nodes    1,000 keys    of them below 7 %    10,000 keys
//	    3          15 %                 14 %           13 %
//	    5          25 %                  1 %           19 %
//	   10          39 %                  0 %           26 %
//
// These are medians; more keys bring them no lower than the arcs are uneven.
// Measured by
//
//	go test -run '^$' -bench Spread -benchtime 1x ./placement/ring
//
// # Costs
//
// Measured on one core of a shared virtual machine: a lookup takes some 100 ns
// for 3 nodes and 125 ns for 1,000, most of it for SHA-1, against 8 ns in a
// placement.Table. To make a ring takes 0.07 ms for 3 nodes, 3.5 ms for 100 and
// 40 ms for 1,000, and it keeps 2.5 kB a node. Prefer a Table where no other program
// has to agree.
type Ring struct {
	scheme scheme
	ids    []lease.NodeID       // sorted
	points []point              // sorted
	counts map[lease.NodeID]int // points of each node
}

// New returns the ring of the nodes, given in any order, with 160 points each. The
// hash is the first four bytes of SHA-1, big-endian, and point v of a node, 0 to 159,
// is the hash of its id, a # and v in decimal. Other programs that do the same find
// the same owners. Where points of two nodes fall together, the smaller id has them;
// both stay on the ring, so that each node leaves with exactly its own.
//
// SHA-1 spreads here and protects nothing: an attacker who chooses keys can choose
// them all for one node. Under GODEBUG=fips140=only, SHA-1 panics.
//
// An error means that there are no nodes ([ErrEmpty]), that an id is invalid or
// repeated, or that there are more than four million points. It costs 160 hashes a
// node and a sort of them all.
func New(ids ...lease.NodeID) (*Ring, error) {
	s := scheme{hash: hashSHA1, sep: "#", usual: 160}
	points := make(map[lease.NodeID]int, len(ids))
	for _, id := range ids {
		if points[id] > 0 {
			return nil, fmt.Errorf("ring: node id %q is given twice", id)
		}
		points[id] = s.usual
	}
	return s.ring(points)
}

// NewWeighted returns the ring on which each node has a number of points of its own,
// 1 or more. The hash is xxHash64, and point v of a node is the hash of its id, a
// colon and v in decimal. It fails like New.
func NewWeighted(points map[lease.NodeID]int) (*Ring, error) {
	return scheme{hash: xxhash.Sum64String, sep: ":", usual: 150}.ring(points)
}

// With returns the ring with one node more, which gets 160 points on a ring of New
// and 150 on another. It costs as much as New. An error means that id is invalid or
// on the ring already.
func (r *Ring) With(id lease.NodeID) (*Ring, error) {
	if len(r.Nodes()) == 0 { // r may be nil
		return New(id)
	}
	if _, found := slices.BinarySearch(r.ids, id); found {
		return nil, fmt.Errorf("ring: node %q is on the ring already", id)
	}
	points := maps.Clone(r.counts)
	points[id] = r.scheme.usual
	return r.scheme.ring(points)
}

// Without returns the ring with one node less. It costs as much as New. An error
// means that id is not on the ring, or is alone on it ([ErrEmpty]).
func (r *Ring) Without(id lease.NodeID) (*Ring, error) {
	if _, found := slices.BinarySearch(r.Nodes(), id); !found {
		return nil, fmt.Errorf("ring: node %q is not on the ring", id)
	}
	points := maps.Clone(r.counts)
	delete(points, id)
	return r.scheme.ring(points)
}

// Nodes returns the ids of the nodes, sorted. The slice is shared and must not
// be modified.
func (r *Ring) Nodes() []lease.NodeID {
	if r == nil {
		return nil
	}
	return r.ids
}

// Owner returns the node that key belongs to, and false when the ring is nil or
// zero. It costs a hash and a binary search, and does not allocate.
func (r *Ring) Owner(key string) (lease.NodeID, bool) {
	i := r.Index(key)
	if i < 0 {
		return "", false
	}
	return r.ids[i], true
}

// Index is Owner as an index into Nodes; it is -1 for no owner.
func (r *Ring) Index(key string) int {
	if len(r.Nodes()) == 0 {
		return -1
	}
	return int(r.points[r.at(key)].node)
}

// Owners returns the n best nodes for key, distinct and best first: the owner,
// then the node that would own key without the owner, and so on, in the order of
// their next points. There are fewer when there are fewer nodes. It costs a
// lookup and a step for each point passed: about n, more as n nears them all.
func (r *Ring) Owners(key string, n int) []lease.NodeID {
	ranked := r.Rank(key, n)
	ids := make([]lease.NodeID, len(ranked))
	for at, i := range ranked {
		ids[at] = r.ids[i]
	}
	return ids
}

// Rank is Owners as indexes into Nodes.
func (r *Ring) Rank(key string, n int) []int {
	n = min(n, len(r.Nodes()))
	if n < 1 {
		return nil
	}
	ranked := make([]int, 0, n)
	seen := make([]bool, len(r.ids)) // a search of ranked would be quadratic in n
	for at := r.at(key); len(ranked) < n; at = (at + 1) % len(r.points) {
		if i := r.points[at].node; !seen[i] {
			seen[i] = true
			ranked = append(ranked, int(i))
		}
	}
	return ranked
}

// at returns the index of the point that key falls to.
func (r *Ring) at(key string) int {
	i, _ := slices.BinarySearchFunc(r.points, r.scheme.hash(key), func(p point, hash uint64) int {
		return cmp.Compare(p.hash, hash)
	})
	if i == len(r.points) {
		return 0
	}
	return i
}

// point is one place of a node on the circle. Hashes have 64 bits here however many
// of them the scheme leaves.
type point struct {
	hash uint64
	node int32 // index, in the order of ids
}

// scheme is the rule for the points of a ring.
type scheme struct {
	hash  func(string) uint64
	sep   string // stands between id and number in the text that is hashed for a point
	usual int    // points of a node
}

// hashSHA1 looks at the bytes of key in place, since a conversion allocates for
// keys of more than 32 bytes; sha1.Sum neither modifies nor keeps them.
func hashSHA1(key string) uint64 {
	sum := sha1.Sum(unsafe.Slice(unsafe.StringData(key), len(key))) //nolint:gosec // as at the import
	return uint64(binary.BigEndian.Uint32(sum[:]))
}

// ring checks the nodes and puts their points on a circle. It keeps the map. Of equal
// hashes the smaller id comes first: the owner of a key must not depend on the order
// of arrival.
func (s scheme) ring(counts map[lease.NodeID]int) (*Ring, error) {
	if len(counts) == 0 {
		return nil, ErrEmpty
	}
	r := &Ring{scheme: s, ids: slices.Sorted(maps.Keys(counts)), counts: counts}
	total := 0
	for _, id := range r.ids {
		if err := id.Validate(); err != nil {
			return nil, fmt.Errorf("ring: %w", err)
		}
		if counts[id] < 1 || counts[id] > maxPoints-total {
			return nil, fmt.Errorf("ring: %d points of %q, after %d of others; there may be %d", counts[id], id, total, maxPoints)
		}
		total += counts[id]
	}
	r.points = make([]point, 0, total)
	for i, id := range r.ids {
		for v := range counts[id] {
			r.points = append(r.points, point{s.hash(string(id) + s.sep + strconv.Itoa(v)), int32(i)})
		}
	}
	slices.SortFunc(r.points, func(a, b point) int {
		if a.hash != b.hash {
			return cmp.Compare(a.hash, b.hash)
		}
		return cmp.Compare(a.node, b.node)
	})
	return r, nil
}
