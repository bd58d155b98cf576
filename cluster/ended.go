package cluster

import (
	"context"
	"time"

	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/lease"
)

// confirmTime is how long Ended waits for the confirmation of an end. The watchers of a node need
// about half of it.
const confirmTime = time.Second

// Ended reports whether an incarnation is no longer live here. If it is, Ended looks for
// itself: it connects to the address of the node. If the process is gone, Ended waits until
// the other nodes have proven its end, for at most a second or until ctx ends; otherwise it
// returns false at once. So it makes no node dead, and false proves nothing: a host that
// vanished shows after half a TTL. It is for a program that has reason to believe that a
// member has died.
func (a *Agent) Ended(ctx context.Context, of lease.Incarnation) bool {
	m := a.snap.Load().running(of)
	if m == nil || of.Node == a.self {
		return m == nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTime)
	defer cancel()
	if !a.gossip.Ended(ctx, gossip.Target{Handle: of.Handle(), Addr: m.Addr}) {
		return a.snap.Load().running(of) == nil
	}
	return a.await(ctx, func(s *Snapshot) bool { return s.running(of) == nil }) == nil
}

// running returns the member of an incarnation while no later incarnation has replaced it,
// and nil if its node is not live.
func (s *Snapshot) running(of lease.Incarnation) *Member {
	if m, ok := s.Member(of.Node); ok && m.Incarnation <= of.Number {
		return m
	}
	return nil
}
