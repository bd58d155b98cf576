package handover

import (
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Runners is what a node knows of the partitions that run on another node than the one
// that its table names: for look-ups. It errs for a moment where news is late or lost, and
// nothing depends on it. The zero value is ready to use.
type Runners struct {
	self   lease.Handle
	bound  time.Duration // of a hand-over
	live   []lease.Handle
	owners []lease.Handle
	other  map[placement.Partition]runner
}

// runner is the node that runs a partition; 0 = another one than the table names, unknown.
type runner struct {
	handle lease.Handle
	until  time.Time // then the table counts, if no news comes before
}

// newsTime is how long news of a run is believed that the own table does not name.
const newsTime = 2 * time.Second

// SetTable takes the live members with hand-over, sorted, and the owners by the table. A
// partition that the table takes from a live member runs there until its next owner says
// that it runs it, or until the bound. If this node has just joined nodes with tables,
// others run what its first table gives it.
func (r *Runners) SetTable(now time.Time, self lease.Handle, live, owners []lease.Handle, bound time.Duration, joined bool) {
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
		case joined && owner == self, former != 0 && contains(live, former) && contains(live, owner):
			r.other[p] = runner{former, now.Add(bound)}
		}
	}
	r.self, r.bound, r.live, r.owners = self, bound, slices.Clone(live), owners
	r.Review(now)
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
			r.other[p] = runner{from, now.Add(r.bound)}
		case known:
			r.other[p] = runner{from, other.until}
		case owner != r.self: // the own table is late
			r.other[p] = runner{from, now.Add(newsTime)}
		}
	}
}

// Begun says that this node begins to run p, and reports whether others may take another
// node for the one that runs it.
func (r *Runners) Begun(p placement.Partition) (news bool) {
	_, news = r.other[p]
	delete(r.other, p)
	return news
}

// Review forgets entries that are over, and reports whether others are left.
func (r *Runners) Review(now time.Time) (any bool) {
	maps.DeleteFunc(r.other, func(p placement.Partition, o runner) bool {
		return !now.Before(o.until) || (o.handle != 0 && !contains(r.live, o.handle)) ||
			uint64(p) >= uint64(len(r.owners)) || r.owners[p] == o.handle
	})
	return len(r.other) > 0
}

// Clear forgets everything.
func (r *Runners) Clear() { *r = Runners{} }

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
