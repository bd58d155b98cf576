package affinity

import (
	"context"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/internal/pincache"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// swap performs an op for a waiting caller, caches the resulting pin, and publishes the move if the room has
// moved.
func (r *Resolver) swap(ctx context.Context, s *cluster.Snapshot, op pinstore.Op) pinstore.Result {
	asked := r.cache.Begin(op.Room, s.Stats.Fences)
	if op.Set.Number != 0 {
		op.Set.Epoch = max(op.Set.Epoch, asked.Least())
	}
	res := r.store.Swap(ctx, op)
	if renewed(op, res) {
		r.cache.Gave(res.Pin.Epoch, asked.Asked)
	}
	if m, ok := r.learn(op, asked, res); ok {
		r.publish(m)
	}
	return res
}

// Reasons of moves, besides those of liveness.Ended.
const (
	byRequest    = "moved on request"
	overloaded   = "its node was overloaded"
	drains       = "its node is draining"
	hostedTwice  = "the room was hosted on two nodes"
	wasReleased  = "the room was released"
	olderPin     = "the store had an older pin"
	movedByOther = "moved by another instance"
)

// learn caches the pin that an op has found or written. If the pin shows that the room has moved, learn
// returns the move, unless another caller has learned it first.
func (r *Resolver) learn(op pinstore.Op, asked *pincache.Entry, res pinstore.Result) (m Moved, moved bool) {
	if res.Err != nil {
		return m, false
	}
	if res.Pin.Released() {
		r.cache.Learn(op.Room, asked, pinstore.Pin{}, time.Time{})
		return m, false
	}
	news := r.cache.Learn(op.Room, asked, res.Pin, time.Now().Add(res.Fresh))
	none, from := lease.Incarnation{}, asked.Pin.Incarnation
	if op.If.Incarnation != none && !op.If.Released() {
		from = op.If.Incarnation
	}
	if !news || from == none || res.Pin.Incarnation == none || res.Pin.Incarnation == from {
		return m, false
	}
	return Moved{
		Room: op.Room, Partition: op.Partition, From: from, To: res.Pin.Incarnation,
		Reason: r.whyMoved(from, res.Pin), Epoch: res.Pin.Epoch,
	}, true
}

// whyMoved returns why a room has moved from an incarnation to the node of a pin. The pin has the reason until
// its host writes the pin again. This node may learn of the move before it learns that the incarnation is
// dead.
func (r *Resolver) whyMoved(from lease.Incarnation, pin pinstore.Pin) string {
	if why, ok := capacity.Replaced(pin); ok {
		return why
	}
	if s := r.agent.Snapshot(); liveness.Live(s, from) == nil {
		return liveness.Ended(s, from)
	}
	return movedByOther
}

// publish publishes the move of one room.
func (r *Resolver) publish(m Moved) {
	r.cfg.Log.Debug("room moved", "room", m.Room, "from", m.From.Node, "to", m.To.Node, "epoch", m.Epoch,
		"reason", m.Reason, "pin_ttl", r.cfg.PinTTL)
	r.announce([]Moved{m})
}

// renewed reports whether an op has given the room's pin a new epoch.
func renewed(op pinstore.Op, res pinstore.Result) bool {
	return res.Done && res.Pin.Epoch != 0 && (res.Pin.Epoch != op.If.Epoch || res.Pin.Incarnation != op.If.Incarnation)
}
