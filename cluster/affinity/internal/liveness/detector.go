// Package liveness decides which incarnations are dead, so that the rooms pinned to them can move.
//
// A node is considered dead when both its lease in gossip and its heartbeat in the store have expired. An
// expired lease alone is not enough. During a network partition, all nodes of the other side look dead, but
// they keep their rooms as long as they reach the store. A confirmed failure or a leave message alone is
// enough.
package liveness

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// After the store was unreachable, hosts have at least reclaimTime to restore their pins before other nodes
// place rooms again. If the store may have lost data, they have up to a TTL until each live node has reported
// in the store. While a node reports that it is still restoring pins, they have until restoreTime after the
// latest restored pin.
const (
	reclaimTime = time.Second
	restoreTime = time.Minute
)

// Verdict is the result of deciding whether an incarnation is dead.
type Verdict int

// The verdicts.
const (
	Dead        Verdict = iota // in gossip and in the store, or confirmed
	Alive                      // live in gossip
	CutOff                     // not live in gossip, but alive in the store
	Unconfirmed                // not live in gossip, and the store cannot tell yet
	Silent                     // dead for the host of a room, but not yet for other nodes: see Record
)

// Reason returns why a room that is pinned to an incarnation with this verdict stays there.
func (v Verdict) Reason() string {
	if v == CutOff {
		return "already pinned; its node is lost to gossip, but still sends heartbeats to the store"
	}
	if v == Unconfirmed || v == Silent {
		return "already pinned; its node is lost to gossip, and the store does not know yet whether it has stopped"
	}
	return "already pinned"
}

// Detector decides for one node which incarnations are dead, based on snapshots and the store's answers. All
// methods are safe for concurrent use.
type Detector struct {
	TTL time.Duration // TTL of leases and of heartbeats in the store

	mu     sync.Mutex
	cutOff map[lease.Incarnation]split     // expired in gossip, but not dead
	dead   map[lease.Incarnation]time.Time // expired in gossip and the store, with the time of the verdict

	since    time.Time // when this node's heartbeats began to reach the store without a gap
	last     time.Time // when this node's latest heartbeat reached the store
	wasAway  bool      // the store has been away since the start
	stillOut bool      // the store has not answered since it was away
	lost     bool      // the store may have lost data: see awaits
	restores bool      // another node restores pins, or may not have noticed yet that it must
	heard    time.Time // when restores was last set
	restored time.Time // when this node last restored a pin
}

// split is the store's information about an incarnation that is expired in gossip but not dead.
type split struct {
	verdict     Verdict
	first, last time.Time // first and latest of successive looks that found a heartbeat; zero: the latest look found none
}

// New returns a Detector for leases with the given TTL.
func New(ttl time.Duration) *Detector {
	return &Detector{
		TTL: ttl, cutOff: make(map[lease.Incarnation]split), dead: make(map[lease.Incarnation]time.Time),
	}
}

// Verdict returns the verdict about an incarnation. known is false if the caller must query the store.
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

// Record records the store's answer about an incarnation that is not live in gossip, and returns the verdict.
// A missing heartbeat only proves a death after this node's own heartbeats have arrived for a whole TTL,
// because the store may have been unreachable for all nodes. For reclaimTime after that, the verdict is
// Silent. This gives a host time to replace a pin of its room that names a dead incarnation before other
// nodes move the room.
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

// Unknown returns the incarnations that are cut off from gossip, so that the caller queries the store about
// them again. died reports whether one of the cut-off incarnations is now certainly dead, because a later
// incarnation has replaced it, its failure is confirmed, or it has left.
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
// gossip did not reach them. A shorter time proves nothing, because the heartbeat of a dead node remains in
// the store for up to a TTL.
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

// StoreAway records that the store was unreachable. lost is whether the store may have lost data. If the
// store was only slow, nodes have no pins to restore except for rooms that they have hosted since then. So
// this node does not wait for nodes that have not noticed the outage.
func (d *Detector) StoreAway(lost bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = lost || d.awaits(now)
	d.since, d.last, d.wasAway, d.stillOut = now, time.Time{}, true, true
}

// awaits reports whether the store may have lost data so recently that a live node may not have noticed it
// yet.
func (d *Detector) awaits(now time.Time) bool {
	return d.lost && (d.stillOut || now.Sub(d.since) < d.TTL)
}

// Reclaiming reports whether the store has come back so recently that hosts may still have to restore their
// pins. Reclaiming is already true for the first call that reaches the store again.
func (d *Detector) Reclaiming(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wasAway && (d.stillOut || now.Sub(d.since) < reclaimTime || d.restores)
}

// Back reports whether the store has come back recently, so that nodes may still restore their pins. self
// reports whether this node may still restore pins. self becomes false when this node has restored no pins
// for restoreTime, because a node with permanent errors must not delay the others.
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

// OthersRestore records what other nodes report in the store. restores is set if another node is still
// restoring pins, and silent is set if a node has reported nothing.
func (d *Detector) OthersRestore(restores, silent bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restores = restores || silent && d.awaits(now)
	if d.restores {
		d.heard = now
	}
}

// Sketch returns the state of the detector as text, for tests that explore a model of rooms. Two detectors
// with the same sketch make the same decisions from now on. Times are ages, capped at the age from which they
// make no difference.
func (d *Detector) Sketch(now time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	age := func(at time.Time, most time.Duration) time.Duration { return min(now.Sub(at), most) }
	since := age(d.since, max(d.TTL+reclaimTime, restoreTime))
	if d.stillOut || !d.wasAway { // since is set again before an age above a TTL can matter
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

// Live returns the member with this incarnation, if it is live. A later incarnation than the member's is also
// considered live, because other nodes may have seen it first. Later incarnations of this node itself are not
// considered live, because if this node's clock was set back, its dead incarnations can have greater numbers.
func Live(s *cluster.Snapshot, at lease.Incarnation) *cluster.Member {
	m, _ := s.Member(at.Node)
	if m == nil || at.Number < m.Incarnation || (at.Number > m.Incarnation && s.Self != nil && at.Node == s.Self.ID) {
		return nil
	}
	return m
}

// Ended returns a readable reason why an incarnation that is not live has ended.
func Ended(s *cluster.Snapshot, at lease.Incarnation) string {
	switch {
	case slices.Contains(s.Left, at):
		return "its node left"
	case replaced(s, at) && !slices.Contains(s.Crashed, at):
		return "its node restarted"
	}
	return "its node died"
}

// proven reports whether an incarnation is certainly dead, because other nodes have confirmed its failure or
// because it has left.
func proven(s *cluster.Snapshot, at lease.Incarnation) bool {
	return slices.Contains(s.Crashed, at) || slices.Contains(s.Left, at)
}

// replaced reports whether a later incarnation of the node has replaced at.
func replaced(s *cluster.Snapshot, at lease.Incarnation) bool {
	m, _ := s.Member(at.Node)
	return m != nil && at.Number < m.Incarnation
}
