package clusterotel

import (
	"context"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Store returns s with a span for each call that somebody waits for.
func (t *Tracing) Store(s affinity.Store) affinity.Store { return &store{s, t} }

type store struct {
	affinity.Store
	*Tracing
}

// Swap implements [affinity.Store].
func (s *store) Swap(ctx context.Context, ops ...affinity.Op) []affinity.Result {
	ctx, end := s.begin(ctx, "roost.store.swap", "roost.ops", len(ops))
	results := s.Store.Swap(ctx, ops...)
	var first error
	for _, res := range results {
		if first = res.Err; first != nil {
			break
		}
	}
	end(first)
	return results
}

// Index implements [affinity.Store].
func (s *store) Index(ctx context.Context, partitions []placement.Partition, want func(lease.Incarnation) bool, limit int) ([]affinity.Entry, error) {
	ctx, end := s.begin(ctx, "roost.store.index", "roost.partitions", len(partitions))
	found, err := s.Store.Index(ctx, partitions, want, limit)
	end(err)
	return found, err
}

// Sign implements [affinity.Store].
func (s *store) Sign(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	ctx, end := s.begin(ctx, "roost.store.sign", "roost.asked", len(ask))
	signed, err := s.Store.Sign(ctx, self, ttl, ask)
	end(err)
	return signed, err
}

// PresenceStore returns s with a span for each call that somebody waits for.
func (t *Tracing) PresenceStore(s affinity.PresenceStore) affinity.PresenceStore {
	return &presence{s, t}
}

type presence struct {
	affinity.PresenceStore
	*Tracing
}

// Beat implements [affinity.PresenceStore].
func (p *presence) Beat(ctx context.Context, stale time.Duration, seats ...affinity.Seat) error {
	ctx, end := p.begin(ctx, "roost.presence.beat", "roost.seats", len(seats))
	err := p.PresenceStore.Beat(ctx, stale, seats...)
	end(err)
	return err
}

// Leave implements [affinity.PresenceStore].
func (p *presence) Leave(ctx context.Context, seats ...affinity.Seat) error {
	ctx, end := p.begin(ctx, "roost.presence.leave", "roost.seats", len(seats))
	err := p.PresenceStore.Leave(ctx, seats...)
	end(err)
	return err
}

// Members implements [affinity.PresenceStore].
func (p *presence) Members(ctx context.Context, stale time.Duration, room affinity.RoomRef) ([]affinity.Occupant, error) {
	ctx, end := p.begin(ctx, "roost.presence.members", "roost.rooms", 1)
	members, err := p.PresenceStore.Members(ctx, stale, room)
	end(err)
	return members, err
}

// Count implements [affinity.PresenceStore].
func (p *presence) Count(ctx context.Context, stale time.Duration, rooms ...affinity.RoomRef) ([]int, error) {
	ctx, end := p.begin(ctx, "roost.presence.count", "roost.rooms", len(rooms))
	counts, err := p.PresenceStore.Count(ctx, stale, rooms...)
	end(err)
	return counts, err
}
