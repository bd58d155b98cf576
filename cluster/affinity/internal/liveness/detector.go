// Package liveness decides which incarnations are dead, for the rooms that are pinned to them.
//
// A node counts as dead when both its lease in gossip and its heartbeat in the store have expired. An expired
// lease alone is not enough, because on one side of a split all nodes of the other side look dead, although
// they keep their rooms as long as they reach the store. A confirmed failure or a leave message is enough.
package liveness

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// After the store was away, hosts have reclaimTime to restore their pins before other nodes place rooms
// again. If the store may have lost data, they have up to a TTL while a live host says nothing in the store.
// While a host says in the store that it still restores pins, they have until restoreTime after the latest
// one.
const (
	reclaimTime = time.Second
	restoreTime = time.Minute
)

// Verdict says whether rooms can live on an incarnation.
type Verdict int

// The verdicts.
const (
	Dead        Verdict = iota // in gossip and in the store, or confirmed
	Alive                      // live in gossip
	CutOff                     // not live in gossip, but alive in the store
	Unconfirmed                // not live in gossip, and the store cannot tell yet
	Silent                     // dead for the host of a room, but not proven for others: see Record
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

// Detector decides for one node which incarnations are dead, from snapshots and the store's answers. All
// methods are safe for concurrent use.
type Detector struct {
	TTL time.Duration // of leases, and of heartbeats in the store

	mu     sync.Mutex
	cutOff map[lease.Incarnation]split     // expired in gossip, but not dead
	dead   map[lease.Incarnation]time.Time // expired in both, and since when

	since    time.Time // when this node's heartbeats began to reach the store without a gap
	last     time.Time // the latest heartbeat that reached the store
	wasAway  bool      // the store has been away since the start
	stillOut bool      // the store has not answered since it was away
	lost     bool      // the store may have lost data: see awaits
	restores bool      // another node restores pins, or may not know yet that it has to
	heard    time.Time // when restores was last reported
	restored time.Time // when this node last restored a pin
}

// split is what the store says about an incarnation that is expired in gossip but not dead.
type split struct {
	verdict     Verdict
	first, last time.Time // first and latest of successive looks that found a heartbeat; zero: the latest look found none
}

// New returns a Detector for leases of that TTL.
func New(ttl time.Duration) *Detector {
	return &Detector{
		TTL: ttl, cutOff: make(map[lease.Incarnation]split), dead: make(map[lease.Incarnation]time.Time),
	}
}

// Verdict returns the verdict about an incarnation, if it is known without the store.
func (d *Detector) Verdict(s *cluster.Snapshot, at lease.Incarnation, now time.Time) (v Verdict, known bool) {
	switch {
	case at.Number == 0: // there is no pin, or the room was released
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

// Record takes the store's answer about an incarnation that is dead in gossip. A missing heartbeat proves
// nothing unless this node's own heartbeats have arrived for a whole TTL, because the store may have been
// away for all nodes. After the store was away, a host that finds a dead incarnation in the pin of its room
// replaces the pin before others give the room a new home.
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

// Unknown returns the incarnations that are cut off, which have to be queried again. died reports that one of
// them is certainly dead, because a later incarnation of its node is live, its process has ended, or it has
// left.
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

// Gone reports whether an incarnation is neither live in gossip nor cut off.
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

// CutOff returns the nodes, sorted by id, that have had heartbeats in the store for longer than a TTL while
// gossip did not reach them. Less than a TTL means nothing, because a heartbeat outlives its node by that
// time.
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

// StoreAway records that the store was away, and whether it may have lost data. If the store only kept nodes
// waiting, they have nothing to restore except what they host since then, so nobody waits for nodes that have
// noticed nothing.
func (d *Detector) StoreAway(lost bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = lost || d.awaits(now)
	d.since, d.last, d.wasAway, d.stillOut = now, time.Time{}, true, true
}

// awaits reports whether a loss of data is so recent that a live node may not have noticed it yet.
func (d *Detector) awaits(now time.Time) bool {
	return d.lost && (d.stillOut || now.Sub(d.since) < d.TTL)
}

// Reclaiming reports whether the store has come back so recently that hosts may still have to restore their
// pins. It includes the first call that reaches the store again.
func (d *Detector) Reclaiming(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wasAway && (d.stillOut || now.Sub(d.since) < reclaimTime || d.restores)
}

// Back reports whether the store was away a short while ago, so that nodes may still restore their pins. self
// is whether this node may do so. It becomes false after the node has restored no pins for a while, because a
// node that the store refuses must not delay the others.
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

// OthersRestore records whether another node restores pins, and whether a node says neither that it restores
// pins nor that it is done.
func (d *Detector) OthersRestore(restores, silent bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restores = restores || silent && d.awaits(now)
	if d.restores {
		d.heard = now
	}
}

// Sketch returns what the detector knows. Times are ages, limited to the age at which they stop making a
// difference. Two detectors with the same sketch decide the same from now on. It is for the model of rooms.
func (d *Detector) Sketch(now time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	age := func(at time.Time, most time.Duration) time.Duration { return min(now.Sub(at), most) }
	since := age(d.since, max(d.TTL+reclaimTime, restoreTime))
	if d.stillOut || !d.wasAway { // it begins again before it matters for longer
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

// Live returns the member with this incarnation, if it is live. An incarnation later than the one known here
// has reached another node first, and counts as live, too. But this is not so for later incarnations of this
// node itself, because after a clock went back, the present incarnation is earlier than dead ones.
func Live(s *cluster.Snapshot, at lease.Incarnation) *cluster.Member {
	m, _ := s.Member(at.Node)
	if m == nil || at.Number < m.Incarnation || (at.Number > m.Incarnation && s.Self != nil && at.Node == s.Self.ID) {
		return nil
	}
	return m
}

// proven reports whether the end of an incarnation is certain, because others have confirmed that its process
// has ended or because it has left.
func proven(s *cluster.Snapshot, at lease.Incarnation) bool {
	return slices.Contains(s.Crashed, at) || slices.Contains(s.Left, at)
}

// replaced reports whether a later incarnation is known to have replaced at.
func replaced(s *cluster.Snapshot, at lease.Incarnation) bool {
	m, _ := s.Member(at.Node)
	return m != nil && at.Number < m.Incarnation
}
