package affinity

import (
	"context"
	"math"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/internal/pincache"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// takeUp reads the pins that may have changed.
func (k *keeper) takeUp(ctx context.Context) {
	if k.store.Away() {
		k.work.rooms.take(math.MaxInt) // the keeper checks all pins when the store is back
		return
	}
	if s := k.agent.Snapshot(); s.Table == nil || s.Fenced {
		return // a node that has not rejoined cannot tell which nodes are dead
	}
	if k.work.all.Swap(false) {
		k.search = time.Now().Add(searchTime)
		k.due = time.Time{} // send the heartbeat before checking rooms, because other nodes wait for it
		k.work.rooms.add(k.hosts.names()...)
		k.work.partitions.add(k.owned()...)
		k.feeds.moves.resync() // the feed has missed moves while the store was unreachable
		return
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
	k.confirm(ctx, hosted, false)
	k.reread(ctx, others)
}

// reread reads the pins of cached rooms and publishes the moves that it finds.
func (k *keeper) reread(ctx context.Context, rooms []string) {
	if len(rooms) == 0 {
		return
	}
	s := k.agent.Snapshot()
	if s.Table == nil || s.Fenced { // the snapshot may have changed since takeUp
		k.work.rooms.add(rooms...)
		return
	}
	k.readAll(ctx, s, rooms, func() { k.pulse(ctx) })
}

// readAll reads the pins of rooms into the cache and publishes the moves that it finds. readAll calls between
// between two calls of the store. After an error an entry stays stale, so the next Resolve asks again.
func (r *Resolver) readAll(ctx context.Context, s *cluster.Snapshot, rooms []string, between func()) {
	ops := make([]pinstore.Op, len(rooms))
	asked := make([]*pincache.Entry, len(rooms))
	for i, room := range rooms {
		ops[i] = pinstore.Op{Partition: placement.Of(room, s.Table.Partitions()), Room: room}
		asked[i] = r.cache.Begin(room, s.Stats.Fences)
	}
	var moved []Moved
	for i, res := range r.store.SwapAll(ctx, ops, between) {
		if m, ok := r.learn(ops[i], asked[i], res); ok {
			moved = append(moved, m)
		}
	}
	r.announce(moved)
}

// confirm makes sure that the pins of hosted rooms exist. confirm restores pins that the store may have lost.
// If write is set, it refreshes the other pins. Otherwise it only reads them, except pins of unknown age,
// which it also refreshes. If a room's pin names another live node, confirm ends the hosting.
func (k *keeper) confirm(ctx context.Context, hosted []*Hosting, write bool) {
	k.noVerdict = nil
	var missing []*Hosting
	restored := 0
	reclaimed := make(map[*Hosting]bool) // value: the store had confirmed the pin before
	for i, res := range k.confirmBy(ctx, hosted, func(h *Hosting) pinstore.Op {
		if h.pin.Epoch == 0 || h.generation != k.cache.Generation() {
			reclaimed[h] = h.pin.Epoch != 0
			return k.claimOf(h)
		}
		return k.refreshOf(h, write)
	}) {
		switch h := hosted[i]; { //nolint:gosec // one result for each of hosted
		case res.Err == nil && res.Pin == (pinstore.Pin{}):
			missing = append(missing, h)
		case res.Done && reclaimed[h]:
			restored++
		}
	}
	if len(missing)+restored > 0 {
		k.history.rooms(EventDataLost, "", "", 0)
	}
	for _, res := range k.confirmBy(ctx, missing, k.claimOf) {
		if res.Done {
			restored++
		}
	}
	k.replaceVoid(ctx)
	if restored > 0 {
		k.liveness.Restored(time.Now())
		k.counts.repinned.Add(uint64(restored))
		k.history.rooms(EventPinsRestored, "", "", restored)
		k.cfg.Log.Info("pins restored after the store lost them", "rooms", restored, "pin_ttl", k.cfg.PinTTL)
	}
}

// refreshOf returns the op that writes or reads the pin of a hosted room.
func (k *keeper) refreshOf(h *Hosting, write bool) pinstore.Op {
	if !write && !h.written.IsZero() {
		return pinstore.Op{}
	}
	return pinstore.Op{If: h.pin, Set: h.needed().Pin(pinstore.Pin{Incarnation: h.self, Epoch: h.pin.Epoch}), TTL: k.cfg.PinTTL}
}

// claimOf returns the op that pins a hosted room if the room has no pin.
func (k *keeper) claimOf(h *Hosting) pinstore.Op {
	return pinstore.Op{
		Set: h.needed().Pin(pinstore.Pin{Incarnation: h.self, Epoch: max(h.pin.Epoch, k.cache.Least(h.room))}),
		TTL: k.cfg.PinTTL,
	}
}

// confirmBy performs an op for each hosting and handles the answers.
func (k *keeper) confirmBy(ctx context.Context, hosted []*Hosting, opOf func(*Hosting) pinstore.Op) []pinstore.Result {
	if len(hosted) == 0 || !k.agent.Live() {
		return nil
	}
	now := time.Now()
	generation := k.cache.Generation() // read before the call, because an answer proves nothing about a later loss
	ops := k.hosts.ops(hosted, opOf)
	results := k.store.SwapAll(ctx, ops, func() { k.pulse(ctx) })
	for i, res := range results {
		switch h := hosted[i]; {
		case res.Err != nil: // the room stays hosted: see Host
			k.hosts.unanswered(h, generation, time.Now())
			if op := ops[i]; op.Set.Number != 0 && op.Set.Epoch != op.If.Epoch {
				k.hosts.doubt(h)
			}
		case res.Pin != (pinstore.Pin{}):
			k.compare(ctx, h, answer{op: ops[i], res: res, asked: now, generation: generation})
		}
	}
	return results
}

// compare handles the store's answer about the pin of a hosted room.
func (k *keeper) compare(ctx context.Context, h *Hosting, a answer) {
	pin, isNew := a.res.Pin, renewed(a.op, a.res)
	if isNew {
		k.cache.Gave(pin.Epoch, a.generation)
	}
	a.older = !isNew && (k.cache.MayBeOlder(pin.Epoch) || pin.Epoch < k.cache.Least(h.room))
	is := k.hosts.take(h, a, k.cache.Generation())
	switch {
	case is.over && a.took(h) && isNew: // the hosting ended during the claim, so delete the new pin
		_ = k.unpin(context.Background(), pinstore.Op{Partition: h.partition, Room: h.room, If: pin})
	case is.over:
	case is.outdated:
		k.history.rooms(EventDataLost, "", "", 0)
		k.void = append(k.void, voidPin{h, pin})
	case is.anew, pin.Released():
		k.end(h, ErrReleased)
	case pin.Incarnation != h.self:
		k.contest(ctx, h, pin, is)
	}
}

// contest decides where a room lives that this node hosts but whose pin names another incarnation. If the
// other incarnation is dead, the keeper replaces the pin. The store was unreachable when the incarnation
// died, or has reverted to older data. While the store cannot tell whether the other incarnation is dead, the
// room stays here. If the store has just come back, the room also stays here for retryTime, because other
// nodes may withdraw a claim that they made while the store lost its data.
func (k *keeper) contest(ctx context.Context, h *Hosting, pin pinstore.Pin, is taken) {
	v, err := liveness.Unconfirmed, k.noVerdict
	if err == nil {
		bounded, cancel := k.store.Bounded(ctx)
		v, err = k.verdict(bounded, k.agent.Snapshot(), pin.Incarnation)
		cancel()
		k.noVerdict = err
	}
	switch {
	case err != nil || v == liveness.Unconfirmed:
		if k.doubt == nil {
			k.doubt = make(map[lease.Incarnation][]string)
		}
		k.doubt[pin.Incarnation] = append(k.doubt[pin.Incarnation], h.room)
	case v == liveness.Dead || v == liveness.Silent:
		k.void = append(k.void, voidPin{h, pin})
	case !is.wasSure && !is.sameOther:
		k.hosts.verifyAt(h, time.Now().Add(retryTime))
	default:
		k.yield(h, pin, !is.wasSure)
	}
}

// decide schedules another check of rooms whose pins name an incarnation that has a new verdict.
func (k *keeper) decide() {
	for at, rooms := range k.doubt {
		if v, known := k.liveness.Verdict(k.agent.Snapshot(), at, time.Now()); !known || v != liveness.Unconfirmed {
			delete(k.doubt, at)
			k.work.rooms.add(rooms...)
		}
	}
}

// voidPin is a pin of a hosted room that names a dead incarnation or is older than the hosting.
type voidPin struct {
	*Hosting
	pin pinstore.Pin
}

// A node stores its marks as heartbeats with numbers that no incarnation has.
const (
	restoring = 0              // the node still has pins to restore
	restored  = math.MaxUint64 // the node has noticed the latest loss and has restored all its pins
)

func mark(id lease.NodeID, number uint64) lease.Incarnation {
	return lease.Incarnation{Node: id, Number: number}
}

// restoredTime is the lifetime of a node's mark restored. If the store reverts to an earlier copy of its
// data, the copy may contain such marks from before the loss. So other nodes ignore these marks until
// restoredTime after the loss.
const restoredTime = time.Second

// others tracks which nodes have restored their pins after the latest loss of the store's data.
type others struct {
	generation uint64    // generation of the pin cache after the loss
	since      time.Time // after the loss
	restored   map[lease.NodeID]bool
}

// ask returns the marks of the live nodes that may still restore pins.
func (o *others) ask(s *cluster.Snapshot) (marks []lease.Incarnation) {
	for _, m := range s.Members {
		if m.ID != s.Self.ID && !o.restored[m.ID] {
			marks = append(marks, mark(m.ID, restoring), mark(m.ID, restored))
		}
	}
	return marks
}

// learn handles the store's answer about marks. restores reports whether a node is still restoring pins, and
// silent reports whether a node has no mark.
func (o *others) learn(marks []lease.Incarnation, found []bool, now time.Time) (restores, silent bool) {
	mayBeOlder := now.Sub(o.since) <= restoredTime
	for i := 0; i < len(marks); i += 2 {
		switch {
		case found[i+1] && !mayBeOlder:
			o.restored[marks[i].Node] = true
		case found[i]:
			restores = true
		default:
			silent = true
		}
	}
	return restores, silent
}

// sayRestored runs shortly after the store came back. sayRestored tells other nodes via the store whether
// this node has restored its pins, and asks the store whether the other nodes have restored theirs.
// sayRestored returns the maximum time until the next call.
func (k *keeper) sayRestored(ctx context.Context) (next time.Duration) {
	self, recent := k.liveness.Back(time.Now())
	if !recent {
		return k.every
	}
	s, generation := k.agent.Snapshot(), k.cache.Generation()
	ctx, cancel := k.store.Bounded(ctx)
	defer cancel()
	if k.others.generation != generation { // delete the mark of an earlier loss
		if _, err := k.store.Store.Heartbeat(ctx, mark(s.Self.ID, restored), 0, nil); err != nil {
			return retryTime
		}
		k.others = others{generation, time.Now(), make(map[lease.NodeID]bool)}
	}
	says, lasts := mark(s.Self.ID, restored), restoredTime
	if self && k.agent.Live() && k.hosts.unconfirmed(generation) {
		says.Number, lasts = restoring, k.liveness.TTL
	}
	ask := k.others.ask(s)
	found, err := k.store.Store.Heartbeat(ctx, says, lasts, ask)
	if err != nil {
		return retryTime
	}
	othersRestore, silent := k.others.learn(ask, found, time.Now())
	k.liveness.OthersRestore(othersRestore, silent, time.Now())
	if says.Number == restoring || k.liveness.Reclaiming(time.Now()) {
		return retryTime
	}
	return restoredTime / 2 // other nodes may notice the loss later
}

// replaceVoid replaces the pins in k.void, unless they have changed.
func (k *keeper) replaceVoid(ctx context.Context) {
	if len(k.void) == 0 {
		return
	}
	pins := make(map[*Hosting]pinstore.Pin, len(k.void))
	hosted := make([]*Hosting, len(k.void))
	for i, v := range k.void {
		hosted[i], pins[v.Hosting] = v.Hosting, v.pin
	}
	k.void = nil
	replaced := 0
	for _, res := range k.confirmBy(ctx, hosted, func(h *Hosting) pinstore.Op {
		return pinstore.Op{
			If:  pins[h],
			Set: h.needed().Pin(pinstore.Pin{Incarnation: h.self, Epoch: max(h.pin.Epoch, pins[h].Epoch+1, k.cache.Least(h.room))}),
			TTL: k.cfg.PinTTL,
		}
	}) {
		if res.Done {
			replaced++
		}
	}
	for _, v := range k.void { // replace pins that have become void again later, because otherwise a store could keep this loop busy
		k.hosts.verifyAt(v.Hosting, time.Now().Add(retryTime))
	}
	k.void = nil
	if replaced > 0 {
		k.counts.repinned.Add(uint64(replaced))
		k.history.rooms(EventPinsRestored, "", "", replaced)
		k.cfg.Log.Info("void pins replaced by the host", "rooms", replaced, "pin_ttl", k.cfg.PinTTL)
	}
}

// yield ends the hosting of a room that is pinned to another incarnation. conflict is set if this node hosted
// the room without the store's confirmation.
func (k *keeper) yield(h *Hosting, pin pinstore.Pin, conflict bool) {
	s := k.agent.Snapshot()
	why := k.whyMoved(h.self, pin)
	if conflict {
		why = hostedTwice
		k.counts.conflicts.Add(1)
		k.history.rooms(EventConflict, pin.Node, "", 1)
		k.cfg.Log.Warn("conflict: room was hosted on two nodes", "room", h.room, "to", pin.Node, "epoch", pin.Epoch)
	}
	news := k.cache.Update(h.room, pin)
	k.end(h, &NotOwnerError{Owner: k.assign(s, h.room, pin, Pinned, why), Split: conflict})
	if news {
		k.publish(Moved{Room: h.room, Partition: h.partition, From: h.self, To: pin.Incarnation, Reason: why, Epoch: pin.Epoch})
	}
}
