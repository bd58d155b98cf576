package events

import (
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Ownership is an uninterrupted period in which the node itself owned a partition. Since is the [State]
// version that acquired the partition. If Since of the same partition changes, the node lost the partition in
// between. Do not compare versions of different nodes, or of different processes of a node.
type Ownership struct {
	Partition placement.Partition `json:"partition"`
	Since     uint64              `json:"since"`
}

// Move is a change of a partition's owner anywhere in the cluster, according to this node's table. If a
// partition has no owner, the id is empty.
type Move = placement.Move

// Batch is the difference between a [State] and a later one. Process the fields in order, so that removals
// come before additions. A partition that was lost and regained is in both Released and Acquired, and a node
// that restarted is in both Left and Joined. Each field is sorted by partition or node id. [Diff] returns no
// nil slices, so each slice encodes to a JSON array. Watchers share the slices, so don't modify their
// elements. You can append to the slices.
type Batch struct {
	Version uint64           `json:"version"` // version of the later state
	Digest  placement.Digest `json:"digest"`  // digest of the later state's table; 0 = no table yet

	// Full means that there is no earlier state. A full batch contains everything and replaces all earlier
	// knowledge. Other batches only contain changes.
	Full bool `json:"full"`

	Released []Ownership `json:"released"` // partitions that the node itself no longer owns
	Acquired []Ownership `json:"acquired"` // partitions that the node itself now owns

	// Moved compares the two tables. It does not show intermediate owners, and a node listed as an owner may
	// be unable to own partitions, for example because it is fenced. Moved is empty in a full batch, because
	// there is no earlier table. If the earlier state has no table, every partition with an owner is in
	// Moved.
	Moved []Move `json:"moved"`

	Left   []lease.NodeID `json:"left"`   // nodes that are no longer live, or have restarted
	Joined []lease.NodeID `json:"joined"` // nodes that have become live, or have restarted

	// Changed lists the live nodes whose state, profile, metadata or end of flapping changed, whether or not
	// they own anything. It ignores changes of the load, and does not include nodes that joined or restarted.
	Changed []lease.NodeID `json:"changed"`

	// Reasons contains the known reasons why nodes in Left are no longer live. It is nil if no reason is
	// known.
	Reasons map[lease.NodeID]lease.Reason `json:"reasons,omitempty"`
}

// Diff returns the changes from old to cur. If old is nil, the batch is full: all partitions that the node
// owns are in Acquired, all live nodes are in Joined, and Moved is empty. Diff is pure. It takes O(P + n)
// time for P partitions and n members, but skips parts that the states share. If nothing changed, it
// allocates nothing.
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

// News reports whether b contains anything that a watcher must know. A full batch always does, even if all
// its fields are empty.
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

// diffMembers merges the two sorted lists of incarnations. A restart needs no special case, because the old
// incarnation left and the new incarnation joined.
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

// explain adds the reasons why nodes left.
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
