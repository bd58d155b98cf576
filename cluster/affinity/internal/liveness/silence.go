package liveness

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// A look asks the store for at most lookAtOnce members. A member is silent after several looks in a row, over
// at least leastSilence, because clients of a store that was away come back to it up to five seconds apart.
const (
	lookAtOnce   = 64
	leastSilence = 10 * time.Second
)

// Silence knows which members are live in gossip but send no heartbeats to this store, because they use
// another store or none, or do not reach it. They get no new rooms, because they could not find them in their
// own store and would place them again. Rooms that are pinned to them stay, because such a member is alive
// and may host them, so a room that moved would have two hosts.
//
// The looks of this node prove that the store answers, so a missing heartbeat means silence. It makes no
// difference whether the store was empty a moment ago, or whose clock is right. A member that is paused soon
// stops being a member in gossip. A silence ends with the first heartbeat.
//
// Only one goroutine may call Ask and Learn. The other methods are safe for concurrent use.
type Silence struct {
	TTL time.Duration // of leases, and of heartbeats in the store

	found atomic.Pointer[found]
	since map[lease.Incarnation]span // time of looks that found no heartbeat
	heard map[lease.NodeID]bool      // nodes that this store has heard, in any incarnation
	next  int                        // where the next look begins
	last  time.Time                  // the latest look
}

// span is the time from the first look to the latest.
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

// Named returns the silent members, sorted by id, that should use this store, because they state a capacity,
// which is only for rooms, or because this store has heard of their node before. Other silent members may not
// use rooms at all, for example if an application embeds an agent only for its partitions. They get no rooms
// either, but that is not a problem.
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

// Learn takes the store's answer, which says which of ask it hears. After a pause, for example because the
// store was away, silences start again, unless they had lasted long enough.
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
