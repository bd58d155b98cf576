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
func (d *Detector) Verdict(s *cluster.Snapshot, at lease.Incarnation, now time.Time) (v Verdict, known bool) {
	switch {
	case at.Number == 0: // no pin, or a released one
		return Dead, true
	case Live(s, at) != nil:
		return Alive, true
	case replaced(s, at), proven(s, at):
		return Dead, true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, ok := d.cutOff[at]; ok {
		return s.verdict, true
	}
	since, ok := d.dead[at]
	return Dead, ok && now.Sub(since) < d.TTL
}

// Record takes the store's answer about an incarnation that is dead by gossip. A
// missing heartbeat proves nothing unless this node's own heartbeats have arrived for
// a whole TTL: the store may have been away for all nodes. After the store was away, a
// host that finds a dead incarnation in the pin of its room replaces the pin before
// others give the room a new home.
func (d *Detector) Record(at lease.Incarnation, heartbeat bool, now time.Time) Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := Dead
	switch since := now.Sub(d.since); {
	case heartbeat:
		v = CutOff
	case since < d.TTL || now.Sub(d.last) > d.TTL/2:
		v = Unconfirmed
	case d.wasAway && since < d.TTL+reclaimTime:
		v = Silent
	}
	if v != Dead {
		first := d.cutOff[at].first
		switch {
		case v != CutOff:
			d.cutOff[at] = split{verdict: v}
		case first.IsZero():
			d.cutOff[at] = split{v, now, now}
		default:
			d.cutOff[at] = split{v, first, now}
		}
		delete(d.dead, at)
		return v
	}
	delete(d.cutOff, at)
	d.dead[at] = now
	return v
}

// Unknown returns the incarnations that are cut off, to be queried again. died
// reports that one of them is dead for certain: a later incarnation of its node is
// live, its process has ended, or it has left.
func (d *Detector) Unknown(s *cluster.Snapshot, now time.Time) (ask []lease.Incarnation, died bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for at := range d.cutOff {
		switch {
		case Live(s, at) != nil:
			delete(d.cutOff, at)
		case replaced(s, at), proven(s, at):
			delete(d.cutOff, at)
			died = true
		default:
			ask = append(ask, at)
		}
	}
	for at, since := range d.dead {
		if now.Sub(since) > d.TTL {
			delete(d.dead, at)
		}
	}
	return ask, died
}

// Gone reports whether an incarnation is not live by gossip, and not cut off.
func (d *Detector) Gone(s *cluster.Snapshot, at lease.Incarnation) bool {
	switch {
	case Live(s, at) != nil:
		return false
	case proven(s, at):
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, unknown := d.cutOff[at]
	return !unknown
}

// CutOff returns the nodes, by id, whose heartbeats the store has had for longer than a TTL while gossip did
// not reach them: a heartbeat outlives its node by as much.
func (d *Detector) CutOff() []lease.NodeID {
	d.mu.Lock()
	defer d.mu.Unlock()
	var nodes []lease.NodeID
	for at, s := range d.cutOff {
		if s.last.Sub(s.first) > d.TTL {
			nodes = append(nodes, at.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// HeartbeatArrived records that a heartbeat of this node has reached the store.
func (d *Detector) HeartbeatArrived(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stillOut || now.Sub(d.last) > d.TTL/2 {
		d.lost = d.awaits(now)
		d.since = now
	}
	d.last, d.stillOut = now, false
}

// StoreAway records that the store was away, and whether it may have lost data. Nodes that it has only kept
// waiting have nothing to restore but what they host since: others that have noticed nothing hold up nobody.
func (d *Detector) StoreAway(lost bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = lost || d.awaits(now)
	d.since, d.last, d.wasAway, d.stillOut = now, time.Time{}, true, true
}

// awaits reports whether a loss of data is so recent that a live node may not have noticed it.
func (d *Detector) awaits(now time.Time) bool {
	return d.lost && (d.stillOut || now.Sub(d.since) < d.TTL)
}

// Reclaiming reports whether the store has come back so recently that hosts may
// still have to restore their pins. The first call that reaches the store again
// must not place a room, either.
func (d *Detector) Reclaiming(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wasAway && (d.stillOut || now.Sub(d.since) < reclaimTime || d.restores)
}

// Back reports whether the store was away a short while ago, so that nodes may restore
// their pins. self is whether this node may: until it has restored none for a while, because
// a node that the store refuses must not hold up the others.
func (d *Detector) Back(now time.Time) (self, anyNode bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	recent := func(at time.Time) bool { return d.wasAway && !d.stillOut && now.Sub(at) < restoreTime }
	self = recent(d.since) || recent(d.restored)
	anyNode = self || recent(d.heard)
	d.restores = d.restores && anyNode
	return self, anyNode
}

// Restored records that this node has restored pins.
func (d *Detector) Restored(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restored = now
}

// OthersRestore records whether another node restores pins, and whether one says neither that
// it does nor that it has.
func (d *Detector) OthersRestore(restores, silent bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restores = restores || silent && d.awaits(now)
	if d.restores {
		d.heard = now
	}
}

// Sketch returns what the detector knows, with times as ages, up to an age from which on they make no
// difference: two detectors with the same sketch decide alike from now on. It is for the model of rooms.
func (d *Detector) Sketch(now time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	age := func(at time.Time, most time.Duration) time.Duration { return min(now.Sub(at), most) }
	since := age(d.since, max(d.TTL+reclaimTime, restoreTime))
	if d.stillOut || !d.wasAway { // begins again before it matters for longer
		since = min(since, d.TTL)
	}
	verdicts := make(map[lease.Incarnation]Verdict, len(d.cutOff))
	for at, s := range d.cutOff {
		verdicts[at] = s.verdict
	}
	dead := make(map[lease.Incarnation]time.Duration, len(d.dead))
	for at, when := range d.dead {
		dead[at] = age(when, d.TTL)
	}
	return fmt.Sprint(since, age(d.last, d.TTL/2+1), d.wasAway, d.stillOut, d.awaits(now), d.restores,
		age(d.heard, restoreTime), age(d.restored, restoreTime), verdicts, dead)
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
