package events

import (
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Ownership is one uninterrupted time during which the node itself owned a
// partition. Since is the [State] version that acquired it: the same partition
// with another Since was lost in between. Versions of different nodes, or of
// different runs of one node, cannot be compared.
type Ownership struct {
	Partition placement.Partition `json:"partition"`
	Since     uint64              `json:"since"`
}

// Move is a change of a partition's owner anywhere in the cluster, as the table
// of this node has it. An empty id stands for nobody.
type Move = placement.Move

// Batch is what changed from one [State] to a later one. Handle the fields in
// their order, what went before what came: a partition that was lost and
// regained is both Released and Acquired, a node that restarted both Left and
// Joined. Partitions and node ids ascend within each field. A Batch made by
// [Diff] has no nil slice, so that it encodes to JSON arrays.
type Batch struct {
	Version uint64           `json:"version"` // of the later state
	Digest  placement.Digest `json:"digest"`  // of its table; 0 = no table yet

	// Full is true if there is no earlier state: the batch holds everything, and
	// whatever was known before is void. Else it holds changes.
	Full bool `json:"full"`

	Released []Ownership `json:"released"` // the node itself owns these no longer
	Acquired []Ownership `json:"acquired"` // the node itself owns these now

	// Moved compares the two tables, so it knows neither of detours between them
	// nor of a node that may not own what its table gives it. It is empty in a
	// first batch, which has nothing to compare with; after a state without a
	// table, every owner counts as new.
	Moved []Move `json:"moved"`

	Left   []lease.NodeID `json:"left"`   // live no longer, or not in that life
	Joined []lease.NodeID `json:"joined"` // live now
}

// Diff returns what changed from old to cur. Without an old state (nil),
// the batch is full: everything that is owned counts as Acquired, every live node
// as Joined, and nothing as Moved. It is pure and takes O(P + n) time for P partitions and n
// members, next to none for whichever part the two states share; it allocates
// nothing if nothing changed.
func Diff(old, cur *State) Batch {
	b := Batch{
		Version:  cur.Version,
		Digest:   cur.Digest(),
		Full:     old == nil,
		Released: []Ownership{},
		Acquired: []Ownership{},
		Moved:    []Move{},
		Left:     []lease.NodeID{},
		Joined:   []lease.NodeID{},
	}
	if old == nil {
		b.diffOwned(nil, cur.since)
		b.diffMembers(nil, cur.Members)
		return b
	}
	b.diffOwned(old.since, cur.since)
	b.diffOwners(old.Table, cur.Table)
	b.diffMembers(old.Members, cur.Members)
	return b
}

// News reports whether b has anything to tell: a full one has, even if nothing is
// owned and nobody lives.
func (b *Batch) News() bool {
	return b.Full || 0 < len(b.Released)+len(b.Acquired)+len(b.Moved)+len(b.Left)+len(b.Joined)
}

func (b *Batch) diffOwned(old, cur []uint64) {
	if same(old, cur) {
		return
	}
	for i := range max(len(old), len(cur)) {
		p := placement.Partition(i)
		was, is := at(old, p), at(cur, p)
		if was == is {
			continue
		}
		if was != 0 {
			b.Released = append(b.Released, Ownership{p, was})
		}
		if is != 0 {
			b.Acquired = append(b.Acquired, Ownership{p, is})
		}
	}
}

func (b *Batch) diffOwners(old, cur *placement.Table) {
	if old == cur {
		return
	}
	for i := range max(old.Partitions(), cur.Partitions()) {
		p := placement.Partition(i)
		from, _ := old.Owner(p) // "" without a table, and beyond its last partition
		to, _ := cur.Owner(p)
		if from != to {
			b.Moved = append(b.Moved, Move{Partition: p, From: from, To: to})
		}
	}
}

// diffMembers merges the two sorted lists. A life is in one of them or in both,
// so a restart needs no case of its own.
func (b *Batch) diffMembers(old, cur []lease.Incarnation) {
	if same(old, cur) {
		return
	}
	for len(old) > 0 || len(cur) > 0 {
		var order int
		switch {
		case len(old) == 0:
			order = 1
		case len(cur) == 0:
			order = -1
		default:
			order = old[0].Compare(cur[0])
		}
		if order < 0 {
			b.Left = append(b.Left, old[0].Node)
		}
		if order > 0 {
			b.Joined = append(b.Joined, cur[0].Node)
		}
		if order <= 0 {
			old = old[1:]
		}
		if order >= 0 {
			cur = cur[1:]
		}
	}
}

// same reports whether a and b are the same memory.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
