package affinity

import (
	"context"
	"errors"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/rebalance"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

const (
	// relievedAtOnce is the maximum number of rooms that move away between two heartbeats.
	relievedAtOnce = 10
	// recentBeats is how many heartbeats ago a node may have reported its load. If the report is older, no
	// room moves to the node.
	recentBeats = 2
	// departs is how long a measured load may include a room that has moved away, as a multiple of
	// Config.Settle. While participants follow their room, the old host still serves some of them, for up to
	// ten seconds. If this were too short, too many rooms would move.
	departs = 3
)

// relieving is the state of the log about the moves.
type relieving struct {
	since time.Time // when the node became overloaded; zero: it is not
	moved int       // rooms since then
	stuck bool      // no other node takes a room
}

// relieve moves rooms to other nodes while this node is overloaded: see Config.Rebalance. The decision needs
// no coordinator, because the store counts what all nodes move to one node.
func (k *keeper) relieve(ctx context.Context, s *cluster.Snapshot) {
	if k.cfg.Rebalance == 0 {
		return
	}
	excess := k.excess(s)
	weigh := k.weigh()
	for n := 0; n < relievedAtOnce && excess > 0 && ctx.Err() == nil && time.Now().Before(k.due); n++ {
		room, err := k.relieveOne(ctx, s, excess, weigh)
		if room.Name == "" {
			k.sayRelieving(s, excess)
			if time.Now().Before(k.due) {
				k.sayStuck(excess)
			}
			break
		}
		k.mover.Departed(time.Now(), room.Units)
		if err != nil { // the store does not answer, so the room may have moved
			break
		}
		k.relieving.moved, k.relieving.stuck = k.relieving.moved+1, false
		k.counts.rebalanced.Add(1)
		k.own.computed -= room.Units
		excess = k.excess(s)
	}
	k.counts.excess.Store(excess)
	k.sayRelieving(s, excess)
}

// excess returns by how many units this node is overloaded, or 0 if it moves no rooms.
func (k *keeper) excess(s *cluster.Snapshot) int64 {
	k.load = k.mover.Load(time.Now(), k.own.computed, k.own.measured)
	if !k.agent.Live() || drained(s.Self) || k.store.agreement.Refused() != nil {
		return 0
	}
	return k.mover.Excess(k.load, s.Self.Capacity)
}

// weigh returns a function from the cost of a room to what the room contributes to this node's load. If a resource
// decides the load, the rooms together contribute more than they cost. Each room then counts in proportion to its
// cost, because otherwise the node would move too many rooms, and would overload the nodes that get them.
func (k *keeper) weigh() func(cost int64) int64 {
	load, hosted := k.load, k.own.hosted
	if k.own.used < k.own.measured-k.own.ahead || load <= hosted {
		return func(cost int64) int64 { return cost }
	}
	return func(cost int64) int64 { return capacity.Scale(cost, load, hosted) }
}

// relieveOne moves the room whose move helps most. relieveOne returns the zero Room if no room can move, and an
// error with the room if the store did not answer.
func (k *keeper) relieveOne(
	ctx context.Context, s *cluster.Snapshot, excess int64, weigh func(cost int64) int64,
) (moved rebalance.Room, err error) {
	rooms, needs := k.hosts.movable(time.Now(), k.cache.Generation())
	for i := range rooms {
		rooms[i].Units = weigh(k.cost(needs[rooms[i].Name]))
	}
	overload := rebalance.Overload{
		Node: s.Self.ID, Snapshot: s, Reserved: &k.reserved, Excess: excess,
		Recent: func(m *cluster.Member) bool { return m.Age() <= recentBeats*k.every },
	}
	request := func(r rebalance.Room) capacity.Request {
		q := k.request(s, r.Name, needs[r.Name]).Request
		q.Cost = r.Units
		return q
	}
	for m := range overload.Moves(rooms, request) {
		h := k.hosts.get(m.Room.Name)
		if h == nil {
			k.reserved.Cancel(m.Reserved)
			continue
		}
		_, _, err := k.move(ctx, s, m.Request, k.hosts.pinOf(h), m.To.Member, m.Reserved, overloaded)
		switch {
		case err == nil:
			return m.Room, nil
		case !errors.Is(err, errFull):
			k.hosts.verifyAt(h, time.Now()) // the room may have moved
		}
		if errors.Is(err, pinstore.ErrStore) || ctx.Err() != nil {
			return m.Room, err
		}
		if !time.Now().Before(k.due) {
			break
		}
	}
	return moved, nil
}

func (k *keeper) sayStuck(excess int64) {
	if !k.relieving.stuck {
		k.cfg.Log.Warn("overloaded, and no room can move", "excess", excess,
			"do", "add nodes, or capacity; rooms that moved here less than ten minutes ago stay")
	}
	k.relieving.stuck = true
}

func (k *keeper) sayRelieving(s *cluster.Snapshot, excess int64) {
	switch r := &k.relieving; {
	case excess > 0 && r.since.IsZero():
		r.since = time.Now()
		k.cfg.Log.Info("overloaded, moving rooms away", "load", k.load, "capacity", s.Self.Capacity, "excess", excess)
	case excess == 0 && (!r.since.IsZero() || r.moved > 0):
		k.cfg.Log.Info("no longer overloaded", "rooms_moved", r.moved, "load", k.load)
		*r = relieving{}
	}
}
