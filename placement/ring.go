package placement

import (
	"cmp"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unsafe"

	"github.com/roost-cluster/roost/lease"
)

// ErrEmptyRing is the error of a ring without nodes: none were given, or the
// last one was to go.
var ErrEmptyRing = errors.New("placement: a ring needs at least one node")

// Ring is the classic ring of consistent hashing (Karger et al., "Consistent
// hashing and random trees", 1997). Every node has 160 points on a circle of
// hashes, and a key belongs to the node of the first point at or after its own
// hash; past the last point, to that of the first. A join therefore moves keys
// only to the joiner, a leave only the leaver's.
//
// The hash is the first four bytes of SHA-1, big-endian, and point v of a node,
// 0 to 159, is the hash of its id, a # and v in decimal. Other programs that do
// the same find the same owners. Where points of two nodes fall together, the
// smaller id has them; both stay on the ring, so that each node leaves with
// exactly its own.
//
// # Balance
//
// A share is the sum of 160 random arcs, and far from equal. Over many fleets of
// random names, the busiest node's keys less the idlest's, relative to the mean:
//
//	nodes    1,000 keys    of them below 7 %    10,000 keys
//	    3          15 %                 14 %           13 %
//	    5          25 %                  1 %           19 %
//	   10          39 %                  0 %           26 %
//
// These are medians; more keys bring them no lower than the arcs are uneven.
// Measured by
//
//	go test -run '^$' -bench RingSpread -benchtime 1x ./placement
//
// # Costs
//
// Measured on one core of a shared virtual machine: a look-up takes some 100 ns
// for 3 nodes and 125 ns for 1,000, most of it for SHA-1, against 8 ns in a
// [Table]. To make a ring takes 0.07 ms for 3 nodes, 3.5 ms for 100 and 40 ms for
// 1,000, and it keeps 2.5 kB a node. Where no other program has to agree, prefer
// a Table.
//
// # Use
//
// A Ring is immutable: any number of goroutines may read one, and a change of
// nodes is a new Ring. In the nil Ring, like the zero one, nobody owns anything.
// SHA-1 spreads here and protects nothing: who may choose keys can choose them
// all for one node. Under GODEBUG=fips140=only, SHA-1 panics.
type Ring struct {
	scheme ringScheme
	ids    []lease.NodeID // sorted
	points []point        // sorted
}

// NewRing returns the ring of the nodes, given in any order. An error means that
// there are none ([ErrEmptyRing]), or that an id is invalid or repeated. It costs
// 160 hashes a node and a sort of them all.
func NewRing(ids ...lease.NodeID) (*Ring, error) { return classicRing().ring(ids) }

// With returns the ring with one node more. It costs as much as NewRing. An
// error means that id is invalid or on the ring already.
func (r *Ring) With(id lease.NodeID) (*Ring, error) {
	if len(r.Nodes()) == 0 { // r may be nil
		return NewRing(id)
	}
	if _, found := slices.BinarySearch(r.ids, id); found {
		return nil, fmt.Errorf("placement: node %q is on the ring already", id)
	}
	return r.scheme.ring(append(slices.Clone(r.ids), id))
}

// Without returns the ring with one node less. It costs as much as NewRing. An
// error means that id is not on the ring, or is alone on it ([ErrEmptyRing]).
func (r *Ring) Without(id lease.NodeID) (*Ring, error) {
	i, found := slices.BinarySearch(r.Nodes(), id)
	if !found {
		return nil, fmt.Errorf("placement: node %q is not on the ring", id)
	}
	return r.scheme.ring(slices.Delete(slices.Clone(r.ids), i, i+1))
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
// zero. It costs a SHA-1 and a binary search, and does not allocate.
func (r *Ring) Owner(key string) (lease.NodeID, bool) {
	if len(r.Nodes()) == 0 {
		return "", false
	}
	return r.ids[r.points[r.at(key)].node], true
}

// Owners returns the n best nodes for key, distinct and best first: the owner,
// then the node that would own key without the owner, and so on, in the order of
// their next points. There are fewer when there are fewer nodes. It costs a
// look-up and a step for each point passed: about n, more as n nears them all.
func (r *Ring) Owners(key string, n int) []lease.NodeID {
	ranked := r.rank(key, n)
	ids := make([]lease.NodeID, len(ranked))
	for at, i := range ranked {
		ids[at] = r.ids[i]
	}
	return ids
}

// rank is Owners as indexes into ids.
func (r *Ring) rank(key string, n int) []int {
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

// point is one place of a node on the circle. Hashes have 64 bits here whatever
// the scheme leaves of them.
type point struct {
	hash uint64
	node int32 // index, in the order of ids
}

// ringScheme says where points lie; the rest of a ring follows from that.
type ringScheme struct {
	hash   func(string) uint64
	vnodes func(Node) int // points of a node
	sep    string         // stands between id and number in what is hashed for a point
}

func classicRing() ringScheme {
	return ringScheme{hash: hashSHA1, vnodes: func(Node) int { return 160 }, sep: "#"}
}

// hashSHA1 looks at the bytes of key in place, since a conversion allocates for
// keys of more than 32 bytes; sha1.Sum neither modifies nor keeps them.
func hashSHA1(key string) uint64 {
	sum := sha1.Sum(unsafe.Slice(unsafe.StringData(key), len(key)))
	return uint64(binary.BigEndian.Uint32(sum[:]))
}

// ring checks the ids, and neither modifies nor keeps the slice.
func (s ringScheme) ring(ids []lease.NodeID) (*Ring, error) {
	nodes := make([]Node, len(ids))
	for i, id := range ids {
		nodes[i] = Node{ID: id, Weight: 1}
	}
	nodes, err := candidates(nodes)
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, ErrEmptyRing
	}
	return s.place(nodes), nil
}

// place puts the points of nodes, sorted by id, on a circle. Of equal hashes the
// smaller id comes first: who owns a key must not depend on the order of arrival.
func (s ringScheme) place(nodes []Node) *Ring {
	total := 0
	for _, n := range nodes {
		total += s.vnodes(n)
	}
	r := &Ring{
		scheme: s,
		ids:    make([]lease.NodeID, len(nodes)),
		points: make([]point, 0, total),
	}
	for i, n := range nodes {
		r.ids[i] = n.ID
		for v := range s.vnodes(n) {
			hash := s.hash(string(n.ID) + s.sep + strconv.Itoa(v))
			r.points = append(r.points, point{hash: hash, node: int32(i)})
		}
	}
	slices.SortFunc(r.points, func(a, b point) int {
		if a.hash != b.hash {
			return cmp.Compare(a.hash, b.hash)
		}
		return cmp.Compare(a.node, b.node)
	})
	return r
}
