package affinity

import (
	"context"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	farewellTime = 500 * time.Millisecond
	retryTime    = 200 * time.Millisecond // while the store does not answer, or a split lasts
	searchTime   = 30 * time.Second       // how long rooms of the dead are looked for
	awayAfter    = 3                      // signings in a row that fail
	heaviest     = 10                     // rooms that a Pressure names
	maxAtOnce    = 512                    // rooms that are looked at between two signings
)

// keeper is the goroutine that keeps what is hosted here: it signs, refreshes
// pins, and finds out about those that others changed. Its state is its own.
type keeper struct {
	*Resolver
	backup  time.Time // when to look after the partitions of whom this node stands in for
	audit   time.Time // when to look at all partitions again
	search  time.Time // until when known rooms of the dead are looked for
	signing time.Time // when to sign next
	failed  int       // signings in a row
	sought  time.Time // when rooms of the dead were looked for last
	loaded  int64     // what was reported last
}

func (r *Resolver) keep(ctx context.Context) {
	k := &keeper{Resolver: r, loaded: -1, audit: time.Now().Add(jittered(r.cfg.PinTTL / 3))}
	batches := r.agent.Subscribe(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case b, ok := <-batches:
			if !ok { // the agent has ended
				r.loseAll(ErrFenced)
				batches = nil
				continue
			}
			k.follow(b)
		case <-r.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		k.checkFence()
		k.look(ctx)
		if now := time.Now(); !now.Before(k.signing) {
			next, heard := k.signOn(ctx)
			k.signing = now.Add(next)
			k.tend(ctx, heard)
		}
		timer.Reset(time.Until(k.signing))
	}
}

// changed is called by the store: somebody else has changed a room's pin, or,
// with "", anybody may have changed any.
func (r *Resolver) changed(room string) {
	known := room == "" || r.known.doubt(room)
	r.mu.Lock()
	defer r.mu.Unlock()
	if room == "" {
		r.known.doubtAll()
		r.trust.lose(time.Now())
	}
	if known || r.hosted[room] != nil {
		r.dirty[room] = struct{}{}
		r.signal(r.wake)
	}
}

func (r *Resolver) signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default: // a signal lies there already
	}
}

// checkFence ends all that is hosted here if this node's lease ran out meanwhile:
// others took it for dead and gave its rooms away.
func (r *Resolver) checkFence() {
	fences := r.agent.Snapshot().Stats.Fences
	r.mu.Lock()
	defer r.mu.Unlock()
	if fences != r.fences {
		r.fences = fences
		r.endAll(ErrFenced)
	}
}

// follow takes up a change of the cluster.
func (k *keeper) follow(b events.Batch) {
	k.mu.Lock()
	for _, o := range b.Acquired {
		k.audits[o.Partition] = struct{}{}
	}
	hosted := len(k.hosted)
	k.mu.Unlock()
	s := k.agent.Snapshot()
	partitions := max(1, s.Table.Partitions())
	for _, id := range b.Left {
		k.log.Info("node is down or has left", "peer", id, "hosted_here", hosted)
	}
	if len(b.Left) > 0 { // or was restarted
		k.auditOwned()
		k.backup = time.Now().Add(3*time.Second + rand.N(3*time.Second))
		k.search = time.Now().Add(searchTime)
	}
	for _, id := range b.Joined {
		if b.Version > 1 {
			k.log.Info("node added; pinned rooms stay", "peer", id, "hosted_here", hosted,
				"remapped_partitions", len(b.Moved), "share", float64(len(b.Moved))/float64(partitions))
		}
	}
	if len(b.Moved) > 0 {
		balance := s.Table.Balance()
		k.log.Info("distribution of partitions", "nodes", len(s.Table.Nodes()), "mean", balance.Mean,
			"max_mean", balance.MaxMean, "cv", balance.CV)
	}
	k.signal(k.Resolver.audit)
}

func (k *keeper) auditOwned() {
	owned := k.agent.Owned()
	k.mu.Lock()
	for _, p := range owned {
		k.audits[p] = struct{}{}
	}
	k.mu.Unlock()
	k.signal(k.Resolver.audit)
}

// auditNext has this node look after the partitions in which it is second, in
// case that their owner is alive but does not reach the store.
func (k *keeper) auditNext(s *cluster.Snapshot) {
	var next []placement.Partition
	for p := range placement.Partition(s.Table.Partitions()) {
		if best := s.Table.Rank(p, 2); len(best) == 2 && best[1] == k.self {
			next = append(next, p)
		}
	}
	k.mu.Lock()
	for _, p := range next {
		k.audits[p] = struct{}{}
	}
	k.mu.Unlock()
	k.signal(k.Resolver.audit)
}

// signOn tells the store that this node is alive, learns whether those that are
// cut off still are, and returns when to do so again, and whether the store
// answered. It finds out when the store is back, too.
func (k *keeper) signOn(ctx context.Context) (next time.Duration, heard bool) {
	ttl := k.agent.Config().LeaseTTL
	ask, died := k.cutOff(ttl)
	ctx, cancel := context.WithTimeout(ctx, k.cfg.Budget)
	defer cancel()
	signed, err := k.sign(ctx, ask...)
	if err != nil {
		if k.failed++; k.failed == awayAfter {
			k.away.Store(true)
			k.log.Warn("the store does not answer: rooms are resolved by what is known here, else by the hash", "err", err)
		}
		return retryTime, false
	}
	if k.failed = 0; k.away.Swap(false) {
		k.log.Info("the store answers again")
		k.changed("")
	}
	k.mu.Lock()
	k.trust.heard(time.Now(), ttl)
	k.mu.Unlock()
	for i, life := range ask {
		died = k.record(life, signed[i]) == dead || died
	}
	if died {
		k.auditOwned()
		k.backup = time.Now().Add(3*time.Second + rand.N(3*time.Second))
	}
	if len(ask) > 0 {
		return retryTime, true // a split that lasts, or a death that is about to show
	}
	// Well before the signature runs out, and often enough for trust.
	return jittered(min(k.agent.Config().HeartbeatInterval, ttl/4)), true
}

// cutOff returns the lives that are dead by gossip alone, and whether one has died
// for certain, since its node lives on in another.
func (k *keeper) cutOff(ttl time.Duration) (ask []lease.Incarnation, died bool) {
	s := k.agent.Snapshot()
	k.mu.Lock()
	defer k.mu.Unlock()
	for life := range k.cut {
		switch {
		case findLife(s, life) != nil:
			delete(k.cut, life)
		case find(s, life.Node) != nil:
			delete(k.cut, life)
			died = true
		default:
			ask = append(ask, life)
		}
	}
	for life, at := range k.gone {
		if time.Since(at) > ttl {
			delete(k.gone, life)
		}
	}
	return ask, died
}

// tend does what is due with every signing, as far as the store was heard.
func (k *keeper) tend(ctx context.Context, heard bool) {
	s := k.agent.Snapshot()
	k.measure(s)
	for {
		refresh, verify := k.due(s, time.Now())
		if !heard {
			return
		}
		k.confirm(ctx, refresh, true)
		k.confirm(ctx, verify, false)
		if len(refresh)+len(verify) < maxAtOnce || time.Now().After(k.signing) {
			break
		}
	}
	now := time.Now()
	if !k.backup.IsZero() && !now.Before(k.backup) {
		k.backup = time.Time{}
		k.auditNext(s)
	}
	if !now.Before(k.audit) {
		k.audit = now.Add(jittered(k.cfg.PinTTL / 3))
		k.auditOwned()
	}
	if now.Before(k.search) && now.Sub(k.sought) >= k.agent.Config().HeartbeatInterval {
		k.sought = now
		k.searchFor(s)
	}
}

// due returns the hostings whose pins are to be written, and those whose are to be
// read, and ends those that lapsed.
func (k *keeper) due(s *cluster.Snapshot, now time.Time) (refresh, verify []*Hosting) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reserved.expire(s, now)
	for _, h := range k.hosted {
		switch {
		case h.lapse > 0 && now.Sub(h.touched) > h.lapse:
			h.end(ErrLapsed)
		case len(refresh)+len(verify) == maxAtOnce: // the rest has time until the next signing
		case h.pin.Epoch == 0 || now.Sub(h.refreshed) > k.cfg.PinTTL/3 || h.size > 2*h.pin.Size+1:
			refresh = append(refresh, h)
		case !h.verify.IsZero() && now.After(h.verify):
			verify = append(verify, h)
		}
	}
	return refresh, verify
}

// searchFor marks the rooms that are thought to live on nodes that are not there
// any more, so that their new homes are found and told, whether or not the store
// notifies.
func (k *keeper) searchFor(s *cluster.Snapshot) {
	k.mu.Lock()
	cut := maps.Clone(k.cut) // they may be on the other side of a split, with their rooms
	k.mu.Unlock()
	rooms := k.known.of(func(l lease.Incarnation) bool {
		_, alive := cut[l]
		return !alive && findLife(s, l) == nil
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, room := range rooms {
		k.dirty[room] = struct{}{}
	}
	if len(rooms) > 0 {
		k.signal(k.wake)
	}
}

// measure reports this node's load, if it is asked to, and its pressure.
func (k *keeper) measure(s *cluster.Snapshot) {
	units := k.hostedUnits()
	if k.cfg.ReportLoad && units != k.loaded {
		k.loaded = units
		k.agent.SetLoad(units)
	}
	load := max(0, s.Self.Load)
	if k.cfg.ReportLoad {
		load = units
	}
	p := Pressure{Node: k.self, Load: load, Ceiling: k.limits.softOf(&s.Self), Capacity: s.Self.Capacity}
	if p.Over = p.Capacity > 0 && load > p.Ceiling; p.Over {
		rooms, _ := k.Hosted()
		p.Heaviest = rooms[:min(heaviest, len(rooms))]
	} else {
		p.Load = 0 // below the ceiling it is of no interest, and would be news all the time
	}
	k.strain.Set(&p)
}
