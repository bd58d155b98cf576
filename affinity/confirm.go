package affinity

import (
	"context"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// look takes up the rooms whose pins somebody may have changed.
func (k *keeper) look(ctx context.Context) {
	if k.away.Load() {
		return // once it is back, all is dirty
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
		k.moves.resync() // what moved meanwhile, nobody has told
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
	for i, res := range k.swapMany(ctx, ops) { // one that failed is stale: whoever resolves it asks again
		if m, ok := k.learn(s, ops[i], asked[i], res, ""); ok {
			moved = append(moved, m)
		}
	}
	k.moves.publish(moved)
}

// confirm makes sure that the pins of rooms that are hosted here stand. One that
// the store may have lost is claimed again; one that is about to expire, or that
// the caller wants to be written, is refreshed; others are read. A room that
// somebody else has is lost here.
func (k *keeper) confirm(ctx context.Context, hosted []*Hosting, write bool) {
	var again []*Hosting
	n := 0                               // pins that the store had lost
	reclaimed := make(map[*Hosting]bool) // that the store had confirmed before
	for i, res := range k.confirmBy(ctx, hosted, func(h *Hosting) Op {
		if h.pin.Epoch == 0 || h.era != k.known.era.Load() {
			reclaimed[h] = h.pin.Epoch != 0
			return k.claimOf(h)
		}
		return k.refreshOf(h, write)
	}) {
		switch h := hosted[i]; {
		case res.Err == nil && res.Pin == (Pin{}):
			again = append(again, h)
		case res.Done && reclaimed[h]:
			n++
		}
	}
	for _, res := range k.confirmBy(ctx, again, k.claimOf) {
		if res.Done {
			n++
		}
	}
	if n > 0 {
		k.counts.repinned.Add(uint64(n))
		k.log.Info("rooms pinned again: the store had lost their pins", "rooms", n, "pin_ttl", k.cfg.PinTTL)
	}
}

// refreshOf is the op that refreshes or reads the pin of a room that is hosted here.
func (k *keeper) refreshOf(h *Hosting, write bool) Op {
	if !write && !h.refreshed.IsZero() {
		return Op{}
	}
	return Op{If: h.pin, Set: Pin{h.life, h.pin.Epoch, h.size}, TTL: k.cfg.PinTTL}
}

// claimOf is the op that pins a room that is hosted here, unless it is pinned.
func (k *keeper) claimOf(h *Hosting) Op {
	return Op{Set: Pin{h.life, h.pin.Epoch, h.size}, TTL: k.cfg.PinTTL}
}

// confirmBy performs an op for each hosting and takes up what comes back.
func (k *keeper) confirmBy(ctx context.Context, hosted []*Hosting, opOf func(*Hosting) Op) []Result {
	if len(hosted) == 0 || !k.agent.Live() {
		return nil
	}
	now := time.Now()
	ops := make([]Op, len(hosted))
	era := k.known.era.Load() // before the answers: they say nothing of a store that is lost after them
	k.mu.Lock()
	for i, h := range hosted {
		ops[i] = opOf(h)
		ops[i].Partition, ops[i].Room = h.partition, h.room
	}
	k.mu.Unlock()
	results := k.swapMany(ctx, ops)
	for i, res := range results {
		switch {
		case res.Err != nil: // it stays hosted: see the doc of Host
			k.retry(hosted[i])
		case res.Pin != (Pin{}):
			k.compare(hosted[i], ops[i], res, now, era)
		}
	}
	return results
}

// retry has a hosting looked at again with the next signing.
func (k *keeper) retry(h *Hosting) {
	k.mu.Lock()
	h.verify = time.Now()
	k.mu.Unlock()
}

// compare takes up what the store says of a room that is hosted here, when it was
// asked at that time and in that era.
func (k *keeper) compare(h *Hosting, op Op, res Result, now time.Time, era uint64) {
	k.mu.Lock()
	over := h.err != nil
	wasSure := h.pin.Epoch != 0 && h.era == k.known.era.Load()
	if res.Pin.Incarnation == h.life {
		h.pin.Epoch, h.era = res.Pin.Epoch, era
		h.sureFor(op, res, now)
	}
	k.mu.Unlock()
	switch {
	case over && res.Done && op.Set.Incarnation == h.life && op.If.Incarnation == (lease.Incarnation{}): // it ended while it was pinned again
		_ = k.unpin(context.Background(), Op{Partition: h.partition, Room: h.room, If: res.Pin})
	case !over && res.Pin.released():
		k.lose(h, ErrReleased)
	case !over && res.Pin.Incarnation != h.life:
		k.yieldTo(h, res.Pin, !wasSure)
	}
}

// sureFor decides when the pin is to be looked at again. A store that notifies
// calls its results fresh for long, one that cannot for a moment.
func (h *Hosting) sureFor(op Op, res Result, now time.Time) {
	if res.Done && op.Set.Incarnation == h.life {
		h.refreshed, h.pin.Size = now, op.Set.Size
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
	why := movedByOther
	if conflict {
		why = "two nodes had it while the store was away"
		k.counts.conflicts.Add(1)
		k.log.Warn("conflict: "+why, "room", h.room, "to", pin.Node, "epoch", pin.Epoch)
	}
	news := k.known.set(h.room, pin)
	k.lose(h, &NotOwnerError{Owner: k.assign(s, h.room, pin, Pinned, why), Split: conflict})
	if news {
		k.tell(Moved{h.room, h.partition, h.life, pin.Incarnation, why, pin.Epoch})
	}
}
