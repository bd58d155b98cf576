package affinity

import (
	"context"
	"time"

	"github.com/roost-cluster/roost/placement"
)

// takeUp looks at the rooms with pins that may have changed.
func (k *keeper) takeUp(ctx context.Context) {
	if k.store.away.Load() {
		return // when the store is back, any pin may have changed
	}
	all := k.work.all.Swap(false)
	if all {
		k.search = time.Now().Add(searchTime)
		k.due = time.Time{} // now: other nodes wait for it
		k.work.rooms.add(k.hosts.names()...)
	}
	var hosted []*Hosting
	var others []string
	for _, room := range k.work.rooms.take(maxAtOnce) {
		if h := k.hosts.get(room); h != nil {
			hosted = append(hosted, h)
		} else {
			others = append(others, room)
		}
	}
	if all {
		k.work.partitions.add(k.owned()...)
		k.feeds.moves.resync() // moves in between were not published
	}
	k.confirm(ctx, hosted, false)
	k.reread(ctx, others)
}

// reread reads the pins of cached rooms and publishes the rooms that moved.
func (k *keeper) reread(ctx context.Context, rooms []string) {
	if len(rooms) == 0 {
		return
	}
	s := k.agent.Snapshot()
	ops := make([]Op, len(rooms))
	asked := make([]*cached, len(rooms))
	for i, room := range rooms {
		ops[i] = Op{Partition: placement.Of(room, s.Table.Partitions()), Room: room}
		asked[i] = k.cache.begin(room, s.Stats.Fences)
	}
	var moved []Moved
	for i, res := range k.store.swapAll(ctx, ops) { // after an error the entry is stale, and the next Resolve asks again
		if m, ok := k.learn(s, ops[i], asked[i], res, ""); ok {
			moved = append(moved, m)
		}
	}
	k.feeds.moves.publish(moved)
}

// confirm makes sure that the pins of hosted rooms exist. It claims a pin that the
// store may have lost, writes a pin that is about to expire, or each one if write is
// set, and reads the others. A room that lives elsewhere ends here.
func (k *keeper) confirm(ctx context.Context, hosted []*Hosting, write bool) {
	var missing []*Hosting
	restored := 0
	reclaimed := make(map[*Hosting]bool) // whether the store had confirmed the pin before
	for i, res := range k.confirmBy(ctx, hosted, func(h *Hosting) Op {
		if h.pin.Epoch == 0 || h.generation != k.cache.generation.Load() {
			reclaimed[h] = h.pin.Epoch != 0
			return k.claimOf(h)
		}
		return k.refreshOf(h, write)
	}) {
		switch h := hosted[i]; {
		case res.Err == nil && res.Pin == (Pin{}):
			missing = append(missing, h)
		case res.Done && reclaimed[h]:
			restored++
		}
	}
	for _, res := range k.confirmBy(ctx, missing, k.claimOf) {
		if res.Done {
			restored++
		}
	}
	if restored > 0 {
		k.counts.repinned.Add(uint64(restored))
		k.cfg.Log.Info("pins restored after the store lost them", "rooms", restored, "pin_ttl", k.cfg.PinTTL)
	}
}

// refreshOf returns the op that writes or reads the pin of a hosted room.
func (k *keeper) refreshOf(h *Hosting, write bool) Op {
	if !write && !h.written.IsZero() {
		return Op{}
	}
	return Op{If: h.pin, Set: Pin{h.self, h.pin.Epoch, h.size}, TTL: k.cfg.PinTTL}
}

// claimOf returns the op that pins a hosted room, unless it has a pin.
func (k *keeper) claimOf(h *Hosting) Op {
	return Op{Set: Pin{h.self, h.pin.Epoch, h.size}, TTL: k.cfg.PinTTL}
}

// confirmBy performs an op for each hosting and takes up the answers.
func (k *keeper) confirmBy(ctx context.Context, hosted []*Hosting, opOf func(*Hosting) Op) []Result {
	if len(hosted) == 0 || !k.agent.Live() {
		return nil
	}
	now := time.Now()
	generation := k.cache.generation.Load() // before the answers, which prove nothing about a later loss
	ops := k.hosts.ops(hosted, opOf)
	results := k.store.swapAll(ctx, ops)
	for i, res := range results {
		switch h := hosted[i]; {
		case res.Err != nil: // the room stays hosted: see Host
			k.hosts.verifyAt(h, time.Now())
		case res.Pin != (Pin{}):
			k.compare(h, answer{ops[i], res, now, generation})
		}
	}
	return results
}

// compare takes up the pin of a hosted room.
func (k *keeper) compare(h *Hosting, a answer) {
	over, wasSure := k.hosts.take(h, a, k.cache.generation.Load())
	pin := a.res.Pin
	switch {
	case over && a.took(h) && a.op.If == (Pin{}): // the hosting ended during the claim
		_ = k.unpin(context.Background(), Op{Partition: h.partition, Room: h.room, If: pin})
	case !over && pin.released():
		k.end(h, ErrReleased)
	case !over && pin.Incarnation != h.self:
		k.yield(h, pin, !wasSure)
	}
}

// yield gives up a room that is pinned to another incarnation. It is a conflict if this
// node hosted the room without the store's confirmation.
func (k *keeper) yield(h *Hosting, pin Pin, conflict bool) {
	s := k.agent.Snapshot()
	why := movedByOther
	if conflict {
		why = "the room was hosted on two nodes"
		k.counts.conflicts.Add(1)
		k.cfg.Log.Warn("conflict: room was hosted on two nodes", "room", h.room, "to", pin.Node, "epoch", pin.Epoch)
	}
	news := k.cache.update(h.room, pin)
	k.end(h, &NotOwnerError{Owner: k.assign(s, h.room, pin, Pinned, why), Split: conflict})
	if news {
		k.publish(Moved{h.room, h.partition, h.self, pin.Incarnation, why, pin.Epoch})
	}
}
