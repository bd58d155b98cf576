package affinity

import (
	"context"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	auditAtOnce = 64               // partitions; what cannot be helped in some keeps no others waiting
	auditRooms  = 4096             // in those, at a time
	auditTime   = 10 * time.Second // for one look at the index
	auditRetry  = time.Second      // doubled with each vain attempt, up to
	auditRest   = 30 * time.Second
)

// rehome gives the rooms of dead nodes new homes, by partition: the present owner
// of a partition looks at it whenever it acquires it and whenever a node is gone.
// What is to be done follows from the store and the live set alone, so nothing is
// lost when whoever was at it dies, too: the next owner starts over.
func (r *Resolver) rehome(ctx context.Context) {
	pause := auditRetry
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		select {
		case <-r.audit:
		case <-retry.C:
		case <-ctx.Done():
			return
		}
		r.mu.Lock()
		todo := make([]placement.Partition, 0, len(r.audits))
		for p := range r.audits {
			todo = append(todo, p)
		}
		clear(r.audits)
		r.mu.Unlock()
		if len(todo) == 0 {
			continue
		}
		failed := r.auditAll(ctx, todo)
		if len(failed) == 0 {
			pause = auditRetry
			continue
		}
		r.mu.Lock()
		for _, p := range failed {
			r.audits[p] = struct{}{}
		}
		r.mu.Unlock()
		retry.Reset(jittered(pause))
		pause = min(2*pause, auditRest)
	}
}

// auditAll looks for rooms of the dead in some partitions until there are none,
// and returns those in which that did not work out.
func (r *Resolver) auditAll(ctx context.Context, todo []placement.Partition) (failed []placement.Partition) {
	a := audit{Resolver: r, skip: make(map[lease.Incarnation]bool)}
	since := time.Now()
	for chunk := range slices.Chunk(todo, auditAtOnce) {
		if !a.look(ctx, chunk) {
			failed = append(failed, chunk...)
		}
	}
	if a.rehomed > 0 {
		took := time.Since(since)
		r.counts.rehomings.Add(1)
		r.counts.rehomeTime.Add(int64(took))
		r.log.Info("rooms re-homed", "rooms", a.rehomed, "took_ms", took.Milliseconds(), "pin_ttl", r.cfg.PinTTL)
	}
	if len(failed) > 0 && !r.away.Load() && ctx.Err() == nil {
		a.complain()
	}
	return failed
}

// complain tells of what did not work out, in spite of a store that answers.
func (a *audit) complain() {
	if a.homeless > 0 {
		a.log.Warn("some rooms of nodes that are gone have no new home yet; trying again", "rooms", a.homeless, "err", a.err)
		return
	}
	a.log.Warn("rooms of nodes that are gone cannot be found; trying again", "err", a.err)
}

// audit is one look at some partitions.
type audit struct {
	*Resolver
	skip     map[lease.Incarnation]bool // alive by the store
	rehomed  int
	homeless int   // rooms
	err      error // the latest
}

// look re-homes all rooms of the dead in some partitions.
func (a *audit) look(ctx context.Context, partitions []placement.Partition) bool {
	for ctx.Err() == nil {
		s := a.agent.Snapshot()
		switch {
		case !a.agent.Live() || s.Table == nil:
			return true // whoever owns the partitions now does it
		case a.away.Load():
			a.err = ErrStore
			return false
		}
		bounded, cancel := context.WithTimeout(ctx, auditTime)
		found, err := a.store.Index(bounded, partitions, func(l lease.Incarnation) bool {
			return l.Number != 0 && findLife(s, l) == nil && !a.skip[l]
		}, auditRooms)
		cancel()
		ok := true
		if err != nil {
			a.err, ok = err, false // what was found nevertheless is helped
		}
		orphans, err := a.orphans(ctx, s, found)
		if err != nil {
			a.err = err
			return false
		}
		if !a.rehomeTraced(ctx, s, orphans) || !ok {
			return false
		}
		if len(found) < auditRooms {
			return true
		}
	}
	return true
}

// orphans returns the rooms whose lives are dead by gossip and by the store.
func (a *audit) orphans(ctx context.Context, s *cluster.Snapshot, found []Entry) ([]Entry, error) {
	verdicts := make(map[lease.Incarnation]verdict)
	for _, e := range found {
		if _, ok := verdicts[e.Pin.Incarnation]; ok {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, bulkTime)
		v, err := a.judge(bounded, s, e.Pin.Incarnation)
		cancel()
		if err != nil {
			return nil, err
		}
		verdicts[e.Pin.Incarnation] = v
		a.skip[e.Pin.Incarnation] = v != dead
	}
	return slices.DeleteFunc(found, func(e Entry) bool { return verdicts[e.Pin.Incarnation] != dead }), nil
}

// rehomeTraced is rehomeAll, told to the tracer.
func (a *audit) rehomeTraced(ctx context.Context, s *cluster.Snapshot, orphans []Entry) bool {
	if a.cfg.Tracer == nil || len(orphans) == 0 {
		return a.rehomeAll(ctx, s, orphans)
	}
	rehomed, homeless := a.rehomed, a.homeless
	ctx, end := a.cfg.Tracer.Rehome(ctx, len(orphans))
	ok := a.rehomeAll(ctx, s, orphans)
	if end != nil {
		var why error
		if !ok {
			why = a.err
		}
		end(a.rehomed-rehomed, a.homeless-homeless, why)
	}
	return ok
}

// rehomeAll reports whether each orphan has a new home now, wherever it has it from.
func (a *audit) rehomeAll(ctx context.Context, s *cluster.Snapshot, orphans []Entry) bool {
	ok := true
	for piece := range slices.Chunk(orphans, bulkOps) {
		homeless, err := a.rehomeThese(ctx, s, piece)
		if homeless > 0 {
			ok = false
			a.homeless += homeless
		}
		if err != nil {
			a.err = err
		}
		if homeless == len(piece) && err != nil {
			return false // it is no use at present
		}
	}
	return ok
}

// rehomeThese chooses a home for each room and replaces its pin, unless somebody
// else was faster.
func (a *audit) rehomeThese(ctx context.Context, s *cluster.Snapshot, orphans []Entry) (homeless int, err error) {
	sizes := a.sizes(ctx, orphans)
	// Every owner of partitions is at it, and none knows of the others' choices.
	share := int64(max(1, len(s.Table.Nodes())))
	var ops []Op
	var undo []func()
	for i, e := range orphans {
		q := a.question(s, e.Room, sizes[i])
		home, at, noHome := a.reserveTimes(s, q, share)
		if noHome != nil {
			homeless++
			err = noHome
			continue
		}
		ops = append(ops, Op{
			Partition: e.Partition, Room: e.Room, If: e.Pin,
			Set: Pin{Incarnation: home.life(), Size: sizes[i]}, TTL: a.cfg.PinTTL,
		})
		undo = append(undo, func() { a.cancelUnits(home, q.cost*share, at) })
	}
	var moved []Moved
	for i, res := range a.swapMany(ctx, ops) {
		op := ops[i]
		switch {
		case res.Err != nil:
			homeless++
			err = res.Err
			undo[i]()
		case !res.Done:
			undo[i]()
		default:
			a.rehomed++
			a.counts.rehomed.Add(1)
			if a.known.set(op.Room, res.Pin) {
				moved = append(moved, Moved{op.Room, op.Partition, op.If.Incarnation, res.Pin.Incarnation, nodeGone, res.Pin.Epoch})
				a.log.Debug("room re-homed", "room", op.Room, "from", op.If.Node, "to", res.Pin.Node, "epoch", res.Pin.Epoch)
			}
		}
	}
	a.moves.publish(moved)
	return homeless, err
}

// sizes returns how many participants rooms have. Those of the dead node may have
// run out already: then the size that it told last counts.
func (a *audit) sizes(ctx context.Context, rooms []Entry) []int {
	sizes := make([]int, len(rooms))
	names := make([]string, len(rooms))
	for i, e := range rooms {
		sizes[i], names[i] = e.Pin.Size, e.Room
	}
	if a.cfg.Counter == nil {
		return sizes
	}
	ctx, cancel := context.WithTimeout(ctx, bulkTime)
	defer cancel()
	counted, err := a.cfg.Counter.Counts(ctx, names)
	if err != nil || len(counted) != len(sizes) {
		a.log.Warn("rooms cannot be counted; their last known sizes count", "err", err)
		return sizes
	}
	for i, n := range counted {
		sizes[i] = min(max(sizes[i], n), MaxSize)
	}
	return sizes
}
