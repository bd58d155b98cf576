package liveness

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// The store is asked for at most lookAtOnce members in one look. A member is silent after several looks in a
// row, for leastSilence at least: clients of a store that was away come back to it up to five seconds apart.
const (
	lookAtOnce   = 64
	leastSilence = 10 * time.Second
)

// Silence knows which members live by gossip and send no heartbeats to this store: they use another one, or
// none, or do not reach it. They get no new rooms, since they could not find them in their own store, and
// would place them again. Rooms that are pinned to them stay: such a member lives and may host them, so a
// room that moved would have two hosts.
//
// A missing heartbeat is a fact of this store, and the looks of this node prove that the store answers. So it
// makes no difference whether the store was empty a moment ago, or whose clock is right; and a member that is
// paused is soon no member by gossip. A silence ends with the first heartbeat.
//
// One goroutine calls Ask and Learn, the other methods may be called from any.
type Silence struct {
	TTL time.Duration // of leases, and of heartbeats in the store

	found atomic.Pointer[found]
	since map[lease.Incarnation]span // looks that found no heartbeat
	heard map[lease.NodeID]bool      // by this store, in any incarnation
	next  int                        // where the next look begins
	last  time.Time                  // the latest look
}

// span is from the first look to the latest one.
type span struct{ first, last time.Time }

// found is what the looks have found.
type found struct {
	silent []lease.Incarnation
	named  []lease.NodeID
}

// Silent returns the silent members.
func (s *Silence) Silent() []lease.Incarnation {
	if f := s.found.Load(); f != nil {
		return f.silent
	}
	return nil
}

// Named returns the silent members, by id, of which it is known that they should use this store: they state a
// capacity, which is for rooms alone, or this store has heard of their node before. Others may be members for
// another reason: an application may embed an agent for its partitions, and place no rooms. They get none
// either, and that is no problem.
func (s *Silence) Named() []lease.NodeID {
	if f := s.found.Load(); f != nil {
		return f.named
	}
	return nil
}

// Ask returns the members to ask the store for in the next look.
func (s *Silence) Ask(members []*cluster.Member) (ask []lease.Incarnation) {
	for i := range min(lookAtOnce, len(members)) {
		m := members[(s.next+i)%len(members)]
		ask = append(ask, lease.Incarnation{Node: m.ID, Number: m.Incarnation})
	}
	return ask
}

// Learn takes the store's answer: which of ask it hears. After a pause, as when the store was away, a silence
// begins anew, unless it had lasted for long enough.
func (s *Silence) Learn(members []*cluster.Member, ask []lease.Incarnation, hears []bool, now time.Time) {
	s.forget(members, now.Sub(s.last) > s.TTL)
	for i, at := range ask {
		switch sp, ok := s.since[at]; {
		case hears[i]:
			s.heard[at.Node] = true
			delete(s.since, at)
		case ok:
			s.since[at] = span{sp.first, now}
		default:
			s.since[at] = span{now, now}
		}
	}
	s.next, s.last = (s.next+len(ask))%max(1, len(members)), now
	s.found.Store(s.find(members))
}

// forget removes what is of no use any more, and after a pause all silences that are not certain yet.
func (s *Silence) forget(members []*cluster.Member, pause bool) {
	if s.heard == nil {
		s.heard = make(map[lease.NodeID]bool)
	}
	if len(s.heard) > 2*len(members)+lookAtOnce { // most are gone
		maps.DeleteFunc(s.heard, func(id lease.NodeID, _ bool) bool {
			return !slices.ContainsFunc(members, func(m *cluster.Member) bool { return m.ID == id })
		})
	}
	was := s.since
	s.since = make(map[lease.Incarnation]span, len(was))
	for _, m := range members {
		at := lease.Incarnation{Node: m.ID, Number: m.Incarnation}
		if sp, ok := was[at]; ok && (!pause || s.proves(sp)) {
			s.since[at] = sp
		}
	}
}

func (s *Silence) find(members []*cluster.Member) *found {
	f := new(found)
	for _, m := range members {
		at := lease.Incarnation{Node: m.ID, Number: m.Incarnation}
		if sp, ok := s.since[at]; !ok || !s.proves(sp) {
			continue
		}
		f.silent = append(f.silent, at)
		if m.Capacity > 0 || s.heard[m.ID] {
			f.named = append(f.named, m.ID)
		}
	}
	slices.Sort(f.named)
	return f
}

func (s *Silence) proves(sp span) bool { return sp.last.Sub(sp.first) >= max(s.TTL, leastSilence) }
