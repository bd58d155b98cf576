package affinity

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/lease"
)

// OutgrownError reports that a participant cannot join a room, because the room's node would exceed its hard
// ceiling: see Config.LimitGrowth. Refuse the participant, or let a relay serve them. OutgrownError matches
// ErrNoCapacity with errors.Is.
type OutgrownError struct {
	Room string
	Node lease.NodeID

	// Relay is the best other node with headroom for the units that the participant would add. The order of
	// nodes is that of Resolver.Relays, so all participants get the same relay while it has headroom. Relay is
	// nil if no node has headroom.
	Relay *cluster.Member
}

// Error returns the room, its node and the relay.
func (e *OutgrownError) Error() string {
	relay := "no other node has headroom for a relay"
	if e.Relay != nil {
		relay = fmt.Sprintf("%s can relay it", e.Relay.ID)
	}
	return fmt.Sprintf("affinity: room %q has outgrown its node %s; %s", e.Room, e.Node, relay)
}

// Is makes e an ErrNoCapacity.
func (e *OutgrownError) Is(target error) bool { return target == ErrNoCapacity }

// growth limits how far the rooms of this node grow. The keeper measures the load only with each heartbeat, so
// growth counts what the rooms have grown since then.
type growth struct {
	mu    sync.Mutex
	limit int64     // units
	own   ownLoad   // as last measured
	since time.Time // own.computed includes what has grown before this time
	grown []grown   // since then, and while own.measured may lack it
}

type grown struct {
	units int64
	at    time.Time
}

// admit reports whether the rooms may grow by a number of units, and counts them.
func (g *growth) admit(units int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	computed, measured := capacity.Plus(g.own.computed, units), capacity.Plus(max(0, g.own.measured), units)
	for _, c := range g.grown {
		measured = capacity.Plus(measured, c.units)
		if !c.at.Before(g.since) {
			computed = capacity.Plus(computed, c.units)
		}
	}
	if computed > g.limit || g.own.measured != lease.NoLoad && measured > g.limit {
		return false
	}
	g.count(units)
	return true
}

// grownBy returns the units that a new room here adds to the load before the next measurement. If the application
// measures the load, the node reports what the room does not use of its reservation in addition.
func (r *Resolver) grownBy(n capacity.Need) int64 {
	if r.cfg.ReportLoad {
		return r.cost(n)
	}
	return r.used(n)
}

// opened counts a room that has been placed here, even if it exceeds the limit.
func (g *growth) opened(units int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count(units)
}

// count adds units. The units of a tenth of a second become one entry, so there are few. The caller must hold mu.
func (g *growth) count(units int64) {
	const step = 100 * time.Millisecond
	now := time.Now()
	if n := len(g.grown); n > 0 && now.Before(g.grown[n-1].at) {
		g.grown[n-1].units = capacity.Plus(g.grown[n-1].units, units)
		return
	}
	g.grown = append(g.grown, grown{units, now.Add(step)}) // the end of the step, so that no unit is forgotten early
}

// update sets the load as measured since a time. The measured part may lack what has grown within settle before.
func (g *growth) update(own ownLoad, limit int64, since time.Time, settle time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.own, g.limit, g.since = own, limit, since
	g.grown = slices.DeleteFunc(g.grown, func(c grown) bool { return c.at.Before(since.Add(-settle)) })
}

// limitGrowth makes the load that was measured since a time known to growth.
func (k *keeper) limitGrowth(s *cluster.Snapshot, since time.Time) {
	if !k.cfg.LimitGrowth {
		return
	}
	limit := int64(math.MaxInt64)
	if s.Self.Capacity > 0 {
		limit = k.reserved.Limits.HardOf(s.Self)
	}
	k.growth.update(k.own, limit, since, k.cfg.Settle)
}

// grow applies change to the need of the room for a participant who joins, and records the time. If the node has too
// little headroom for the extra cost, grow changes nothing and returns that cost as refused. dropped reports that the
// hosting and its reservation have ended.
func (h *Hosting) grow(change func(capacity.Need) capacity.Need) (refused int64, dropped bool) {
	h.use.mu.Lock()
	defer h.use.mu.Unlock()
	if h.dropped {
		return 0, true
	}
	need := change(h.need)
	if h.r.cfg.LimitGrowth {
		units := h.r.cost(need) - h.r.cost(h.need)
		if units > 0 && !h.r.growth.admit(units) {
			return units, false
		}
	}
	h.need, h.touched, h.held = need, time.Now(), false
	return 0, false
}

// outgrown returns the error for a participant whose join would cost units that the node of a room lacks.
func (r *Resolver) outgrown(h *Hosting, units int64) error {
	r.counts.outgrown.Add(1)
	s := r.agent.Snapshot()
	return &OutgrownError{Room: h.room, Node: s.Self.ID, Relay: r.relayOf(s, h, units)}
}

// relayOf returns the best other node with headroom for what a room does not get on its own node, or nil.
func (r *Resolver) relayOf(s *cluster.Snapshot, h *Hosting, units int64) *cluster.Member {
	q := r.request(s, h.room, capacity.Need{Units: units, Rules: h.needed().Rules})
	_, candidates, _ := r.reserved.Explain(s, q.Request, s.Self.ID)
	for i := range candidates {
		c := &candidates[i]
		if !c.Taken && c.Preference > 0 && capacity.TakesRooms(c.Member) && c.HasRoom(q.Cost) {
			return c.Member
		}
	}
	return nil
}
