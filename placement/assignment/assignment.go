package assignment

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Assignment records the owner of each partition and why the node became the owner. An Assignment is
// immutable. A nil Assignment means that no partition has been assigned yet.
type Assignment struct {
	genesis genesis
	entries []entry // by partition
	quorum  quorum
	version uint64
	digest  placement.Digest
}

// quorum records the members at the time of a version.
type quorum struct {
	version uint64         // version of the assignment that introduced the quorum
	voters  []lease.NodeID // sorted
	active  uint64         // how many members were active
}

func (q quorum) compare(o quorum) int {
	return cmp.Or(cmp.Compare(q.version, o.version), cmp.Compare(q.active, o.active), slices.Compare(q.voters, o.voters))
}

// genesis identifies the first version of an assignment by its writer and the writer's start time.
// Assignments with different geneses were started independently. The smallest genesis is the oldest.
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
	version uint64       // version of the assignment in which the node became the owner
	from    lease.NodeID // the previous owner; "" = none
	by      lease.NodeID // the coordinator that made the node the owner
	cause   cause

	deputy lease.NodeID // holds the partition while the owner is away; "" = none
	stand  uint64       // version of the assignment in which the deputy last changed
}

// cause is the reason why a node is the owner.
type cause uint8

const (
	causeFirst cause = iota // the partition had no owner, and the strategy chose this node
	causeLevel              // a pass moved the partition
	causeGone               // the node was the deputy of an owner that did not return
	causes
)

// maxVersion is the highest possible version, which JSON readers with floating-point numbers can still
// represent exactly.
const maxVersion = 1 << 53

// changed returns the version of the last change of e.
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

// Version increases with each change. A merged assignment has the greater of the two versions, and a nil
// Assignment has version 0. Two assignments with the same version can differ if two nodes wrote them
// concurrently.
func (a *Assignment) Version() uint64 {
	if a == nil {
		return 0
	}
	return a.version
}

// Digest returns a 64-bit hash of the content, or 0 for a nil Assignment.
func (a *Assignment) Digest() placement.Digest {
	if a == nil {
		return 0
	}
	return a.digest
}

// Owners returns the distinct owners of all partitions, sorted, including absent nodes. It costs a pass over
// the partitions.
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

// Voters returns the nodes whose presence decides about Quorum. The slice is shared and must not be modified.
func (a *Assignment) Voters() []lease.NodeID {
	if a == nil {
		return nil
	}
	return a.quorum.voters
}

// Quorum reports whether a node that sees the given members, sorted, may write the next version. The members
// must include more than half of the voters, or exactly half of the voters including the first voter.
// Alternatively, there must be at least as many members as were active at the last change. Any node may write
// the first version.
func (a *Assignment) Quorum(members []lease.NodeID) bool {
	if a == nil {
		return true
	}
	votes := 0 // two per voter and a third for the first voter, so two sides cannot both have half
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

// maxAhead limits the difference between the versions of two assignments. maxFirst limits the version of the
// first assignment that a node receives. No real cluster reaches these limits. Without them, an attacker
// could send a version so high that no node could write a later version.
const (
	maxAhead = 1 << 32
	maxFirst = maxVersion / 2
)

// BegunBy reports whether c wrote the first version of a.
func (a *Assignment) BegunBy(c Coordinator) bool {
	return a != nil && a.genesis == genesis{c.Since, c.ID}
}

// Merge returns the assignment with the later entry of each partition. It returns a itself if b has no later
// entry. If the assignments were started independently, Merge returns the older assignment. If their versions
// are impossibly far apart, Merge returns the assignment with the lower version. Merge fails if the numbers
// of partitions differ, or if the version of b is impossible. It costs O(partitions).
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

// mergeable returns an error if b cannot be merged.
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

// From returns the assignment from which t was derived. It returns nil if t's strategy is not Stateful, or if
// no partition was assigned before.
func From(t *placement.Table) *Assignment {
	a, _ := t.Memory().(*Assignment)
	return a
}

// Held implements [placement.Memory]. The holder of a partition is the owner if the owner is present, and
// otherwise the deputy.
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
