package affinity

import (
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// reclaimTime is how long the hosts have to restore their pins after the store was
// away, before other nodes place rooms again.
const reclaimTime = time.Second

// verdict says whether rooms can live on an incarnation.
type verdict int

const (
	dead   verdict = iota // by gossip and by the store, or by proof
	alive                 // by gossip
	cutOff                // not by gossip, but by the store, or the store cannot say yet
)

func (v verdict) reason() string {
	if v == cutOff {
		return "already pinned; gossip has lost its node, the store has not"
	}
	return "already pinned"
}

// liveness decides which incarnations are dead. A node dies twice: its lease expires
// by gossip, and its heartbeat expires in the store. Gossip alone is not enough: on
// the wrong side of a split all other nodes look dead, and keep their rooms for as
// long as they reach the store. liveness is fed by snapshots and by the store's
// answers.
type liveness struct {
	ttl time.Duration // of leases, and of heartbeats in the store

	mu     sync.Mutex
	cutOff map[lease.Incarnation]struct{}  // expired by gossip, alive by the store
	dead   map[lease.Incarnation]time.Time // expired by both, as of then

	since    time.Time // since when this node's heartbeats have reached the store without a gap
	last     time.Time // the latest heartbeat that reached the store
	wasAway  bool      // the store has been away since the start
	stillOut bool      // and has not answered since
}

func newLiveness(ttl time.Duration) *liveness {
	return &liveness{
		ttl: ttl, cutOff: make(map[lease.Incarnation]struct{}), dead: make(map[lease.Incarnation]time.Time),
	}
}

// judge returns the verdict on an incarnation, if it is known without the store.
func (l *liveness) judge(s *cluster.Snapshot, at lease.Incarnation, now time.Time) (v verdict, known bool) {
	switch {
	case at.Number == 0: // no pin, or a released one
		return dead, true
	case findLive(s, at) != nil:
		return alive, true
	case find(s, at.Node) != nil:
		return dead, true // a later incarnation has replaced it
	case slices.Contains(s.Crashed, at):
		return dead, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.cutOff[at]; ok {
		return cutOff, true
	}
	since, ok := l.dead[at]
	return dead, ok && now.Sub(since) < l.ttl
}

// record takes the store's answer about an incarnation that is dead by gossip. A
// missing heartbeat proves nothing unless this node's own heartbeats have arrived for
// a whole TTL: the store may have been away for all nodes.
func (l *liveness) record(at lease.Incarnation, heartbeat bool, now time.Time) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	proven := now.Sub(l.since) >= l.ttl && now.Sub(l.last) <= l.ttl/2
	if heartbeat || !proven {
		l.cutOff[at] = struct{}{}
		delete(l.dead, at)
		return cutOff
	}
	delete(l.cutOff, at)
	l.dead[at] = now
	return dead
}

// undecided returns the incarnations that are cut off, to be queried again. died
// reports that one of them is dead for certain: a later incarnation of its node is
// live, or its process has ended.
func (l *liveness) undecided(s *cluster.Snapshot, now time.Time) (ask []lease.Incarnation, died bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := range l.cutOff {
		switch {
		case findLive(s, at) != nil:
			delete(l.cutOff, at)
		case find(s, at.Node) != nil, slices.Contains(s.Crashed, at):
			delete(l.cutOff, at)
			died = true
		default:
			ask = append(ask, at)
		}
	}
	for at, since := range l.dead {
		if now.Sub(since) > l.ttl {
			delete(l.dead, at)
		}
	}
	return ask, died
}

// gone reports whether an incarnation is not live by gossip, and not cut off.
func (l *liveness) gone(s *cluster.Snapshot, at lease.Incarnation) bool {
	switch {
	case findLive(s, at) != nil:
		return false
	case slices.Contains(s.Crashed, at):
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, split := l.cutOff[at]
	return !split
}

// heartbeatArrived records that a heartbeat of this node has reached the store.
func (l *liveness) heartbeatArrived(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stillOut || now.Sub(l.last) > l.ttl/2 {
		l.since = now
	}
	l.last, l.stillOut = now, false
}

// storeAway records that the store was away, and may have lost its data.
func (l *liveness) storeAway(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since, l.last, l.wasAway, l.stillOut = now, time.Time{}, true, true
}

// reclaiming reports whether the store has come back so recently that hosts may
// still have to restore their pins. The first call that reaches the store again
// must not place a room, either.
func (l *liveness) reclaiming(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wasAway && (l.stillOut || now.Sub(l.since) < reclaimTime)
}
