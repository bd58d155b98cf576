package affinity

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/internal/rebalance"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	retryTime  = 200 * time.Millisecond // while the store does not answer or a split lasts
	searchTime = 30 * time.Second       // how long known rooms of dead nodes are searched for
	maxAtOnce  = 512                    // maximum number of rooms to check between two heartbeats
)

// keeper is the goroutine that maintains the pins of hosted rooms. keeper sends this node's heartbeat to the
// store, refreshes pins, and handles pins that other instances have changed. Only this goroutine uses its
// fields.
type keeper struct {
	*Resolver
	every     time.Duration                  // between two heartbeats of the agent
	others    others                         // which nodes have restored their pins after the store's latest data loss
	due       time.Time                      // when the next heartbeat is due
	sent      time.Time                      // when the latest heartbeat was sent
	failing   time.Time                      // when the first of the failed heartbeats since the last answer was sent; zero: none failed
	away      bool                           // the history says that the store is away
	standIn   time.Time                      // when to sweep the partitions in which this node is second
	sweepAll  time.Time                      // when to sweep all owned partitions again
	search    time.Time                      // until when known rooms of dead nodes are searched for
	searched  time.Time                      // when they were last searched for
	reported  int64                          // load
	own       ownLoad                        // this node's load, as last measured
	load      int64                          // the same, without the rooms that have moved away since
	mover     rebalance.Mover                // decides whether rooms have to move away
	relieving relieving                      // what the log says about that
	ahead     ahead                          // the reservations
	doubt     map[lease.Incarnation][]string // rooms hosted here whose pins name an incarnation that may be alive
	void      []voidPin                      // pins of rooms hosted here that are to be replaced
	noVerdict error                          // error of the latest failed verdict; skips further verdicts during a confirm
	apart     bool                           // the log says that nodes are cut off
	listened  time.Time                      // when the keeper last asked the store which members send heartbeats
	silent    []lease.NodeID                 // silent members, as last logged
	warn      time.Time                      // when to warn of a capacity without a load; zero: never or already done
}

func (r *Resolver) keep(ctx context.Context, node *cluster.Agent) {
	k := &keeper{
		Resolver: r, every: node.Config().HeartbeatInterval,
		reported: -1, sweepAll: time.Now().Add(jittered(r.cfg.PinTTL / 3)),
		mover: rebalance.Mover{High: r.cfg.Rebalance, Low: r.cfg.SoftCeiling, Settle: departs * r.cfg.Settle},
		warn:  time.Now().Add(r.cfg.Settle + r.liveness.TTL), // gives the application time to report its load
	}
	batches := node.Subscribe(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case b, ok := <-batches:
			if !ok {
				batches = nil
				if ctx.Err() == nil { // the agent has stopped before the Resolver
					r.logFenced(r.hosts.close(ErrFenced))
				}
				continue
			}
			k.follow(b)
		case <-r.work.rooms.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		k.checkFence()
		k.takeUp(ctx)
		if now := time.Now(); !now.Before(k.due) {
			next, answered := k.heartbeat(ctx)
			k.due = now.Add(next)
			k.tend(ctx, answered)
		}
		timer.Reset(time.Until(k.due))
	}
}

// follow handles a batch of cluster changes.
func (k *keeper) follow(b events.Batch) {
	acquired := make([]placement.Partition, len(b.Acquired))
	for i, o := range b.Acquired {
		acquired[i] = o.Partition
	}
	k.work.partitions.add(acquired...)
	k.met.note(k.agent.Snapshot(), time.Now(), k.cfg.PinTTL)
	if len(b.Left) > 0 { // or restarted
		k.someDied()
		k.search = time.Now().Add(searchTime)
	}
	if hosted := k.hosts.count(); len(b.Joined) > 0 && hosted > 0 && b.Version > 1 { // the agent logs other changes
		k.cfg.Log.Info("nodes added; pinned rooms stay", "joined", len(b.Joined), "hosted_here", hosted)
	}
}

// someDied schedules a sweep of the partitions that this node owns, and after 3 to 6 s a sweep of the
// partitions in which this node ranks second. The second sweep is for owners that are live but do not reach
// the store.
func (k *keeper) someDied() {
	k.work.partitions.add(k.owned()...)
	k.standIn = time.Now().Add(3*time.Second + rand.N(3*time.Second))
}

// owned returns the partitions that this node owns.
func (k *keeper) owned() []placement.Partition {
	s := k.agent.Snapshot()
	if !k.agent.Live() || s.State == nil {
		return nil
	}
	return s.State.Owned()
}

// sweepSecond schedules a sweep of the partitions in which this node ranks second. sweepSecond does nothing
// while the node has no current table.
func (k *keeper) sweepSecond(s *cluster.Snapshot) {
	if s.Table == nil || s.Fenced {
		return
	}
	k.standIn = time.Time{}
	var second []placement.Partition
	for p := range placement.Partition(s.Table.Partitions()) {
		if best := s.Table.Rank(p, 2); len(best) == 2 && best[1] == s.Self.ID {
			second = append(second, p)
		}
	}
	k.work.partitions.add(second...)
}

// heartbeat sends this node's heartbeat to the store, and asks the store about nodes that gossip does not
// reach. heartbeat returns the time until the next heartbeat, and whether the store answered.
func (k *keeper) heartbeat(ctx context.Context) (next time.Duration, answered bool) {
	ask, died := k.liveness.Unknown(k.agent.Snapshot(), time.Now())
	alive, err := k.sendHeartbeat(ctx, ask)
	if err == nil {
		for i, at := range ask {
			died = k.liveness.Record(at, alive[i], time.Now()) == liveness.Dead || died
		}
	}
	if died {
		k.someDied()
	}
	if err != nil {
		return retryTime, false
	}
	refused := k.store.agreement.Refused() != nil
	k.store.agreement.Report(k.agree(k.living()))
	if refused && k.store.agreement.Refused() == nil {
		k.work.partitions.add(k.owned()...) // this node did not sweep its partitions while it was refused
	}
	k.sayCutOff(len(ask) == 0)
	k.decide()
	next = k.sayRestored(ctx)
	if next == retryTime || len(ask) > 0 {
		return retryTime, true // the network is still partitioned, or the store will soon report a dead node
	}
	// The next heartbeat is sent well before this one expires, and often enough for Detector.Record.
	return jittered(min(next, k.every, k.liveness.TTL/4)), true
}

// sayCutOff logs when gossip does not reach some nodes that send heartbeats to the store. sayCutOff logs
// again when each of these nodes is either live in gossip or dead.
func (k *keeper) sayCutOff(decided bool) {
	switch nodes := k.liveness.CutOff(); {
	case len(nodes) > 0 && !k.apart:
		const most = 5
		k.cfg.Log.Warn("nodes of this store not reached by gossip",
			"nodes", len(nodes), "first", nodes[:min(most, len(nodes))],
			"do", "join them to this cluster, or check the network between them")
		k.apart = true
	case decided && k.apart:
		k.cfg.Log.Info("all nodes of this store reached again")
		k.apart = false
	}
}

// listen asks the store twice per TTL which members send it heartbeats. listen skips members that take no
// rooms.
func (k *keeper) listen(ctx context.Context, s *cluster.Snapshot, answers bool) {
	if !answers || time.Since(k.listened) < k.liveness.TTL/2 || !k.agent.Live() {
		return
	}
	members := slices.DeleteFunc(slices.Clone(s.Members), func(m *cluster.Member) bool {
		return m.ID == s.Self.ID || !capacity.TakesRooms(m)
	})
	ask, hears := k.silence.Ask(members), []bool(nil)
	if len(ask) > 0 {
		bounded, cancel := k.store.Bounded(ctx)
		defer cancel()
		var err error
		if hears, err = k.store.Store.Heartbeat(bounded, lease.Incarnation{}, 0, ask); err != nil {
			return
		}
	}
	k.listened = time.Now()
	k.silence.Learn(members, ask, hears, k.listened)
	k.saySilent()
}

// saySilent logs when some members send no heartbeats to the store, and when all of them do again.
func (k *keeper) saySilent() {
	nodes := k.silence.Named()
	isNew := slices.ContainsFunc(nodes, func(id lease.NodeID) bool { return !slices.Contains(k.silent, id) })
	switch {
	case isNew:
		const most = 5
		k.cfg.Log.Warn("live nodes send no heartbeats to this store", "nodes", len(nodes), "first", nodes[:min(most, len(nodes))])
	case len(nodes) == 0 && len(k.silent) > 0:
		k.cfg.Log.Info("all live nodes use this store again")
	}
	k.silent = nodes
}

func (k *keeper) sendHeartbeat(ctx context.Context, ask []lease.Incarnation) (alive []bool, err error) {
	k.sent = time.Now()
	alive, back, err := k.store.Heartbeat(ctx, k.living(), k.liveness.TTL, ask)
	if err != nil {
		k.noteAway()
		return nil, err
	}
	if back {
		k.history.add(cluster.Event{Kind: EventStoreBack, Lasted: time.Since(k.failing)})
	}
	k.failing, k.away = time.Time{}, false
	if back {
		k.storeAway(false) // if it may have lost data, the store calls changed
	}
	k.liveness.HeartbeatArrived(time.Now())
	return alive, nil
}

// noteAway adds an event once an outage of the store is certain.
func (k *keeper) noteAway() {
	if k.failing.IsZero() {
		k.failing = k.sent
	}
	if !k.away && k.store.Away() {
		k.away = true
		k.history.add(cluster.Event{Kind: EventStoreAway, Why: k.store.Stats().Problem})
	}
}

// pulse sends a heartbeat between two calls for pins if the latest heartbeat is old. A call for pins can take
// seconds while a shard of the store hangs. After a gap in its heartbeats, this node could not tell which
// nodes are dead.
func (k *keeper) pulse(ctx context.Context) {
	if time.Since(k.sent) >= k.every && ctx.Err() == nil {
		_, _ = k.sendHeartbeat(ctx, nil)
	}
}

// probe reads the pin of h, which may be nil, to find out whether its shard answers again.
func (k *keeper) probe(ctx context.Context, h *Hosting) {
	if h == nil {
		return
	}
	ctx, cancel := k.store.Bounded(ctx)
	defer cancel()
	k.confirm(ctx, []*Hosting{h}, false)
}

// tend does the periodic work after each heartbeat. If the store did not answer, tend skips the work that
// needs the store.
func (k *keeper) tend(ctx context.Context, answered bool) {
	s := k.agent.Snapshot()
	k.met.note(s, time.Now(), k.cfg.PinTTL)
	for id, units := range k.reserved.Expire(s, time.Now()) {
		k.cfg.Log.Warn("reservations expired: node reports no load", "peer", id, "units", units)
	}
	k.tendReservations(ctx, s, answered)
	k.measure(s)
	k.listen(ctx, s, answered)
	for {
		write, read, probe := k.hosts.due(time.Now(), k.cfg.PinTTL/3, maxAtOnce, k.cache.Generation())
		if !answered {
			return
		}
		k.probe(ctx, probe)
		k.confirm(ctx, write, true)
		k.confirm(ctx, read, false)
		if len(write)+len(read) < maxAtOnce || time.Now().After(k.due) {
			break
		}
	}
	k.relieve(ctx, s)
	now := time.Now()
	if !k.standIn.IsZero() && !now.Before(k.standIn) {
		k.sweepSecond(s)
	}
	if !now.Before(k.sweepAll) {
		k.sweepAll = now.Add(jittered(k.cfg.PinTTL / 3))
		k.work.partitions.add(k.owned()...)
	}
	if now.Before(k.search) && now.Sub(k.searched) >= k.every {
		k.searched = now
		// Find and publish the new nodes of these rooms even if the store sends no notifications. Skip nodes
		// that are only unreachable by gossip, because they may still host their rooms.
		if rooms := k.cache.On(func(at lease.Incarnation) bool { return k.liveness.Gone(s, at) }); len(rooms) > 0 {
			k.work.rooms.add(rooms...)
		}
	}
}
