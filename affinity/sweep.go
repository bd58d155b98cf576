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
	sweepAtOnce = 64               // partitions; failing ones do not delay the others
	sweepRooms  = 4096             // in these, at a time
	sweepTime   = 10 * time.Second // for one query of the index
	sweepRetry  = time.Second      // doubled after each failure, up to
	sweepRest   = 30 * time.Second
)

// rehome is the goroutine that gives the rooms of dead nodes new homes, by partition:
// the owner of a partition sweeps it when it acquires the partition and when a node is
// gone. The work follows from the store and the live set alone, so nothing is lost when
// the sweeping node dies, too: the next owner starts over.
func (r *Resolver) rehome(ctx context.Context) {
	todo := &r.work.partitions
	pause := sweepRetry
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	var failed []placement.Partition
	for {
		select {
		case <-todo.wake:
		case <-retry.C:
		case <-ctx.Done():
			return
		}
		partitions := union(todo.take(placement.MaxPartitions), failed)
		if len(partitions) == 0 {
			continue
		}
		if failed = r.sweep(ctx, partitions); len(failed) == 0 {
			pause = sweepRetry
			continue
		}
		retry.Reset(jittered(pause))
		pause = min(2*pause, sweepRest)
	}
}

func union(a, b []placement.Partition) []placement.Partition {
	all := append(a, b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// sweep re-homes the rooms of dead nodes in some partitions, and returns the
// partitions in which that failed.
func (r *Resolver) sweep(ctx context.Context, partitions []placement.Partition) (failed []placement.Partition) {
	w := sweep{Resolver: r, skip: make(map[lease.Incarnation]bool)}
	since := time.Now()
	for chunk := range slices.Chunk(partitions, sweepAtOnce) {
		if !w.run(ctx, chunk) {
			failed = append(failed, chunk...)
		}
	}
	if w.rehomed > 0 {
		took := time.Since(since)
		r.counts.rehomings.Add(1)
		r.counts.rehomeTime.Add(int64(took))
		r.cfg.Log.Info("rooms re-homed", "rooms", w.rehomed, "took_ms", took.Milliseconds(), "pin_ttl", r.cfg.PinTTL)
	}
	switch {
	case len(failed) == 0 || r.store.away.Load() || ctx.Err() != nil:
	case w.homeless > 0:
		r.cfg.Log.Warn("rooms of dead nodes not re-homed, retrying", "rooms", w.homeless, "err", w.err)
	default:
		r.cfg.Log.Warn("rooms of dead nodes not found, retrying", "err", w.err)
	}
	return failed
}

// sweep is one sweep of some partitions.
type sweep struct {
	*Resolver
	skip     map[lease.Incarnation]bool // alive by the store
	rehomed  int
	homeless int   // rooms
	err      error // the latest
}

// run re-homes all rooms of dead nodes in some partitions.
func (w *sweep) run(ctx context.Context, partitions []placement.Partition) bool {
	for ctx.Err() == nil {
		s := w.agent.Snapshot()
		switch {
		case !w.agent.Live() || s.Table == nil:
			return true // the present owner does it
		case w.store.away.Load():
			w.err = ErrStore
			return false
		}
		bounded, cancel := context.WithTimeout(ctx, sweepTime)
		found, indexErr := w.store.store.Index(bounded, partitions, func(at lease.Incarnation) bool {
			return at.Number != 0 && findLive(s, at) == nil && !w.skip[at]
		}, sweepRooms)
		cancel()
		orphans, err := w.orphans(ctx, s, found)
		if err != nil {
			w.err = err
			return false
		}
		if indexErr != nil { // the rooms that were found are re-homed nevertheless
			w.err = indexErr
		}
		if !w.rehomeTraced(ctx, s, orphans) || indexErr != nil {
			return false
		}
		if len(found) < sweepRooms {
			return true
		}
	}
	return true
}

// orphans returns the rooms of incarnations that are dead by gossip and by the store.
func (w *sweep) orphans(ctx context.Context, s *cluster.Snapshot, found []Entry) ([]Entry, error) {
	verdicts := make(map[lease.Incarnation]verdict)
	for _, e := range found {
		at := e.Pin.Incarnation
		if _, ok := verdicts[at]; ok {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, bulkTime)
		v, err := w.judge(bounded, s, at)
		cancel()
		if err != nil {
			return nil, err
		}
		verdicts[at] = v
		w.skip[at] = v != dead
	}
	return slices.DeleteFunc(found, func(e Entry) bool { return verdicts[e.Pin.Incarnation] != dead }), nil
}

// rehomeTraced is rehomeAll with a call of the tracer.
func (w *sweep) rehomeTraced(ctx context.Context, s *cluster.Snapshot, orphans []Entry) bool {
	if w.cfg.Tracer == nil || len(orphans) == 0 {
		return w.rehomeAll(ctx, s, orphans)
	}
	rehomed, homeless := w.rehomed, w.homeless
	ctx, end := w.cfg.Tracer.Rehome(ctx, len(orphans))
	ok := w.rehomeAll(ctx, s, orphans)
	if end != nil {
		var why error
		if !ok {
			why = w.err
		}
		end(w.rehomed-rehomed, w.homeless-homeless, why)
	}
	return ok
}

// rehomeAll reports whether each orphan has a new home now, from this instance or
// from another.
func (w *sweep) rehomeAll(ctx context.Context, s *cluster.Snapshot, orphans []Entry) bool {
	ok := true
	for chunk := range slices.Chunk(orphans, bulkOps) {
		homeless, err := w.rehomeChunk(ctx, s, chunk)
		if homeless > 0 {
			ok = false
			w.homeless += homeless
		}
		if err != nil {
			w.err = err
		}
		if homeless == len(chunk) && err != nil {
			return false // the next chunk would fail as well
		}
	}
	return ok
}

// rehomeChunk chooses a home for each room and replaces its pin, unless another
// instance was faster.
func (w *sweep) rehomeChunk(ctx context.Context, s *cluster.Snapshot, orphans []Entry) (homeless int, err error) {
	sizes := w.sizes(ctx, orphans)
	// All owners of partitions sweep at the same time without each other's reservations.
	share := int64(max(1, len(s.Table.Nodes())))
	var ops []Op
	var reserved []reservation
	for i, e := range orphans {
		home, res, noHome := w.choose(s, w.request(s, e.Room, sizes[i]), share)
		if noHome != nil {
			homeless++
			err = noHome
			continue
		}
		ops = append(ops, Op{
			Partition: e.Partition, Room: e.Room, If: e.Pin,
			Set: Pin{Incarnation: home.incarnation(), Size: sizes[i]}, TTL: w.cfg.PinTTL,
		})
		reserved = append(reserved, res)
	}
	var moved []Moved
	for i, res := range w.store.swapAll(ctx, ops) {
		op := ops[i]
		switch {
		case res.Err != nil:
			homeless++
			err = res.Err
			w.reserved.cancel(reserved[i])
		case !res.Done:
			w.reserved.cancel(reserved[i])
		default:
			w.rehomed++
			w.counts.rehomed.Add(1)
			if w.cache.update(op.Room, res.Pin) {
				moved = append(moved, Moved{op.Room, op.Partition, op.If.Incarnation, res.Pin.Incarnation, nodeGone, res.Pin.Epoch})
				w.cfg.Log.Debug("room re-homed", "room", op.Room, "from", op.If.Node, "to", res.Pin.Node, "epoch", res.Pin.Epoch)
			}
		}
	}
	w.feeds.moves.publish(moved)
	return homeless, err
}

// sizes returns the numbers of participants. The participants of the dead node may
// have expired: then the size in the pin counts.
func (w *sweep) sizes(ctx context.Context, rooms []Entry) []int {
	sizes := make([]int, len(rooms))
	names := make([]string, len(rooms))
	for i, e := range rooms {
		sizes[i], names[i] = e.Pin.Size, e.Room
	}
	if w.cfg.Counter == nil {
		return sizes
	}
	ctx, cancel := context.WithTimeout(ctx, bulkTime)
	defer cancel()
	counted, err := w.cfg.Counter.Counts(ctx, names)
	if err != nil || len(counted) != len(sizes) {
		w.cfg.Log.Warn("counting participants failed, using the last sizes", "err", err)
		return sizes
	}
	for i, n := range counted {
		sizes[i] = min(max(sizes[i], n), MaxSize)
	}
	return sizes
}
