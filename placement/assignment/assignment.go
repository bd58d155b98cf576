package assignment

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Assignment records the owner of each partition and how it became the owner. It is immutable. Nil means that
// no partition has been assigned yet.
type Assignment struct {
	genesis genesis
	entries []entry // by partition
	quorum  quorum
	version uint64
	digest  placement.Digest
}

// quorum lists the members at the time of a version.
type quorum struct {
	version uint64         // of the assignment that introduced it
	voters  []lease.NodeID // sorted
	active  uint64         // how many members were active
}

func (q quorum) compare(o quorum) int {
	return cmp.Or(cmp.Compare(q.version, o.version), cmp.Compare(q.active, o.active), slices.Compare(q.voters, o.voters))
}

// genesis identifies the first version of an assignment by its writer and the start of that node. Assignments
// with different genesis have nothing in common. The smallest genesis is the oldest.
type genesis struct {
	since uint64
	by    lease.NodeID
}

func (g genesis) compare(o genesis) int {
	return cmp.Or(cmp.Compare(g.since, o.since), cmp.Compare(g.by, o.by))
}

// entry is the record of one partition. The zero entry means that the partition has no owner.
type entry struct {
	owner   lease.NodeID
	version uint64       // of the assignment in which it became the owner
	from    lease.NodeID // the previous owner; "" = none
	by      lease.NodeID // the coordinator that made it the owner
	cause   cause

	deputy lease.NodeID // holds the partition while the owner is away; "" = none
	stand  uint64       // version of the assignment in which the deputy last changed
}

// cause is the reason why a node is the owner.
type cause uint8

const (
	causeFirst cause = iota // the partition had no owner, and the strategy chose this one
	causeLevel              // a pass moved the partition
	causeGone               // the deputy of an owner that did not come back
	causes
)

// maxVersion is the highest integer that JSON readers with floating-point numbers still represent exactly.
const maxVersion = 1 << 53

// changed is the version of the last change of e.
func (e *entry) changed() uint64 { return max(e.version, e.stand) }

// compare orders the entries of one partition by age. It is a total order, so that the merged entry does not
// depend on the order of merging.
func (e *entry) compare(o *entry) int {
	return cmp.Or(
		cmp.Compare(e.version, o.version), cmp.Compare(e.stand, o.stand),
		cmp.Compare(e.owner, o.owner), cmp.Compare(e.deputy, o.deputy),
		cmp.Compare(e.from, o.from), cmp.Compare(e.by, o.by), cmp.Compare(e.cause, o.cause),
	)
}

// finish sets the digest. The assignment must not change afterwards.
func (a *Assignment) finish() *Assignment {
	a.digest = placement.Digest(xxhash.Sum64(a.Encode()))
	return a
}

// Version grows with each change. A merged assignment has the greater of the two versions, and nil has
// version 0. Two assignments with the same version can differ if two nodes wrote them at the same time.
func (a *Assignment) Version() uint64 {
	if a == nil {
		return 0
	}
	return a.version
}

// Digest is equal exactly if the content is equal, except for collisions of 64 bits. It is 0 for nil.
func (a *Assignment) Digest() placement.Digest {
	if a == nil {
		return 0
	}
	return a.digest
}

// Owners returns the owners of all partitions, sorted and each once, including absent nodes. It costs one
// pass.
func (a *Assignment) Owners() []lease.NodeID {
	if a == nil {
		return nil
	}
	seen := make(map[lease.NodeID]bool)
	var ids []lease.NodeID
	for i := range a.entries {
		if id := a.entries[i].owner; id != "" && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Voters returns the nodes that count for Quorum. The slice is shared and must not
// be modified.
func (a *Assignment) Voters() []lease.NodeID {
	if a == nil {
		return nil
	}
	return a.quorum.voters
}

// Quorum reports whether nodes that see these members, sorted, may write the next version. They may if the
// members include most of the voters, or half of the voters with the first one, or if there are as many
// members as were active at the last change. Any node may write the first version.
func (a *Assignment) Quorum(members []lease.NodeID) bool {
	if a == nil {
		return true
	}
	votes := 0 // two for each voter and one more for the first, so two sides cannot both have half
	for i, id := range a.quorum.voters {
		if _, ok := slices.BinarySearch(members, id); ok {
			votes += 2
			if i == 0 {
				votes++
			}
		}
	}
	return votes > len(a.quorum.voters) || uint64(len(members)) >= a.quorum.active
}

// maxAhead limits how far the versions of two assignments may be apart. maxFirst limits the version of the
// first assignment that a node receives. No cluster makes so many changes. Without the limits, a hostile
// version could be so high that no node could write a later one.
const (
	maxAhead = 1 << 32
	maxFirst = maxVersion / 2
)

// ReplacedBy reports whether Merge would drop a for b, because b has another, older beginning.
func (a *Assignment) ReplacedBy(b *Assignment) bool {
	return a != nil && b != nil && a.genesis.compare(b.genesis) > 0
}

// BegunBy reports whether c wrote the first version of a.
func (a *Assignment) BegunBy(c Coordinator) bool {
	return a != nil && a.genesis == genesis{c.Since, c.ID}
}

// Merge returns the assignment that has the later entry of each partition. It returns a itself if b has no
// later entry. If the assignments have separate beginnings, it returns the older one. If their versions are
// impossibly far apart, it returns the one with the lower version. Merge fails if the numbers of partitions
// differ, or if the version of b is impossible. It costs O(partitions).
func (a *Assignment) Merge(b *Assignment) (*Assignment, error) {
	if b == nil || (a != nil && a.digest == b.digest) {
		return a, nil
	}
	if err := a.mergeable(b); err != nil {
		return a, err
	}
	if a == nil || a.version > b.version+maxAhead {
		return b, nil
	}
	merged := *a
	switch order := a.genesis.compare(b.genesis); {
	case order > 0:
		merged = *b
	case order == 0:
		merged.mergeEntries(b)
		if a.quorum.compare(b.quorum) < 0 {
			merged.quorum = b.quorum
		}
	}
	merged.version = max(a.version, b.version)
	if merged.finish(); merged.digest == a.digest {
		return a, nil
	}
	return &merged, nil
}

// mergeable reports why b cannot be merged, or nil.
func (a *Assignment) mergeable(b *Assignment) error {
	switch {
	case a == nil && b.version > maxFirst:
		return fmt.Errorf("assignment: version %d is too far ahead for a first one", b.version)
	case a == nil:
		return nil
	case len(a.entries) != len(b.entries):
		return fmt.Errorf("assignment: it has %d partitions, want %d", len(b.entries), len(a.entries))
	case b.version > a.version+maxAhead:
		return fmt.Errorf("assignment: version %d is too far ahead of version %d", b.version, a.version)
	}
	return nil
}

func (a *Assignment) mergeEntries(b *Assignment) {
	merged := slices.Clone(a.entries)
	for p := range merged {
		if b.entries[p].compare(&merged[p]) > 0 {
			merged[p] = b.entries[p]
		}
	}
	a.entries = merged
}

// From returns the assignment that t was derived from. It is nil if t's strategy does not remember owners, or
// if no partition was assigned before.
func From(t *placement.Table) *Assignment {
	a, _ := t.Memory().(*Assignment)
	return a
}

// Held implements [placement.Memory]: the holder of a partition is its owner if the owner is present, or else
// its deputy.
func (a *Assignment) Held(nodes []placement.Node) []int {
	if a == nil {
		return nil
	}
	index := make(map[lease.NodeID]int, len(nodes))
	for i, n := range nodes {
		index[n.ID] = i
	}
	held := make([]int, len(a.entries))
	for p := range held {
		e := &a.entries[p]
		i, ok := index[e.owner]
		if !ok {
			i, ok = index[e.deputy]
		}
		if !ok {
			i = -1
		}
		held[p] = i
	}
	return held
}

// Why implements [placement.Memory].
func (a *Assignment) Why(p placement.Partition, holder lease.NodeID) string {
	if a == nil || uint64(p) >= uint64(len(a.entries)) {
		return ""
	}
	e := &a.entries[p]
	switch {
	case e.owner == "":
		return ""
	case e.deputy == holder:
		return fmt.Sprintf("%s stands in, since version %d of the assignment, for its owner %s, which is away or drains",
			holder, e.stand, e.owner)
	case e.owner != holder:
		return fmt.Sprintf("its owner %s is away or drains, and %s takes over", e.owner, holder)
	case e.cause == causeLevel:
		return fmt.Sprintf("%s moved it from %s to %s, to even out the load, in version %d of the assignment", e.by, e.from, holder, e.version)
	case e.cause == causeGone:
		return fmt.Sprintf("%s stood in for %s, which did not come back; %s made it the owner in version %d of the assignment",
			holder, e.from, e.by, e.version)
	}
	return fmt.Sprintf("it had no owner, and the strategy chose %s; %s recorded that in version %d of the assignment", holder, e.by, e.version)
}
