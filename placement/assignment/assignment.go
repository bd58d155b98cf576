package assignment

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Assignment records who owns each partition, and how that came about. It is
// immutable; nil stands for "nothing was ever assigned".
type Assignment struct {
	genesis genesis
	entries []entry // by partition
	quorum  quorum
	version uint64
	digest  placement.Digest
}

// quorum is who was there when it was written.
type quorum struct {
	version uint64         // of the assignment that has it
	voters  []lease.NodeID // sorted
	active  uint64         // how many of them were active members
}

func (q quorum) compare(o quorum) int {
	return cmp.Or(cmp.Compare(q.version, o.version), cmp.Compare(q.active, o.active), slices.Compare(q.voters, o.voters))
}

// genesis tells assignments apart that have nothing in common: who wrote the first
// version, and when that node was started. The least one is the oldest.
type genesis struct {
	since uint64
	by    lease.NodeID
}

func (g genesis) compare(o genesis) int {
	return cmp.Or(cmp.Compare(g.since, o.since), cmp.Compare(g.by, o.by))
}

// Coordinator is who writes an assignment.
type Coordinator struct {
	ID     lease.NodeID
	Since  uint64         // its incarnation, by which assignments that began apart are told by age
	Voters []lease.NodeID // who is to be asked for a quorum from now on, sorted
	Active int            // how many active members there are

	// Gone tells which owners are not expected back. Default: none.
	Gone func(lease.NodeID) bool
}

// entry is what is remembered of one partition. The zero entry is that of a
// partition which nobody was assigned yet.
type entry struct {
	owner   lease.NodeID
	version uint64       // of the assignment in which it became the owner
	from    lease.NodeID // who had the partition before; "" = nobody
	by      lease.NodeID // who decided that
	cause   cause

	deputy lease.NodeID // who has it while the owner is away; "" = nobody
	stand  uint64       // version of the assignment in which it became the deputy, or ceased to be
}

// cause is why an owner is the owner.
type cause uint8

const (
	causeFirst cause = iota // it had the fewest partitions when nobody had this one
	causeLevel              // it had the fewest, and the former owner the most
	causeGone               // it stood in for an owner that did not come back
	causes
)

// maxVersion keeps versions exact in every reader's arithmetic.
const maxVersion = 1 << 53

// changed is the version in which e was last written.
func (e *entry) changed() uint64 { return max(e.version, e.stand) }

// compare orders the entries of one partition by age. It is total, so that the
// merged entry does not depend on the order of merging.
func (e *entry) compare(o *entry) int {
	return cmp.Or(
		cmp.Compare(e.version, o.version), cmp.Compare(e.stand, o.stand),
		cmp.Compare(e.owner, o.owner), cmp.Compare(e.deputy, o.deputy),
		cmp.Compare(e.from, o.from), cmp.Compare(e.by, o.by), cmp.Compare(e.cause, o.cause),
	)
}

// finish computes what follows from the rest. Nothing may change afterwards.
func (a *Assignment) finish() *Assignment {
	a.digest = placement.Digest(xxhash.Sum64(a.Encode()))
	return a
}

// Version grows with each change, and a merged assignment has the greater one of
// the two; it is 0 while nothing is assigned. Two assignments of one version can
// differ, if they were written apart.
func (a *Assignment) Version() uint64 {
	if a == nil {
		return 0
	}
	return a.version
}

// Digest is equal exactly when the content is, but for a collision of 64 bits. It
// is 0 while nothing is assigned.
func (a *Assignment) Digest() placement.Digest {
	if a == nil {
		return 0
	}
	return a.digest
}

// Partitions returns the number of partitions, 0 while nothing is assigned.
func (a *Assignment) Partitions() int {
	if a == nil {
		return 0
	}
	return len(a.entries)
}

// Owners returns the owners of all partitions, sorted and each once, whether or
// not they are there at present. It costs one pass.
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

// Voters returns whom Quorum asks for. The slice is shared and must not be modified.
func (a *Assignment) Voters() []lease.NodeID {
	if a == nil {
		return nil
	}
	return a.quorum.voters
}

// Quorum reports whether nodes that see these members, sorted, may write what
// follows a: most of those who were there at the last change are among them, or
// half of those, the first of them included; or as many members as were active
// then. Everybody may write the first assignment.
func (a *Assignment) Quorum(members []lease.NodeID) bool {
	if a == nil {
		return true
	}
	votes := 0 // two for each voter, and one more for the first: no two sides have half
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

// maxAhead is how far the version of an assignment may be ahead. No cluster gets
// there, and one that did could not be written on.
const maxAhead = 1 << 32

// BegunBy reports whether c wrote the first version of a.
func (a *Assignment) BegunBy(c Coordinator) bool {
	return a != nil && a.genesis == genesis{c.Since, c.ID}
}

// Merge returns the assignment that has the later entry of each partition, which
// is a itself if b has none; of two that began apart, it is the older one. It fails
// if the two count different partitions, or if b cannot be true. O(partitions).
func (a *Assignment) Merge(b *Assignment) (*Assignment, error) {
	switch {
	case b == nil || (a != nil && a.digest == b.digest):
		return a, nil
	case a == nil:
		return b, nil
	case len(a.entries) != len(b.entries):
		return a, fmt.Errorf("assignment: an assignment of %d partitions, want one of %d", len(b.entries), len(a.entries))
	case b.version > a.version+maxAhead:
		return a, fmt.Errorf("assignment: an assignment of version %d, far ahead of version %d", b.version, a.version)
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

func (a *Assignment) mergeEntries(b *Assignment) {
	merged := slices.Clone(a.entries)
	for p := range merged {
		if b.entries[p].compare(&merged[p]) > 0 {
			merged[p] = b.entries[p]
		}
	}
	a.entries = merged
}

// From returns the assignment that t was derived from: nil if its strategy does not
// remember, or nothing was assigned yet.
func From(t *placement.Table) *Assignment {
	a, _ := t.Memory().(*Assignment)
	return a
}

// Held implements [placement.Memory]: a partition is held by its owner if that is
// among the nodes, else by its deputy.
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

// Record returns the assignment that says what t says: nodes that were given a
// partition because nobody was assigned it become its owner, and those that were
// given one because its owner is away become its deputy. So a later change of
// nodes does not pass them round again. An owner that is gone for good is followed
// by its deputy; one that is back needs none.
//
// It is t's own assignment if there is nothing to record. Whether c may write is
// for the caller to judge, by Quorum. O(partitions).
func Record(t *placement.Table, c Coordinator) *Assignment {
	a := From(t)
	if len(t.Nodes()) == 0 {
		return a
	}
	next, ok := a.draft(c, t.Partitions())
	if !ok {
		return a
	}
	changed := a == nil
	for p := range next.entries {
		e := &next.entries[p]
		before := *e
		holder, _ := t.Owner(placement.Partition(p))
		e.record(holder, c, next.version)
		changed = changed || *e != before
	}
	if q := (quorum{next.version, slices.Clone(c.Voters), uint64(c.Active)}); q.active != next.quorum.active || !slices.Equal(q.voters, next.quorum.voters) {
		next.quorum, changed = q, true
	}
	if !changed {
		return a
	}
	return next.finish()
}

// record writes down who has the partition.
func (e *entry) record(holder lease.NodeID, c Coordinator, version uint64) {
	switch {
	case e.owner == "":
		*e = entry{owner: holder, version: version, by: c.ID}
	case e.owner == holder && e.deputy != "":
		e.deputy, e.stand = "", version // or a later death would find one of long ago
	case e.owner == holder:
	case c.Gone != nil && c.Gone(e.owner):
		*e = entry{owner: holder, version: version, from: e.owner, by: c.ID, cause: causeGone}
	case e.deputy != holder:
		e.deputy, e.stand = holder, version
	}
}

// draft returns a copy of a with the next version, for c to write on. There is
// none after the last version.
func (a *Assignment) draft(c Coordinator, partitions int) (*Assignment, bool) {
	if a == nil {
		return &Assignment{genesis: genesis{c.Since, c.ID}, entries: make([]entry, partitions), version: 1}, true
	}
	next := *a
	next.version++
	next.entries = slices.Clone(a.entries)
	return &next, next.version <= maxVersion
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
		return fmt.Sprintf("%s stands in, since version %d of the assignment, for its owner %s, which is away or drains", holder, e.stand, e.owner)
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
