package handoff

import (
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Runners is what a node knows about partitions that run on a node other than the one that its table names.
// It is only for lookups, and may be wrong for a moment if news is late or lost. The zero value is ready to
// use.
type Runners struct {
	self   lease.Handle
	bound  time.Duration // maximum wait of a handoff
	live   []lease.Handle
	owners []lease.Handle
	other  map[placement.Partition]runner
}

// runner is the node that runs a partition; 0 = an unknown node other than the one that the table names.
type runner struct {
	handle lease.Handle
	until  time.Time // without further news, the table counts from then on
	since  time.Time // when this node began to treat the node as the runner
	next   time.Time // when this node asks it whether it still runs the partition
}

func runnerSince(now time.Time, h lease.Handle, until time.Time) runner {
	return runner{handle: h, until: until, since: now, next: now.Add(newsTime)}
}

// newsTime is how long a node believes news of a run that its own table does not name, and how long news of
// the next run may take before the node asks the old runner.
const newsTime = 2 * time.Second

// SetMembers sets this node and the live members with handoff, sorted. From then on, news of a member counts,
// because it may arrive before the table that names the member.
func (r *Runners) SetMembers(self lease.Handle, live []lease.Handle) {
	r.self, r.live = self, slices.Clone(live)
}

// SetTable sets the owners in the table. A partition that the table takes from a live member runs there until
// its next owner says that it runs it, or until the maximum wait is over. If this node has just joined nodes
// with tables, others run what its first table gives to it.
func (r *Runners) SetTable(now time.Time, owners []lease.Handle, bound time.Duration, joined bool) {
	if r.other == nil {
		r.other = make(map[placement.Partition]runner)
	}
	for i, owner := range owners {
		p, former := placement.Partition(i), lease.Handle(0)
		if i < len(r.owners) {
			former = r.owners[i]
		}
		_, known := r.other[p]
		switch {
		case known || former == owner:
		case joined && owner == r.self, former != 0 && contains(r.live, former) && contains(r.live, owner):
			r.other[p] = runnerSince(now, former, now.Add(bound))
		}
	}
	r.bound, r.owners = bound, owners
}

// Heard handles the news that a member runs partitions, for which this node may wait.
func (r *Runners) Heard(now time.Time, from lease.Handle, runs []placement.Partition, waits func(placement.Partition) bool) {
	for _, p := range runs {
		if uint64(p) >= uint64(len(r.owners)) || !contains(r.live, from) {
			continue
		}
		other, known := r.other[p]
		switch owner := r.owners[p]; {
		case owner == from:
			delete(r.other, p)
		case owner == r.self && waits(p):
			r.other[p] = runnerSince(now, from, now.Add(r.bound))
		case known && other.handle == from: // ask about a slow run less and less often
			other.next = now.Add(max(newsTime, now.Sub(other.since)))
			r.other[p] = other
		case known:
			r.other[p] = runnerSince(now, from, other.until)
		case owner != r.self: // the own table is late
			r.other[p] = runnerSince(now, from, now.Add(newsTime))
		}
	}
}

// Freed handles the answer of a member that it does not run partitions.
func (r *Runners) Freed(from lease.Handle, free []placement.Partition) {
	for _, p := range free {
		if o, known := r.other[p]; known && o.handle == from && r.owners[p] != r.self {
			delete(r.other, p)
		}
	}
}

// Doubts returns which members to ask whether they still run partitions, because the news of the next run is
// late or lost, or because the next owner has run the partition all the time and only this node treated it as
// gone. It leaves out the partitions of this node, because they are asked for anyway.
func (r *Runners) Doubts(now time.Time) map[lease.Handle][]placement.Partition {
	doubts := make(map[lease.Handle][]placement.Partition)
	for p, o := range r.other {
		if o.handle == 0 || o.handle == r.self || r.owners[p] == r.self || now.Before(o.next) {
			continue
		}
		o.next = now.Add(newsTime)
		r.other[p] = o
		doubts[o.handle] = append(doubts[o.handle], p)
	}
	return doubts
}

// Begun says that this node begins to run p. It reports whether others may believe that another node runs it.
func (r *Runners) Begun(p placement.Partition) (news bool) {
	_, news = r.other[p]
	delete(r.other, p)
	return news
}

// Review forgets entries that are over, and reports whether others are left. keeps reports whether this node
// runs a partition that the table gives to another node.
func (r *Runners) Review(now time.Time, keeps func(placement.Partition) bool) (any bool) {
	maps.DeleteFunc(r.other, func(p placement.Partition, o runner) bool {
		return !now.Before(o.until) || (o.handle != 0 && !contains(r.live, o.handle)) || (o.handle == r.self && !keeps(p)) ||
			uint64(p) >= uint64(len(r.owners)) || r.owners[p] == o.handle
	})
	return len(r.other) > 0
}

// Clear forgets everything but the members.
func (r *Runners) Clear() { *r = Runners{self: r.self, live: r.live} }

// Others returns the partitions that run on a node other than the one that the table names, with that node.
// It returns nil if none are known.
func (r *Runners) Others() map[placement.Partition]lease.Handle {
	var others map[placement.Partition]lease.Handle
	for p, o := range r.other {
		if o.handle != 0 {
			if others == nil {
				others = make(map[placement.Partition]lease.Handle)
			}
			others[p] = o.handle
		}
	}
	return others
}

func contains(sorted []lease.Handle, h lease.Handle) bool {
	_, ok := slices.BinarySearch(sorted, h)
	return ok
}
