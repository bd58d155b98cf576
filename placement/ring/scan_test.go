package ring_test

import (
	"crypto/sha1"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/roost-cluster/roost/lease"
)

// scan is a simple reference model of a ring. Its points have any order, and a lookup visits all of them.
type scan []scanned

type scanned struct {
	hash uint32
	id   lease.NodeID
}

func ringHash(s string) uint32 {
	sum := sha1.Sum([]byte(s))
	return binary.BigEndian.Uint32(sum[:4])
}

func newScan(ids ...lease.NodeID) scan {
	var points scan
	for v := range 160 {
		for _, id := range ids {
			points = append(points, scanned{ringHash(string(id) + "#" + strconv.Itoa(v)), id})
		}
	}
	return points
}

// owner returns the node of the first point at or after the hash of key. If there is no such point, it returns the node
// of the point with the lowest hash. It ignores the points of the nodes in gone.
func (s scan) owner(key string, gone ...lease.NodeID) lease.NodeID {
	hash := ringHash(key)
	var first, next *scanned
	for i := range s {
		p := &s[i]
		before := func(q *scanned) bool {
			return q == nil || p.hash < q.hash || p.hash == q.hash && p.id < q.id
		}
		if slices.Contains(gone, p.id) {
			continue
		}
		if before(first) {
			first = p
		}
		if p.hash >= hash && before(next) {
			next = p
		}
	}
	if next == nil {
		return first.id
	}
	return next.id
}
