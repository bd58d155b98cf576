package handoff

import (
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Runners tracks partitions that run on a different node than this node's table specifies. It is only used
// for lookups, and may be wrong for a moment if news is late or lost. The zero value is ready to use.
type Runners struct {
	self   lease.Handle
	bound  time.Duration // maximum wait of a handoff
	live   []lease.Handle
	owners []lease.Handle
	other  map[placement.Partition]runner
}

// runner is the node that runs a partition. A zero handle means an unknown node that is not the owner in the table.
type runner struct {
	handle lease.Handle
	until  time.Time // without further news, the table applies again from then on
	since  time.Time // when this node started to consider the node the runner
	next   time.Time // when this node next asks the runner whether it still runs the partition
}

func runnerSince(now time.Time, h lease.Handle, until time.Time) runner {
	return runner{handle: h, until: until, since: now, next: now.Add(newsTime)}
}

// newsTime is how long a node trusts the news of a run that contradicts its own table. It is also how long
// the news of the next run may take before the node asks the old runner.
const newsTime = 2 * time.Second

// SetMembers sets this node and the live members that use handoff. The members must be sorted. News from a
// new member is accepted immediately, because it may arrive before a table that contains the member.
func (r *Runners) SetMembers(self lease.Handle, live []lease.Handle) {
	r.self, r.live = self, slices.Clone(live)
}

// SetTable sets the owners in the table. If the table moves a partition away from a live member, the
// partition is considered to be running there until its next owner reports that it runs the partition, or
// until the maximum wait has passed. If this node has just joined nodes with tables, other nodes are still
// running the partitions that its first table assigns to it.
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

// Heard handles the news that a member runs partitions. This node may be waiting for some of these
// partitions.
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
		case known && other.handle == from: // ask less and less often about a slow run
			other.next = now.Add(max(newsTime, now.Sub(other.since)))
			r.other[p] = other
		case known:
			r.other[p] = runnerSince(now, from, other.until)
		case owner != r.self: // this node's table is late
			r.other[p] = runnerSince(now, from, now.Add(newsTime))
		}
	}
}

// Freed handles a member's answer that it does not run the given partitions.
func (r *Runners) Freed(from lease.Handle, free []placement.Partition) {
	for _, p := range free {
		if o, known := r.other[p]; known && o.handle == from && r.owners[p] != r.self {
			delete(r.other, p)
		}
	}
}

// Doubts returns partitions for which this node should ask the old runner whether it still runs them. The
// result contains the partitions of each such runner. A partition is included if the news of its next run is
// late or lost. No such news arrives if the next owner has been running the partition all the time, and only
// this node considered that owner gone. Doubts omits the partitions of this node, because this node asks for
// them anyway.
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

// Begun records that this node starts to run p. It reports whether other nodes may believe that another node
// runs p.
func (r *Runners) Begun(p placement.Partition) (news bool) {
	_, news = r.other[p]
	delete(r.other, p)
	return news
}

// Review removes expired entries, and reports whether any entries remain. The callback keeps must return
// whether this node runs a partition that the table assigns to another node.
func (r *Runners) Review(now time.Time, keeps func(placement.Partition) bool) (any bool) {
	maps.DeleteFunc(r.other, func(p placement.Partition, o runner) bool {
		return !now.Before(o.until) || (o.handle != 0 && !contains(r.live, o.handle)) || (o.handle == r.self && !keeps(p)) ||
			uint64(p) >= uint64(len(r.owners)) || r.owners[p] == o.handle
	})
	return len(r.other) > 0
}

// Clear removes everything except the members.
func (r *Runners) Clear() { *r = Runners{self: r.self, live: r.live} }

// Others maps each partition that runs on a different node than the table specifies to that node. It returns
// nil if there are none.
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
