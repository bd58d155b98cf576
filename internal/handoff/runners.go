package handoff

import (
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Runners is what a node knows of the partitions that run on another node than the one
// that its table names: for lookups. It errs for a moment where news is late or lost, and
// nothing depends on it. The zero value is ready to use.
type Runners struct {
	self   lease.Handle
	bound  time.Duration // of a handoff
	live   []lease.Handle
	owners []lease.Handle
	other  map[placement.Partition]runner
}

// runner is the node that runs a partition; 0 = another one than the table names, unknown.
type runner struct {
	handle lease.Handle
	until  time.Time // then the table counts, if no news comes before
	since  time.Time // when this node took the node for the runner
	next   time.Time // when this node asks it whether it still runs the partition
}

func runnerSince(now time.Time, h lease.Handle, until time.Time) runner {
	return runner{handle: h, until: until, since: now, next: now.Add(newsTime)}
}

// newsTime is how long news of a run is believed that the own table does not name, and how
// long news of the next run may take before a node asks the former one.
const newsTime = 2 * time.Second

// SetMembers takes this node and the live members with handoff, sorted. News of a member
// counts from then on: it may arrive before the table that names the member.
func (r *Runners) SetMembers(self lease.Handle, live []lease.Handle) {
	r.self, r.live = self, slices.Clone(live)
}

// SetTable takes the owners by the table. A partition that the table takes from a live
// member runs there until its next owner says that it runs it, or until the bound. If this
// node has just joined nodes with tables, others run what its first table gives it.
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

// Heard takes the news that a member runs partitions, which this node may wait for.
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
		case known && other.handle == from: // a slow run is asked for less and less often
			other.next = now.Add(max(newsTime, now.Sub(other.since)))
			r.other[p] = other
		case known:
			r.other[p] = runnerSince(now, from, other.until)
		case owner != r.self: // the own table is late
			r.other[p] = runnerSince(now, from, now.Add(newsTime))
		}
	}
}

// Freed takes the answer of a member that it does not run partitions.
func (r *Runners) Freed(from lease.Handle, free []placement.Partition) {
	for _, p := range free {
		if o, known := r.other[p]; known && o.handle == from && r.owners[p] != r.self {
			delete(r.other, p)
		}
	}
}

// Doubts returns which members to ask whether they still run partitions: the news of the
// next run is late or lost, or the next owner has run the partition all the time, because this
// node alone took that owner for gone. The partitions of this node are asked for anyway.
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

// Begun says that this node begins to run p, and reports whether others may take another
// node for the runner.
func (r *Runners) Begun(p placement.Partition) (news bool) {
	_, news = r.other[p]
	delete(r.other, p)
	return news
}

// Review forgets entries that are over, and reports whether others are left. keeps reports
// whether this node runs a partition that the table gives to another one.
func (r *Runners) Review(now time.Time, keeps func(placement.Partition) bool) (any bool) {
	maps.DeleteFunc(r.other, func(p placement.Partition, o runner) bool {
		return !now.Before(o.until) || (o.handle != 0 && !contains(r.live, o.handle)) || (o.handle == r.self && !keeps(p)) ||
			uint64(p) >= uint64(len(r.owners)) || r.owners[p] == o.handle
	})
	return len(r.other) > 0
}

// Clear forgets everything but the members.
func (r *Runners) Clear() { *r = Runners{self: r.self, live: r.live} }

// Others returns the partitions that run on another node than the table names, and that
// node; nil = none are known.
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
