// Package liveness decides which incarnations are dead, for the rooms that are pinned to them.
//
// A node dies twice: its lease expires by gossip, and its heartbeat expires in the store.
// A lease that expires is not enough: on the wrong side of a split all other nodes look dead, and
// keep their rooms for as long as they reach the store. But a confirmed failure does, and so does a leave message.
package liveness

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// The hosts have reclaimTime to restore their pins after the store was away, before other nodes place rooms
// again; up to a TTL after it may have lost data, while a live one says nothing in the store; and longer
// while one of them says in the store that it still restores some, up to restoreTime after the latest one.
const (
	reclaimTime = time.Second
	restoreTime = time.Minute
)

// Verdict says whether rooms can live on an incarnation.
type Verdict int

// The verdicts.
const (
	Dead        Verdict = iota // by gossip and by the store, or by confirmation
	Alive                      // by gossip
	CutOff                     // not by gossip, but by the store
	Unconfirmed                // not by gossip, and the store cannot say yet
	Silent                     // dead for the host of a room, unproven for others: see Record
)

// Reason returns why a room that is pinned to such an incarnation stays.
func (v Verdict) Reason() string {
	if v == CutOff {
		return "already pinned; gossip has lost its node, the store has not"
	}
	if v == Unconfirmed || v == Silent {
		return "already pinned; gossip has lost its node, and the store cannot say yet whether it has ended"
	}
	return "already pinned"
}

// Detector has the verdicts of one node. It is fed by snapshots and by the store's answers. All
// methods may be called from any goroutine.
type Detector struct {
	TTL time.Duration // of leases, and of heartbeats in the store

	mu     sync.Mutex
	cutOff map[lease.Incarnation]split     // expired by gossip, and not dead
	dead   map[lease.Incarnation]time.Time // expired by both, as of then

	since    time.Time // since when this node's heartbeats have reached the store without a gap
	last     time.Time // the latest heartbeat that reached the store
	wasAway  bool      // the store has been away since the start
	stillOut bool      // and has not answered since
	lost     bool      // and may have lost data: see awaits
	restores bool      // another node restores pins, or does not know yet that it has to
	heard    time.Time // of that, last
	restored time.Time // the latest pin that this node has restored
}

// split is what the store says of an incarnation that is expired by gossip, and not dead.
type split struct {
	verdict     Verdict
	first, last time.Time // looks that found a heartbeat, as all between them; zero: the latest one found none
}

// New returns a Detector for leases of that TTL.
func New(ttl time.Duration) *Detector {
	return &Detector{
		TTL: ttl, cutOff: make(map[lease.Incarnation]split), dead: make(map[lease.Incarnation]time.Time),
	}
}

// Verdict returns the verdict on an incarnation, if it is known without the store.
func (j *Detector) Verdict(s *cluster.Snapshot, at lease.Incarnation, now time.Time) (v Verdict, known bool) {
	switch {
	case at.Number == 0: // no pin, or a released one
		return Dead, true
	case Live(s, at) != nil:
		return Alive, true
	case replaced(s, at), proven(s, at):
		return Dead, true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if s, ok := j.cutOff[at]; ok {
		return s.verdict, true
	}
	since, ok := j.dead[at]
	return Dead, ok && now.Sub(since) < j.TTL
}

// Record takes the store's answer about an incarnation that is dead by gossip. A
// missing heartbeat proves nothing unless this node's own heartbeats have arrived for
// a whole TTL: the store may have been away for all nodes. After the store was away, a
// host that finds a dead incarnation in the pin of its room replaces the pin before
// others give the room a new home.
func (j *Detector) Record(at lease.Incarnation, heartbeat bool, now time.Time) Verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := Dead
	switch since := now.Sub(j.since); {
	case heartbeat:
		v = CutOff
	case since < j.TTL || now.Sub(j.last) > j.TTL/2:
		v = Unconfirmed
	case j.wasAway && since < j.TTL+reclaimTime:
		v = Silent
	}
	if v != Dead {
		first := j.cutOff[at].first
		switch {
		case v != CutOff:
			j.cutOff[at] = split{verdict: v}
		case first.IsZero():
			j.cutOff[at] = split{v, now, now}
		default:
			j.cutOff[at] = split{v, first, now}
		}
		delete(j.dead, at)
		return v
	}
	delete(j.cutOff, at)
	j.dead[at] = now
	return v
}

// Unknown returns the incarnations that are cut off, to be queried again. died
// reports that one of them is dead for certain: a later incarnation of its node is
// live, its process has ended, or it has left.
func (j *Detector) Unknown(s *cluster.Snapshot, now time.Time) (ask []lease.Incarnation, died bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for at := range j.cutOff {
		switch {
		case Live(s, at) != nil:
			delete(j.cutOff, at)
		case replaced(s, at), proven(s, at):
			delete(j.cutOff, at)
			died = true
		default:
			ask = append(ask, at)
		}
	}
	for at, since := range j.dead {
		if now.Sub(since) > j.TTL {
			delete(j.dead, at)
		}
	}
	return ask, died
}

// Gone reports whether an incarnation is not live by gossip, and not cut off.
func (j *Detector) Gone(s *cluster.Snapshot, at lease.Incarnation) bool {
	switch {
	case Live(s, at) != nil:
		return false
	case proven(s, at):
		return true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, unknown := j.cutOff[at]
	return !unknown
}

// CutOff returns the nodes, by id, whose heartbeats the store has had for longer than a TTL while gossip did
// not reach them: a heartbeat outlives its node by as much.
func (j *Detector) CutOff() []lease.NodeID {
	j.mu.Lock()
	defer j.mu.Unlock()
	var nodes []lease.NodeID
	for at, s := range j.cutOff {
		if s.last.Sub(s.first) > j.TTL {
			nodes = append(nodes, at.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// HeartbeatArrived records that a heartbeat of this node has reached the store.
func (j *Detector) HeartbeatArrived(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stillOut || now.Sub(j.last) > j.TTL/2 {
		j.lost = j.awaits(now)
		j.since = now
	}
	j.last, j.stillOut = now, false
}

// StoreAway records that the store was away, and whether it may have lost data. Nodes that it has only kept
// waiting have nothing to restore but what they host since: others that have noticed nothing hold up nobody.
func (j *Detector) StoreAway(lost bool, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lost = lost || j.awaits(now)
	j.since, j.last, j.wasAway, j.stillOut = now, time.Time{}, true, true
}

// awaits reports whether a loss of data is so recent that a live node may not have noticed it.
func (j *Detector) awaits(now time.Time) bool {
	return j.lost && (j.stillOut || now.Sub(j.since) < j.TTL)
}

// Reclaiming reports whether the store has come back so recently that hosts may
// still have to restore their pins. The first call that reaches the store again
// must not place a room, either.
func (j *Detector) Reclaiming(now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.wasAway && (j.stillOut || now.Sub(j.since) < reclaimTime || j.restores)
}

// Back reports whether the store was away a short while ago, so that nodes may restore
// their pins. self is whether this node may: until it has restored none for a while, because
// a node that the store refuses must not hold up the others.
func (j *Detector) Back(now time.Time) (self, anyNode bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	recent := func(at time.Time) bool { return j.wasAway && !j.stillOut && now.Sub(at) < restoreTime }
	self = recent(j.since) || recent(j.restored)
	anyNode = self || recent(j.heard)
	j.restores = j.restores && anyNode
	return self, anyNode
}

// Restored records that this node has restored pins.
func (j *Detector) Restored(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.restored = now
}

// OthersRestore records whether another node restores pins, and whether one says neither that
// it does nor that it has.
func (j *Detector) OthersRestore(restores, silent bool, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.restores = restores || silent && j.awaits(now)
	if j.restores {
		j.heard = now
	}
}

// Sketch returns what the detector knows, with times as ages, up to an age from which on they make no
// difference: two detectors with the same sketch decide alike from now on. It is for the model of rooms.
func (j *Detector) Sketch(now time.Time) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	age := func(at time.Time, most time.Duration) time.Duration { return min(now.Sub(at), most) }
	since := age(j.since, max(j.TTL+reclaimTime, restoreTime))
	if j.stillOut || !j.wasAway { // begins again before it matters for longer
		since = min(since, j.TTL)
	}
	verdicts := make(map[lease.Incarnation]Verdict, len(j.cutOff))
	for at, s := range j.cutOff {
		verdicts[at] = s.verdict
	}
	dead := make(map[lease.Incarnation]time.Duration, len(j.dead))
	for at, when := range j.dead {
		dead[at] = age(when, j.TTL)
	}
	return fmt.Sprint(since, age(j.last, j.TTL/2+1), j.wasAway, j.stillOut, j.awaits(now), j.restores,
		age(j.heard, restoreTime), age(j.restored, restoreTime), verdicts, dead)
}

// Live returns the member of that incarnation, if it is live. An incarnation later
// than the one known here has reached another node first, and is live, too. But of its own
// later incarnations a node knows nothing: a clock that went back makes the present one
// earlier than dead ones.
func Live(s *cluster.Snapshot, at lease.Incarnation) *cluster.Member {
	m, _ := s.Member(at.Node)
	if m == nil || at.Number < m.Incarnation || (at.Number > m.Incarnation && s.Self != nil && at.Node == s.Self.ID) {
		return nil
	}
	return m
}

// proven reports whether the end of an incarnation is certain: its process has ended by the word of others,
// or it has left by its own.
func proven(s *cluster.Snapshot, at lease.Incarnation) bool {
	return slices.Contains(s.Crashed, at) || slices.Contains(s.Left, at)
}

// replaced reports whether a later incarnation is known to have replaced at.
func replaced(s *cluster.Snapshot, at lease.Incarnation) bool {
	m, _ := s.Member(at.Node)
	return m != nil && at.Number < m.Incarnation
}
