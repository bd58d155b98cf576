package affinity

import (
	"context"
	"time"

	"github.com/sony/gobreaker/v2"
)

// look takes up the rooms whose pins somebody may have changed.
func (k *keeper) look(ctx context.Context) {
	if k.breaker.State() != gobreaker.StateClosed {
		return // once it is closed, all is dirty
	}
	var hosted []*Hosting
	var others []string
	k.mu.Lock()
	_, all := k.dirty[""]
	if all {
		delete(k.dirty, "")
		k.search = time.Now().Add(searchTime)
		k.signing = time.Time{} // at once: others wait to see it
		for room := range k.hosted {
			k.dirty[room] = struct{}{}
		}
	}
	for room := range k.dirty {
		if len(hosted)+len(others) == maxAtOnce {
			k.signal(k.wake)
			break
		}
		delete(k.dirty, room)
		if h := k.hosted[room]; h != nil {
			hosted = append(hosted, h)
		} else {
			others = append(others, room)
		}
	}
	k.mu.Unlock()
	if all {
		k.auditOwned()
	}
	k.confirm(ctx, hosted, false)
	k.reread(ctx, others)
}

// reread learns where rooms live that are known here, and tells of those that
// moved.
func (k *keeper) reread(ctx context.Context, rooms []string) {
	if len(rooms) == 0 {
		return
	}
	s := k.agent.Snapshot()
	ops := make([]Op, len(rooms))
	asked := make([]*memo, len(rooms))
	for i, room := range rooms {
		ops[i] = Op{Partition: k.question(s, room, 0).partition, Room: room}
		asked[i] = k.known.begin(room)
	}
	var moved []Moved
	for i, res := range k.swapMany(ctx, ops) {
		if res.Err != nil {
			continue // it is stale: whoever resolves it asks again
		}
		was, room := asked[i].pin, rooms[i]
		news := k.known.learn(room, asked[i], res.Pin, time.Now().Add(res.Fresh))
		if news && was.Life != (Life{}) && res.Pin.Life != was.Life {
			why := "moved by another instance"
			if findLife(s, was.Life) == nil {
				why = nodeGone
			}
			moved = append(moved, Moved{room, ops[i].Partition, was.Life, res.Pin.Life, why, res.Pin.Epoch})
		}
	}
	k.moves.publish(moved)
}

// confirm makes sure that the pins of rooms that are hosted here stand: it reads
// them, or writes them with a new TTL and size. One that the store has lost is
// claimed again; one that somebody else has is lost here.
func (k *keeper) confirm(ctx context.Context, hosted []*Hosting, write bool) {
	if len(hosted) == 0 {
		return
	}
	now := time.Now()
	ops := make([]Op, len(hosted))
	k.mu.Lock()
	for i, h := range hosted {
		ops[i] = Op{Partition: h.partition, Room: h.room}
		if write && h.pin.Epoch != 0 {
			ops[i].If = h.pin
			ops[i].Set, ops[i].TTL = Pin{h.life, h.pin.Epoch, h.size}, k.cfg.PinTTL
		}
	}
	k.mu.Unlock()
	var again []*Hosting
	for i, res := range k.swapMany(ctx, ops) {
		h := hosted[i]
		switch {
		case res.Err != nil: // it stays hosted: see the doc of Host
			k.retry(h)
		case res.Pin == (Pin{}):
			again = append(again, h)
		default:
			k.compare(h, res, now, write, false)
		}
	}
	k.reclaim(ctx, again)
}

// reclaim pins rooms that are hosted here and whose pins the store has lost.
func (k *keeper) reclaim(ctx context.Context, hosted []*Hosting) {
	if len(hosted) == 0 || !k.agent.Live() {
		return
	}
	now := time.Now()
	ops := make([]Op, len(hosted))
	k.mu.Lock()
	for i, h := range hosted {
		ops[i] = Op{Partition: h.partition, Room: h.room, Set: Pin{h.life, h.pin.Epoch, h.size}, TTL: k.cfg.PinTTL}
	}
	k.mu.Unlock()
	n := 0
	for i, res := range k.swapMany(ctx, ops) {
		if res.Err != nil {
			k.retry(hosted[i])
			continue
		}
		k.compare(hosted[i], res, now, true, true)
		if res.Done {
			n++
		}
	}
	k.log.Info("rooms pinned again: the store had lost their pins", "rooms", n, "pin_ttl", k.cfg.PinTTL)
}

// retry has a hosting looked at again with the next signing.
func (k *keeper) retry(h *Hosting) {
	k.mu.Lock()
	h.verify = time.Now()
	k.mu.Unlock()
}

// compare takes up what the store says of a room that is hosted here: after its
// pin was read or written, or made again because it was lost.
func (k *keeper) compare(h *Hosting, res Result, now time.Time, written, lost bool) {
	k.mu.Lock()
	released := h.err != nil
	era := k.known.era.Load()
	wasSure := h.pin.Epoch != 0 && h.era == era
	if res.Pin.Life == h.life {
		h.pin.Epoch, h.era = res.Pin.Epoch, era
		h.sureFor(res, now, written)
	}
	k.mu.Unlock()
	switch {
	case released && lost && res.Done: // it was released while it was pinned again
		_ = k.unpin(context.Background(), Op{Partition: h.partition, Room: h.room, If: res.Pin})
	case !released && res.Pin.Life != h.life:
		k.yieldTo(h, res.Pin, !wasSure)
	}
}

// sureFor decides when the pin is to be looked at again. A store that notifies
// calls its results fresh for long, one that cannot for a moment.
func (h *Hosting) sureFor(res Result, now time.Time, written bool) {
	if written && res.Done {
		h.refreshed = now
	}
	h.verify = time.Time{}
	if res.Fresh > 0 {
		h.verify = now.Add(5 * res.Fresh)
	}
}

// yieldTo gives a room up that is pinned to another life. It is a conflict if
// this node had it without the store's word.
func (k *keeper) yieldTo(h *Hosting, pin Pin, conflict bool) {
	s := k.agent.Snapshot()
	why := "moved by another instance"
	if conflict {
		why = "two nodes had it while the store was away"
		k.counts.conflicts.Add(1)
		k.log.Warn("conflict: "+why, "room", h.room, "to", pin.Node, "epoch", pin.Epoch)
	}
	news := k.known.set(h.room, pin)
	k.lose(h, &NotOwnerError{Owner: k.assign(s, h.room, pin, Pinned, why), Split: conflict})
	if news {
		k.tell(Moved{h.room, h.partition, h.life, pin.Life, why, pin.Epoch})
	}
}
