package affinity

import (
	"context"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/placement"
	"github.com/sony/gobreaker/v2"
)

const (
	auditRooms = 4096             // in one go
	auditTime  = 10 * time.Second // for one look at the index
)

// rehome gives the rooms of dead nodes new homes, by partition: the present owner
// of a partition looks at it whenever it acquires it and whenever a node is gone.
// What is to be done follows from the store and the live set alone, so nothing is
// lost when whoever was at it dies, too: the next owner starts over.
func (r *Resolver) rehome(ctx context.Context) {
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
		if len(todo) > 0 && !r.auditAll(ctx, todo) {
			r.mu.Lock()
			for _, p := range todo {
				r.audits[p] = struct{}{}
			}
			r.mu.Unlock()
			retry.Reset(jittered(time.Second))
		}
	}
}

// auditAll looks for rooms of the dead in some partitions until there are none,
// and reports whether that worked out.
func (r *Resolver) auditAll(ctx context.Context, todo []placement.Partition) bool {
	since, total := time.Now(), 0
	defer func() {
		if total > 0 {
			r.log.Info("rooms re-homed", "rooms", total, "took_ms", time.Since(since).Milliseconds(), "pin_ttl", r.cfg.PinTTL)
		}
	}()
	skip := make(map[Life]bool) // alive by the store
	for ctx.Err() == nil {
		s := r.agent.Snapshot()
		switch {
		case !r.agent.Live() || s.Table == nil:
			return true // whoever owns the partitions now does it
		case r.breaker.State() != gobreaker.StateClosed:
			return false
		}
		bounded, cancel := context.WithTimeout(ctx, auditTime)
		found, err := r.store.Index(bounded, todo, func(l Life) bool { return findLife(s, l) == nil && !skip[l] }, auditRooms)
		cancel()
		if err != nil {
			r.log.Warn("cannot look for rooms of nodes that are gone; trying again", "err", err)
			return false
		}
		orphans, ok := r.orphans(ctx, s, found, skip)
		if !ok {
			return false
		}
		n, ok := r.rehomeThese(ctx, s, orphans)
		total += n
		if !ok || len(found) < auditRooms {
			return ok
		}
	}
	return true
}

// orphans returns the rooms whose lives are dead by gossip and by the store.
func (r *Resolver) orphans(ctx context.Context, s *cluster.Snapshot, found []Entry, skip map[Life]bool) ([]Entry, bool) {
	verdicts := make(map[Life]verdict)
	for _, e := range found {
		if _, ok := verdicts[e.Pin.Life]; ok {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, bulkTime)
		v, err := r.judge(bounded, s, e.Pin.Life)
		cancel()
		if err != nil {
			r.log.Warn("cannot tell whether a node is gone; trying again", "peer", e.Pin.Node, "err", err)
			return nil, false
		}
		verdicts[e.Pin.Life] = v
		skip[e.Pin.Life] = v != dead
	}
	orphans := found[:0]
	for _, e := range found {
		if verdicts[e.Pin.Life] == dead {
			orphans = append(orphans, e)
		}
	}
	return orphans, true
}

// rehomeThese chooses a home for each room and replaces its pin, unless somebody
// else was faster.
func (r *Resolver) rehomeThese(ctx context.Context, s *cluster.Snapshot, orphans []Entry) (n int, ok bool) {
	ok = true
	for len(orphans) > 0 {
		piece := orphans[:min(bulkOps, len(orphans))]
		orphans = orphans[len(piece):]
		sizes := r.sizes(ctx, piece)
		ops := make([]Op, 0, len(piece))
		for i, e := range piece {
			q := r.question(s, e.Room, sizes[i])
			home, _, err := r.reserve(s, q)
			if err != nil {
				r.log.Warn("no new home for a room; trying again", "room", e.Room, "err", err)
				ok = false
				continue
			}
			ops = append(ops, Op{
				Partition: e.Partition, Room: e.Room, If: e.Pin,
				Set: Pin{Life: home.life(), Size: sizes[i]}, TTL: r.cfg.PinTTL,
			})
		}
		var moved []Moved
		done := 0
		for i, res := range r.swapMany(ctx, ops) {
			op := ops[i]
			if res.Err != nil {
				ok = false
			} else if res.Done {
				done++
				if r.known.set(op.Room, res.Pin) {
					moved = append(moved, Moved{op.Room, op.Partition, op.If.Life, res.Pin.Life, nodeGone, res.Pin.Epoch})
				}
			}
		}
		n += done
		r.counts.rehomed.Add(uint64(done))
		for _, m := range moved {
			r.log.Debug("room re-homed", "room", m.Room, "from", m.From.Node, "to", m.To.Node, "epoch", m.Epoch)
		}
		r.moves.publish(moved)
	}
	return n, ok
}

// sizes returns how many participants rooms have.
func (r *Resolver) sizes(ctx context.Context, rooms []Entry) []int {
	sizes := make([]int, len(rooms))
	names := make([]string, len(rooms))
	for i, e := range rooms {
		sizes[i], names[i] = e.Pin.Size, e.Room
	}
	if r.cfg.Counter == nil {
		return sizes
	}
	ctx, cancel := context.WithTimeout(ctx, bulkTime)
	defer cancel()
	counted, err := r.cfg.Counter.Counts(ctx, names)
	if err != nil || len(counted) != len(sizes) {
		r.log.Warn("rooms cannot be counted; their last known sizes count", "err", err)
		return sizes
	}
	return counted
}
