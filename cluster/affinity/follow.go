package affinity

import (
	"context"
	"iter"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/lease"
)

// Follow yields where a room lives, and then each new node of the room, with growing epochs, until ctx is
// done or the resolver is closed. It is for a signalling server, which sends the directives to a client of
// the room. Addr is the node's APIAddr. Follow keeps the room in the pin cache, so that it notices moves by
// other instances, even after the store was away or the room was evicted from the cache. It yields nothing
// while the room has no pin, or is on a node that this one has never met. It needs no round trip if the room
// is known.
//
// Nodes that the room leaves again while the loop body runs are skipped. A change of only the epoch is
// skipped, too, because a host then restores a pin that the store has lost, and its clients stay connected.
// Each range over the sequence starts again. If the name is invalid, Follow yields nothing.
func (r *Resolver) Follow(ctx context.Context, room string) iter.Seq[reconnect.Directive] {
	return func(yield func(reconnect.Directive) bool) {
		if CheckName(room) != nil {
			return
		}
		s := r.feeds.moves.subscribe(room)
		defer r.feeds.moves.unsubscribe(s)
		timer := time.NewTimer(0)
		defer timer.Stop()
		var last followed
		for {
			select {
			case <-s.wake:
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			b, open := r.feeds.moves.take(s)
			if ctx.Err() != nil || !open {
				return
			}
			if now := r.followed(ctx, room, b); now.Epoch > last.Epoch {
				news := now.moved || now.at != last.at
				if last = now; news && !yield(now.Directive) {
					return
				}
			}
			// The timer is for a room that is no longer known.
			timer.Reset(jittered(followEvery))
		}
	}
}

const followEvery = 2 * time.Second

// followed is where a followed room lives.
type followed struct {
	reconnect.Directive
	at    lease.Incarnation
	moved bool // by a move, which may go back to the same node
}

// followed returns where a followed room lives, from its moves, its cached pin, or the store.
func (r *Resolver) followed(ctx context.Context, room string, b MovedBatch) (f followed) {
	s := r.agent.Snapshot()
	if s.Table == nil || s.Fenced {
		return f
	}
	if len(b.Moved) > 0 {
		if m := b.Moved[0]; m.Addr != "" || liveness.Live(s, m.To) != nil {
			return followed{m.Directive(), m.To, true}
		}
	}
	if e := r.cache.Get(room); e != nil && r.cache.IsFresh(e) {
		if m := liveness.Live(s, e.Pin.Incarnation); m != nil {
			d := reconnect.Directive{Room: room, To: m.ID, Addr: m.APIAddr, Reason: liveness.Alive.Reason(), Epoch: e.Pin.Epoch}
			return followed{d, e.Pin.Incarnation, false}
		}
	}
	a, err := r.Lookup(ctx, room)
	if err != nil || liveness.Live(r.agent.Snapshot(), a.Incarnation) == nil {
		return f // the next round asks again
	}
	return followed{a.Directive(), a.Incarnation, false}
}
