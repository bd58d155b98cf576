// Package ring implements a consistent hash ring (Karger et al., "Consistent hashing and random trees", 1997)
// that assigns keys directly, without partitions. Every node has points on a circle of hashes, and a key
// belongs to the node with the first point at or after the key's hash. After the last point, the circle wraps
// around to the first point. So a join only moves keys to the joiner, and a leave only moves the leaver's
// keys.
//
//	r, err := ring.New("node-a", "node-b", "node-c")
//	…
//	owner, _ := r.Owner("room-17")
//	owners := r.Owners("room-17", 2) // the owner, and the node that follows it
//
// placement.ClassicRing and placement.VnodeRing place partitions on such rings.
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

// ErrEmpty means that a ring would have no nodes. New returns it if it gets no nodes, and Without returns it for the
// last node.
var ErrEmpty = errors.New("ring: a ring needs at least one node")

// maxPoints limits the memory of a ring, at 16 bytes per point.
const maxPoints = 4 << 20

// Ring is a consistent hash ring. Create it with [New] or [NewWeighted]. A Ring is immutable and safe for
// concurrent use, and each change of nodes returns a new Ring. In a nil or zero Ring, no key has an owner.
//
// # Balance
//
// Shares are far from equal, because a share is the sum of random arcs. The following table shows the
// difference between the nodes with the most and the fewest keys, relative to the mean. It was measured for
// many fleets with random names on rings of [New]:
//
//	nodes    1,000 keys    of them below 7 %    10,000 keys
//	    3          15 %                 14 %           13 %
//	    5          25 %                  1 %           19 %
//	   10          39 %                  0 %           26 %
//
// The values are medians. More keys don't improve the balance, because the arcs are uneven. To repeat the
// measurement:
//
//	go test -run '^$' -bench Spread -benchtime 1x ./placement/ring
//
// # Costs
//
// On a single core of a shared virtual machine, a lookup takes about 100 ns for 3 nodes and 125 ns for 1,000,
// mostly for SHA-1. A lookup in a placement.Table takes 8 ns. Creating a ring takes 0.07 ms for 3 nodes, 3.5
// ms for 100 and 40 ms for 1,000. A ring uses 2.5 kB of memory per node. Use a Ring only if other programs
// must find the same owners, and otherwise a Table.
type Ring struct {
	scheme scheme
	ids    []lease.NodeID       // sorted
	points []point              // sorted
	counts map[lease.NodeID]int // points of each node
}

// New returns a ring with 160 points per node. The order of the ids does not matter. The hash is the first
// four bytes of SHA-1, big-endian. Point v of a node, from 0 to 159, is the hash of its id, a # and v in
// decimal. Other programs that use the same scheme find the same owners. If two nodes have the same point,
// the smaller id owns it, but both points stay on the ring, so that either node can leave without affecting
// the other.
//
// SHA-1 only spreads keys here and does not provide security. An attacker who can choose keys can direct all
// of them to a single node. Under GODEBUG=fips140=only, SHA-1 panics.
//
// New fails if there are no nodes ([ErrEmpty]), if an id is invalid or repeated, or if there are more than
// four million points. New computes and sorts 160 hashes per node.
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

// NewWeighted returns a ring on which each node has the given number of points, 1 or more. The hash is
// xxHash64, and point v of a node is the hash of its id, a colon and v in decimal. NewWeighted fails in the
// same cases as New.
func NewWeighted(points map[lease.NodeID]int) (*Ring, error) {
	return scheme{hash: xxhash.Sum64String, sep: ":", usual: 150}.ring(points)
}

// With returns a ring with an additional node. The node gets 160 points on a ring of New, or 150 points on a
// ring of NewWeighted. With costs as much as New. It fails if id is invalid or already on the ring.
func (r *Ring) With(id lease.NodeID) (*Ring, error) {
	if len(r.Nodes()) == 0 { // r may be nil
		return New(id)
	}
	if _, found := slices.BinarySearch(r.ids, id); found {
		return nil, fmt.Errorf("ring: node %q is already on the ring", id)
	}
	points := maps.Clone(r.counts)
	points[id] = r.scheme.usual
	return r.scheme.ring(points)
}

// Without returns a ring without the given node. It costs as much as New. It fails if id is not on the ring,
// or if id is the only node on the ring ([ErrEmpty]).
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

// Owner returns the node that owns key, and false if the ring is nil or zero. It costs a hash and a binary
// search, and does not allocate.
func (r *Ring) Owner(key string) (lease.NodeID, bool) {
	i := r.Index(key)
	if i < 0 {
		return "", false
	}
	return r.ids[i], true
}

// Index returns the owner of key as an index into Nodes, or -1 if the ring is nil or zero.
func (r *Ring) Index(key string) int {
	if len(r.Nodes()) == 0 {
		return -1
	}
	return int(r.points[r.at(key)].node)
}

// Owners returns the n best nodes for key, all different, best first: the owner, then the node that would own
// key without the owner, and so on. It returns fewer if there are fewer nodes. Owners costs a lookup and a
// step for each point that it passes, which is about n steps, or more if n is close to the number of nodes.
func (r *Ring) Owners(key string, n int) []lease.NodeID {
	ranked := r.Rank(key, n)
	ids := make([]lease.NodeID, len(ranked))
	for at, i := range ranked {
		ids[at] = r.ids[i]
	}
	return ids
}

// Rank is like Owners, but returns indexes into Nodes.
func (r *Ring) Rank(key string, n int) []int {
	n = min(n, len(r.Nodes()))
	if n < 1 {
		return nil
	}
	ranked := make([]int, 0, n)
	seen := make([]bool, len(r.ids)) // searching in ranked would be quadratic in n
	for at := r.at(key); len(ranked) < n; at = (at + 1) % len(r.points) {
		if i := r.points[at].node; !seen[i] {
			seen[i] = true
			ranked = append(ranked, int(i))
		}
	}
	return ranked
}

// at returns the index of the point that owns key.
func (r *Ring) at(key string) int {
	i, _ := slices.BinarySearchFunc(r.points, r.scheme.hash(key), func(p point, hash uint64) int {
		return cmp.Compare(p.hash, hash)
	})
	if i == len(r.points) {
		return 0
	}
	return i
}

// point is the position of a node's point on the circle. The hash has 64 bits even if the scheme uses fewer.
type point struct {
	hash uint64
	node int32 // index, in the order of ids
}

// scheme defines how to compute the points of a ring.
type scheme struct {
	hash  func(string) uint64
	sep   string // separates the id and the number of a point in the hashed text
	usual int    // number of points of a node that With adds
}

// hashSHA1 uses the bytes of key in place, because a conversion would allocate if key has more than 32 bytes.
// This is safe because sha1.Sum does not modify or keep the bytes.
func hashSHA1(key string) uint64 {
	sum := sha1.Sum(unsafe.Slice(unsafe.StringData(key), len(key))) //nolint:gosec // as at the import
	return uint64(binary.BigEndian.Uint32(sum[:]))
}

// ring checks the nodes and puts their points on a circle. The ring keeps the map. Among equal hashes, the
// smaller id comes first, so that the owner of a key does not depend on the order in which nodes were added.
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
			return nil, fmt.Errorf("ring: %d points of %q and %d points of other nodes are more than the maximum of %d", counts[id], id, total, maxPoints)
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
