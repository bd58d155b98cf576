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
// done or the Resolver is closed. A signalling server can send these directives to a client of the room. Addr
// is the node's APIAddr. Follow keeps the room in the pin cache, so it also yields moves by other instances.
// Follow does not miss a move if the store was unreachable or if the cache has evicted the room. Follow
// yields nothing while the room has no pin, or while its node is one that this node has never met. Follow
// needs no round trip if the pin is cached.
//
// If a room moves several times while the loop body runs, Follow only yields its latest node. Follow does not
// yield a change of only the epoch, because that means that the host has restored a lost pin, and its clients
// are still connected. Each range over the sequence starts again with the current node. If the name is
// invalid, Follow yields nothing.
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
			// The timer makes followed read the pin again if it is no longer cached.
			timer.Reset(jittered(followEvery))
		}
	}
}

const followEvery = 2 * time.Second

// followed is where a followed room lives.
type followed struct {
	reconnect.Directive
	at    lease.Incarnation
	moved bool // the room has moved, possibly back to the same node
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
		return f // the next iteration asks again
	}
	return followed{a.Directive(), a.Incarnation, false}
}
