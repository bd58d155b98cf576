package placement

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/roost-cluster/roost/lease"
)

// Assignment is the memory of a cluster that places by [LeastPartitions]: whose
// each partition is, and how that came about. It is immutable; nil stands for
// "nothing was ever assigned".
//
// A partition has an owner and, while that is away, a deputy. The owner gets the
// partition back when it returns, so a restart moves nothing for good; nor does a
// node that was cut off alone take away what it stood in for.
//
// Assignments that were written apart are merged partition by partition, the
// later entry of each winning ([Assignment.Merge]). So it does not matter who
// hears of what in which order, and two writers lose nothing of each other's work
// but where they decided about the same partition.
type Assignment struct {
	entries []entry // by partition
	version uint64
	digest  Digest
}

// entry is what is remembered of one partition. The zero entry is that of a
// partition which nobody was assigned yet.
type entry struct {
	owner   lease.NodeID
	version uint64       // of the assignment in which it became the owner
	from    lease.NodeID // who had the partition before; "" = nobody
	by      lease.NodeID // who decided that
	cause   cause

	deputy lease.NodeID // who has it while the owner is away; "" = nobody was named
	stand  uint64       // version of the assignment in which it became the deputy
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

// newAssignment takes the entries over.
func newAssignment(version uint64, entries []entry) *Assignment {
	a := &Assignment{entries: entries, version: version}
	a.digest = Digest(xxhash.Sum64(a.Encode()))
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
func (a *Assignment) Digest() Digest {
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

// Merge returns the assignment that has the later entry of each partition, which
// is a itself if b has none. It fails if the two count different partitions.
// O(partitions).
func (a *Assignment) Merge(b *Assignment) (*Assignment, error) {
	switch {
	case b == nil || (a != nil && a.digest == b.digest):
		return a, nil
	case a == nil:
		return b, nil
	case len(a.entries) != len(b.entries):
		return a, fmt.Errorf("placement: an assignment of %d partitions, want one of %d", len(b.entries), len(a.entries))
	}
	var merged []entry
	for p := range b.entries {
		if b.entries[p].compare(&a.entries[p]) <= 0 {
			continue
		}
		if merged == nil {
			merged = slices.Clone(a.entries)
		}
		merged[p] = b.entries[p]
	}
	switch {
	case merged != nil:
		return newAssignment(max(a.version, b.version), merged), nil
	case b.version > a.version: // an entry that it had lost to a later one of a's
		return newAssignment(b.version, a.entries), nil
	}
	return a, nil
}

// Record returns the assignment that says what t says: nodes that were given a
// partition because nobody was assigned it become its owner, and those that were
// given one because its owner is away become its deputy. So a later change of
// nodes does not pass them round again. An owner that is gone for good, as the
// caller judges, is followed by its deputy; gone may be nil.
//
// It is t's own assignment if there is nothing to record. by is who decides.
// O(partitions).
func (t *Table) Record(by lease.NodeID, gone func(lease.NodeID) bool) *Assignment {
	if t == nil || len(t.owners) == 0 {
		return t.Assignment()
	}
	var next []entry
	edit := t.assigned.edit(t.partitions, &next)
	version := t.assigned.Version() + 1
	if t.assigned == nil {
		version = uint64(len(t.nodes)) // so that what a node wrote on its own loses against what many share
	}
	for p, i := range t.owners {
		holder := t.nodes[i].ID
		switch e := t.assigned.entry(p); {
		case e.owner == holder:
		case e.owner == "":
			*edit(p) = entry{owner: holder, version: version, by: by}
		case gone != nil && gone(e.owner):
			*edit(p) = entry{owner: holder, version: version, from: e.owner, by: by, cause: causeGone}
		case e.deputy != holder:
			changed := edit(p)
			changed.deputy, changed.stand = holder, version
		}
	}
	if next == nil {
		return t.assigned
	}
	return newAssignment(version, next)
}

// edit returns a function that makes an entry writable in next, a copy of a's
// entries that is taken when the first one is.
func (a *Assignment) edit(partitions int, next *[]entry) func(p int) *entry {
	return func(p int) *entry {
		if *next == nil {
			*next = make([]entry, partitions)
			if a != nil {
				copy(*next, a.entries)
			}
		}
		return &(*next)[p]
	}
}

// entry returns what is remembered of p.
func (a *Assignment) entry(p int) entry {
	if a == nil {
		return entry{}
	}
	return a.entries[p]
}
