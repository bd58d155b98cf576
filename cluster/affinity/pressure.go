package affinity

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/events/latest"
	"github.com/roost-cluster/roost/lease"
)

const heaviest = 10 // rooms in a Pressure

// Pressures returns this node's pressure whenever it changes. While the node carries more than its soft
// ceiling, Over is set and Heaviest lists the heaviest rooms. When the load is below the ceiling again, Over
// is false. Without Config.Rebalance, no room moves because of load, so use Move.
func (r *Resolver) Pressures(ctx context.Context) iter.Seq[Pressure] {
	return r.feeds.pressures.watch(ctx)
}

// Pressure is the load of a node in units (see Config.Cost), with its heaviest rooms. A room that grows after
// it was pinned only moves with Config.Rebalance. Otherwise an operator or your application has to move it.
type Pressure struct {
	Node     lease.NodeID `json:"node"`
	Load     int64        `json:"load"`     // units
	Ceiling  int64        `json:"ceiling"`  // units up to which the node gets new rooms
	Capacity int64        `json:"capacity"` // units that the node can carry
	Over     bool         `json:"over"`     // Load is above Ceiling

	// Heaviest lists the rooms with the most units, in descending order. Don't modify the slice, because all
	// readers share it.
	Heaviest []RoomLoad `json:"heaviest"`
}

// RoomLoad is the cost of one room.
type RoomLoad struct {
	Room  string `json:"room"`
	Size  int    `json:"size"`  // participants
	Units int64  `json:"units"` // of load, including what is reserved for the room
}

func (p *Pressure) equal(o *Pressure) bool {
	return p.Node == o.Node && p.Load == o.Load && p.Ceiling == o.Ceiling && p.Capacity == o.Capacity &&
		p.Over == o.Over && slices.Equal(p.Heaviest, o.Heaviest)
}

// pressures publishes a node's pressure. Readers only get the newest value. The zero value is ready to use.
// All methods are safe for concurrent use.
type pressures struct{ latest.Value[*Pressure] }

// watch yields the newest value as soon as it exists, and then each value that differs from the previous
// value. The sequence ends when ctx is done or after Close, and needs no goroutine. Each range over the
// sequence starts again with the newest value.
func (f *pressures) watch(ctx context.Context) iter.Seq[Pressure] {
	return func(yield func(Pressure) bool) {
		var last *Pressure
		for ctx.Err() == nil {
			newest, replaced := f.Get()
			if p := *newest; p != nil && (last == nil || !last.equal(p)) {
				if last = p; !yield(*last) {
					return
				}
			}
			if replaced == nil {
				return
			}
			select {
			case <-replaced:
			case <-ctx.Done():
			}
		}
	}
}

// measure reports this node's load if ReportLoad is set, and publishes the node's pressure. measure logs one
// warning if the node has a capacity but reports no load.
func (k *keeper) measure(s *cluster.Snapshot) {
	if !k.warn.IsZero() && time.Now().After(k.warn) {
		k.warn = time.Time{}
		if capacity.ReportsNoLoad(s.Self) {
			k.cfg.Log.Warn("risky configuration", "why", "this node has a capacity, but reports no load, "+
				"so it gets rooms only as owner, and each node counts only the rooms that it placed here itself: report the load, or set ReportLoad (--report-load)")
		}
	}
	since := time.Now()
	_, sum := k.loads()
	k.counts.ahead.Store(sum.ahead)
	k.reportAhead(sum.unused)
	if used := sum.units - sum.unused; k.cfg.ReportLoad && used != k.reported {
		k.reported = used
		k.work.setLoad(used)
	}
	k.own = k.ownLoad(sum.units)
	k.limitGrowth(s, since)
	load := max(0, k.own.computed, k.own.measured)
	p := Pressure{Node: s.Self.ID, Load: load, Ceiling: k.reserved.Limits.SoftOf(s.Self), Capacity: s.Self.Capacity}
	if p.Over = p.Capacity > 0 && load > p.Ceiling; p.Over {
		rooms, _ := k.Hosted()
		p.Heaviest = rooms[:min(heaviest, len(rooms))]
	} else {
		p.Load = 0 // not shown below the ceiling, because each change of the load would be published
	}
	k.feeds.pressures.Set(&p)
}

// ownLoad is the load of this node. The greater of computed and measured counts.
type ownLoad struct {
	computed int64 // units of the rooms that are hosted here, if ReportLoad is set. computed falls as soon as a room has moved away.
	measured int64 // units that the application has measured, which include rooms that have just moved away; lease.NoLoad: none
	used     int64 // the part of measured that follows from the tightest resource; lease.NoLoad: not known
	ahead    int64 // the part of measured that is reserved and not used
	hosted   int64 // units of the rooms that are hosted here
}

// ownLoad returns the load of this node, which hosts rooms of this many units.
func (k *keeper) ownLoad(hosted int64) ownLoad {
	reported := k.agent.Load()
	own := ownLoad{measured: max(0, reported.Total()), used: reported.Used, ahead: reported.Ahead, hosted: hosted}
	if k.cfg.ReportLoad {
		own.computed, own.measured = hosted, reported.Used
		if reported.Used != lease.NoLoad {
			own.measured = capacity.Plus(reported.Used, reported.Ahead)
		}
	}
	return own
}

// headroom returns Stats.Headroom.
func (r *Resolver) headroom() int64 {
	s := r.agent.Snapshot()
	if !capacity.TakesRooms(s.Self) || r.store.agreement.Refused() != nil {
		return 0
	}
	return r.reserved.HeadroomOf(s.Self)
}

// Hosted returns the rooms that this node hosts, heaviest first, and the sum of their costs. Hosted takes O(n
// log n) time for n rooms.
func (r *Resolver) Hosted() (rooms []RoomLoad, units int64) {
	rooms, sum := r.loads()
	slices.SortFunc(rooms, func(a, b RoomLoad) int {
		return cmp.Or(cmp.Compare(b.Units, a.Units), cmp.Compare(a.Room, b.Room))
	})
	return rooms, sum.units
}

// loadSum is the sum of the costs of the rooms that a node hosts.
type loadSum struct {
	units  int64
	ahead  int64 // reserved
	unused int64 // the part of units that is reserved and not used yet
}

// loads returns the rooms that this node hosts, and the sum of their costs. loads calls Cost after it has
// released the lock of the host table.
func (r *Resolver) loads() (rooms []RoomLoad, sum loadSum) {
	rooms, needs := r.hosts.needs()
	for i, n := range needs {
		used := r.used(n)
		rooms[i].Units = max(used, n.Ahead)
		sum.units = capacity.Plus(sum.units, rooms[i].Units)
		sum.ahead = capacity.Plus(sum.ahead, n.Ahead)
		if n.Size() == 0 && n.Units == 0 { // MinCost is not measured
			used = 0
		}
		sum.unused = capacity.Plus(sum.unused, max(0, n.Ahead-used))
	}
	return rooms, sum
}
