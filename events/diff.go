package events

import (
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Ownership is an uninterrupted period in which the node itself owned a partition. Since is the [State]
// version that acquired the partition. If the same partition has another Since later, it was lost in between.
// Versions of different nodes, or of different runs of the same node, cannot be compared.
type Ownership struct {
	Partition placement.Partition `json:"partition"`
	Since     uint64              `json:"since"`
}

// Move is a change of a partition's owner anywhere in the cluster, according to this
// node's table. An empty id means no owner.
type Move = placement.Move

// Batch is the difference between a [State] and a later one. Handle the fields in their order, so removals
// before additions, because a partition that was lost and regained is in both Released and Acquired, and a
// node that restarted is in both Left and Joined. Each field is sorted by partition or node id. No slice in a
// Batch made by [Diff] is nil, so each encodes to a JSON array. Watchers share the slices, so don't modify
// their elements. You may append to them.
type Batch struct {
	Version uint64           `json:"version"` // of the later state
	Digest  placement.Digest `json:"digest"`  // of its table; 0 = no table yet

	// Full means that there is no earlier state. The batch has everything and replaces all earlier knowledge.
	// If Full is false, the batch only has changes.
	Full bool `json:"full"`

	Released []Ownership `json:"released"` // partitions that the node itself no longer owns
	Acquired []Ownership `json:"acquired"` // partitions that the node itself now owns

	// Moved compares the two tables. It shows neither owners in between, nor whether a node may own what the
	// table assigns to it. It is empty in a full batch, which has no earlier table to compare with. After a
	// state without a table, every owner is a move.
	Moved []Move `json:"moved"`

	Left   []lease.NodeID `json:"left"`   // no longer live, or restarted
	Joined []lease.NodeID `json:"joined"` // now live

	// Changed has live nodes with another state, profile, metadata or end of flapping, whether or not they
	// own anything. Changes of the load don't count. A node that joined or restarted is not included.
	Changed []lease.NodeID `json:"changed"`

	// Reasons says why the nodes in Left are no longer live, as far as this node knows. It is nil if no
	// reason is known.
	Reasons map[lease.NodeID]lease.Reason `json:"reasons,omitempty"`
}

// Diff returns the changes from old to cur. If old is nil, the batch is full: all partitions that the node
// owns are in Acquired, all live nodes are in Joined, and Moved is empty. Diff is pure. It takes O(P + n)
// time for P partitions and n members, but almost none for parts that the states share. If nothing changed,
// it allocates nothing.
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
		Changed:  []lease.NodeID{},
	}
	if old == nil {
		b.diffOwned(nil, cur.since)
		b.diffMembers(nil, cur.Members)
		return b
	}
	b.diffOwned(old.since, cur.since)
	if old.Table != cur.Table {
		b.Moved = placement.Moves(old.Table, cur.Table)
	}
	b.diffMembers(old.Members, cur.Members)
	b.diffDetails(old, cur)
	b.explain(old.Members, cur.Ended)
	return b
}

// News reports whether b has content. A full batch always has content, even if all its fields are empty.
func (b *Batch) News() bool {
	return b.Full || 0 < len(b.Released)+len(b.Acquired)+len(b.Moved)+len(b.Left)+len(b.Joined)+len(b.Changed)
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

// diffMembers merges the two sorted lists. They have incarnations, so a restart needs no special case: the
// old incarnation left, and the new one joined.
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

// diffDetails adds the members of both states whose details changed.
func (b *Batch) diffDetails(old, cur *State) {
	if same(old.Details, cur.Details) || len(old.Details) != len(old.Members) || len(cur.Details) != len(cur.Members) {
		return
	}
	was := 0
	for i, m := range cur.Members {
		for was < len(old.Members) && old.Members[was].Compare(m) < 0 {
			was++
		}
		if was < len(old.Members) && old.Members[was] == m && !old.Details[was].Same(cur.Details[i]) {
			b.Changed = append(b.Changed, m.Node)
		}
	}
}

// explain adds the reasons for which nodes left.
func (b *Batch) explain(old []lease.Incarnation, ended map[lease.Incarnation]lease.Reason) {
	if len(b.Left) == 0 || len(ended) == 0 {
		return
	}
	for _, i := range old {
		_, left := slices.BinarySearch(b.Left, i.Node)
		if why, known := ended[i]; left && known {
			if b.Reasons == nil {
				b.Reasons = make(map[lease.NodeID]lease.Reason, len(b.Left))
			}
			b.Reasons[i.Node] = why
		}
	}
}

// same reports whether a and b are the same slice in memory.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
