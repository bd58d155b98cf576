package liveness

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// A look is one query of the store for the heartbeats of at most lookAtOnce members. A member is considered
// silent if several looks in a row, over at least leastSilence, have found no heartbeat. The time is this
// long because clients reconnect to a store up to five seconds apart.
const (
	lookAtOnce   = 64
	leastSilence = 10 * time.Second
)

// Silence tracks which members are live in gossip but send no heartbeats to this store. A silent member uses
// another store, uses no store, or does not reach its store. A silent member gets no new rooms, because it
// could not find the pins of these rooms in its own store and would place the rooms again. Rooms that are
// already pinned to a silent member stay there. The member is alive and may host them, so moving a room could
// give it two hosts.
//
// A missing heartbeat means silence, because the looks of this node prove that the store answers. The result
// does not depend on clocks or on whether the store has just lost its data. A paused member is not considered
// silent for long, because its lease in gossip soon expires. A silence ends with the first heartbeat.
//
// Only one goroutine may call Ask and Learn. The other methods are safe for concurrent use.
type Silence struct {
	TTL time.Duration // TTL of leases and of heartbeats in the store

	found atomic.Pointer[found]
	since map[lease.Incarnation]span // times of the looks that found no heartbeat
	heard map[lease.NodeID]bool      // nodes that have sent a heartbeat to this store, in any incarnation
	next  int                        // where the next look begins
	last  time.Time                  // time of the latest look
}

// span is the time from the first to the latest look that found no heartbeat.
type span struct{ first, last time.Time }

// found contains the results of the looks.
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

// Named returns the silent members, sorted by id, that should use this store. A member should use this store
// if it has a capacity, which is only used for rooms, or if its node has sent a heartbeat to this store
// before. Other silent members may not use rooms at all, for example if an application embeds an agent only
// for its partitions. Such members get no rooms, but that is not a problem to report.
func (s *Silence) Named() []lease.NodeID {
	if f := s.found.Load(); f != nil {
		return f.named
	}
	return nil
}

// Ask returns the members to ask the store about in the next look.
func (s *Silence) Ask(members []*cluster.Member) (ask []lease.Incarnation) {
	for i := range min(lookAtOnce, len(members)) {
		m := members[(s.next+i)%len(members)]
		ask = append(ask, lease.Incarnation{Node: m.ID, Number: m.Incarnation})
	}
	return ask
}

// Learn records the store's answer. hears reports for each member in ask whether the store has a heartbeat of
// the member. After a pause between looks, for example because the store was unreachable, Learn forgets
// silences that were too short to be certain.
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

// forget removes what is no longer needed and, after a pause, all silences that are not certain yet.
func (s *Silence) forget(members []*cluster.Member, pause bool) {
	if s.heard == nil {
		s.heard = make(map[lease.NodeID]bool)
	}
	if len(s.heard) > 2*len(members)+lookAtOnce { // at least half of these nodes are gone
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
