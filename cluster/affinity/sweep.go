package affinity

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/internal/storeclient"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	sweepAtOnce = 64          // partitions in one query of the index
	sweepApart  = 256         // maximum number of partitions that are swept separately at the same time
	sweepRooms  = 4096        // rooms in one query of the index, plus twice the rooms without a new node
	sweepRetry  = time.Second // doubled after each failure up to sweepRest
	sweepRest   = 30 * time.Second
)

// failOver is the goroutine that moves the rooms of dead nodes to new nodes, by partition. The owner of a
// partition sweeps the partition after acquiring it and whenever a node has died or left. A sweep only
// depends on the store and the set of live nodes. So if the sweeping node dies, too, the next owner of the
// partition starts over and nothing is lost.
func (r *Resolver) failOver(ctx context.Context) {
	todo := &r.work.partitions
	pause := sweepRetry
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	var failed []placement.Partition
	var since time.Time // when the first of the failed partitions failed
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
		if len(failed) == 0 {
			since = time.Now()
		}
		if failed = r.sweep(ctx, partitions, time.Since(since) >= r.liveness.TTL); len(failed) == 0 {
			pause = sweepRetry
			continue
		}
		if r.liveness.Reclaiming(time.Now()) {
			pause = sweepRetry // hosts will restore their pins soon
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

// sweep fails over the rooms of dead nodes in some partitions, and returns the partitions that need another
// sweep. sweep only logs a failure if warn is set. The caller sets warn after a TTL of failures, because if
// the store does not answer at all, the keeper's heartbeats detect and log that within a TTL.
func (r *Resolver) sweep(ctx context.Context, partitions []placement.Partition, warn bool) (failed []placement.Partition) {
	w := newSweep(r, make(map[lease.Incarnation]bool))
	since := time.Now()
	for left := partitions; len(left) > 0; {
		chunk := left[:min(sweepAtOnce, len(left))]
		ok, problem := w.chunk(ctx, chunk)
		if problem {
			failed = append(failed, w.apart(ctx, left)...)
			break
		}
		failed, left = append(failed, ifNot(ok, chunk)...), left[len(chunk):]
	}
	if w.failedOver > 0 {
		took := time.Since(since)
		r.counts.failovers.Add(1)
		r.counts.failoverTime.Add(int64(took))
		r.cfg.Log.Info("rooms failed over", "rooms", w.failedOver, "took_ms", took.Milliseconds(), "pin_ttl", r.cfg.PinTTL)
	}
	switch {
	case len(failed) == 0 || !warn || r.store.Away() || ctx.Err() != nil:
	case len(w.homeless) > 0:
		r.cfg.Log.Warn("rooms of dead nodes not failed over, retrying", "rooms", len(w.homeless), "err", w.err)
	default:
		r.cfg.Log.Warn("rooms of dead nodes not found, retrying", "err", w.err)
	}
	return failed
}

// sweep is the state of one sweep of some partitions.
type sweep struct {
	*Resolver
	skip       map[lease.Incarnation]bool // incarnations that may be alive, according to the store
	failedOver int
	homeless   map[string]bool // rooms without a new node
	err        error           // the latest error
	counting   time.Duration   // spent on the Counter
}

func newSweep(r *Resolver, skip map[lease.Incarnation]bool) sweep {
	return sweep{Resolver: r, skip: skip, homeless: make(map[string]bool)}
}

// chunk fails over all rooms of dead nodes in some partitions. ok reports whether all of these rooms have a
// new node. problem reports whether the store may have failed for only some of the partitions.
func (w *sweep) chunk(ctx context.Context, partitions []placement.Partition) (ok, problem bool) {
	before := maps.Clone(w.homeless)
	ok = w.run(ctx, partitions)
	problem = !ok && errors.Is(w.err, pinstore.ErrStore) && !w.store.Away() && len(partitions) > 1
	if problem {
		w.homeless = before // apart counts these rooms again
	}
	return ok, problem
}

// apart fails over the rooms of each partition with separate calls, and returns the partitions that need
// another sweep. A store call for several partitions fails or hangs even if only one partition is affected,
// for example if a shard of a Redis Cluster is down.
func (w *sweep) apart(ctx context.Context, partitions []placement.Partition) (failed []placement.Partition) {
	parts := make([]sweep, len(partitions))
	oks := make([]bool, len(partitions))
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(sweepApart, len(partitions)) {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(parts)); i = next.Add(1) - 1 {
				parts[i] = newSweep(w.Resolver, maps.Clone(w.skip))
				oks[i] = parts[i].run(ctx, partitions[i:i+1])
			}
		})
	}
	wait.Wait()
	for i := range parts {
		failed = append(failed, ifNot(oks[i], partitions[i:i+1])...)
		w.failedOver += parts[i].failedOver
		maps.Copy(w.homeless, parts[i].homeless)
		w.err = cmp.Or(parts[i].err, w.err)
	}
	return failed
}

func ifNot(ok bool, partitions []placement.Partition) []placement.Partition {
	if ok {
		return nil
	}
	return partitions
}

// run fails over all rooms of dead nodes in some partitions. run returns false if a room got no new node or
// the store failed.
func (w *sweep) run(ctx context.Context, partitions []placement.Partition) bool {
	ok, before := true, len(w.homeless)
	for ctx.Err() == nil {
		s := w.agent.Snapshot()
		switch {
		case !w.sweeps(s):
			return true
		case w.store.Away():
			w.err = pinstore.ErrStore
			return false
		}
		// The index may return the rooms without a new node again, before all other rooms.
		limit := sweepRooms + 2*len(w.homeless)
		bounded, cancel := context.WithTimeout(ctx, storeclient.BulkTime)
		found, err := w.store.Store.Index(bounded, partitions, func(at lease.Incarnation) bool {
			return at.Number != 0 && liveness.Live(s, at) == nil && !w.skip[at]
		}, limit)
		cancel()
		full := len(found) >= limit
		found = slices.DeleteFunc(found, func(e pinstore.Entry) bool { return w.homeless[e.Room] })
		orphans, unknown := w.orphans(ctx, s, found)
		if err = cmp.Or(err, unknown); err != nil { // fail over the rooms that were found anyway
			w.err = err
		}
		answers := w.failOverTraced(ctx, s, orphans)
		if ok = ok && len(w.homeless) == before; !answers || err != nil {
			return false
		}
		if !full {
			return ok
		}
	}
	return true
}

// sweeps reports whether this node may sweep. A node that is fenced, or refused because of its settings, must
// not sweep. Other nodes sweep in its place, or the node itself sweeps later.
func (r *Resolver) sweeps(s *cluster.Snapshot) bool {
	return r.agent.Live() && s.Table != nil && !s.Fenced && r.store.agreement.Refused() == nil
}

// orphans returns the rooms of incarnations that are dead in gossip and in the store. orphans returns an
// error if the store did not answer a query about an incarnation.
func (w *sweep) orphans(ctx context.Context, s *cluster.Snapshot, found []pinstore.Entry) (_ []pinstore.Entry, failed error) {
	verdicts := make(map[lease.Incarnation]liveness.Verdict)
	for _, e := range found {
		at := e.Pin.Incarnation
		if _, ok := verdicts[at]; ok {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, storeclient.BulkTime)
		v, err := w.verdict(bounded, s, at)
		cancel()
		if err != nil {
			verdicts[at], failed = liveness.Unconfirmed, err
			continue
		}
		verdicts[at] = v
		w.skip[at] = v != liveness.Dead
	}
	return slices.DeleteFunc(found, func(e pinstore.Entry) bool { return verdicts[e.Pin.Incarnation] != liveness.Dead }), failed
}

// failOverTraced calls failOverAll and notifies the tracer, if there is one.
func (w *sweep) failOverTraced(ctx context.Context, s *cluster.Snapshot, orphans []pinstore.Entry) (answers bool) {
	if w.cfg.Tracer == nil || len(orphans) == 0 {
		return w.failOverAll(ctx, s, orphans)
	}
	failedOver, homeless := w.failedOver, len(w.homeless)
	ctx, end := w.cfg.Tracer.Failover(ctx, len(orphans))
	answers = w.failOverAll(ctx, s, orphans)
	if end != nil {
		var why error
		if len(w.homeless) > homeless {
			why = w.err
		}
		end(w.failedOver-failedOver, len(w.homeless)-homeless, why)
	}
	return answers
}

// failOverAll moves each orphan to a new node, unless another instance has already moved it. If the store
// does not answer, failOverAll stops and returns false, because the next chunk would fail as well.
// failOverAll continues if no node has capacity for a chunk, because the next chunk may fit.
func (w *sweep) failOverAll(ctx context.Context, s *cluster.Snapshot, orphans []pinstore.Entry) (answers bool) {
	for chunk := range slices.Chunk(orphans, storeclient.BulkOps) {
		homeless := len(w.homeless)
		err := w.failOverChunk(ctx, s, chunk)
		if err != nil {
			w.err = err
		}
		if len(w.homeless)-homeless == len(chunk) && (errors.Is(err, pinstore.ErrStore) || errors.Is(err, errReclaiming)) {
			return false
		}
	}
	return true
}

// failOverChunk chooses a new node for each room and replaces the room's pin, unless another instance was
// faster.
func (w *sweep) failOverChunk(ctx context.Context, s *cluster.Snapshot, orphans []pinstore.Entry) (err error) {
	needs := w.needs(ctx, orphans)
	// All nodes sweep their partitions at the same time, and no node knows the reservations of other nodes.
	// So each node multiplies its reservations by the number of nodes.
	share := int64(max(1, len(s.Table.Nodes())))
	var ops []pinstore.Op
	var reserved []capacity.Reservation
	for i, e := range orphans {
		home, res, noHome := w.choose(s, w.request(s, e.Room, needs[i]), share)
		if noHome != nil {
			w.homeless[e.Room] = true
			err = noHome
			continue
		}
		ops = append(ops, pinstore.Op{
			Partition: e.Partition, Room: e.Room, If: e.Pin,
			Set: capacity.Replacing(needs[i].Pin(pinstore.Pin{Incarnation: home.Incarnation(), Epoch: w.cache.Least(e.Room)}), liveness.Ended(s, e.Pin.Incarnation)), TTL: w.cfg.PinTTL,
		})
		reserved = append(reserved, res)
	}
	var moved []Moved
	for i, res := range w.store.SwapAll(ctx, ops, nil) {
		op := ops[i]
		switch {
		case res.Err != nil:
			w.homeless[op.Room] = true
			err = res.Err
			w.reserved.Failed(reserved[i], res.Err)
		case !res.Done:
			w.reserved.Cancel(reserved[i])
		default:
			w.failedOver++
			w.counts.failedOver.Add(1)
			if w.cache.Update(op.Room, res.Pin) {
				moved = append(moved, Moved{
					Room: op.Room, Partition: op.Partition, From: op.If.Incarnation, To: res.Pin.Incarnation,
					Reason: liveness.Ended(s, op.If.Incarnation), Epoch: res.Pin.Epoch,
				})
				w.cfg.Log.Debug("room failed over", "room", op.Room, "from", op.If.Node, "to", res.Pin.Node, "epoch", res.Pin.Epoch)
			}
		}
	}
	w.announce(moved)
	return err
}
