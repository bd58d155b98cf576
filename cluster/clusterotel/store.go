package clusterotel

import (
	"context"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Store returns a wrapper of s that creates a span for each call that a caller waits for.
func (t *Tracing) Store(s pinstore.Store) pinstore.Store { return &store{s, t} }

type store struct {
	pinstore.Store
	*Tracing
}

func (s *store) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
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

func (s *store) Index(
	ctx context.Context,
	partitions []placement.Partition,
	want func(lease.Incarnation) bool,
	limit int,
) ([]pinstore.Entry, error) {
	ctx, end := s.begin(ctx, "roost.store.index", "roost.partitions", len(partitions))
	found, err := s.Store.Index(ctx, partitions, want, limit)
	end(err)
	return found, err
}

func (s *store) Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	ctx, end := s.begin(ctx, "roost.store.heartbeat", "roost.asked", len(ask))
	signed, err := s.Store.Heartbeat(ctx, self, ttl, ask)
	end(err)
	return signed, err
}

// PresenceStore returns a wrapper of s that creates a span for each call that a caller waits for.
func (t *Tracing) PresenceStore(s presence.Store) presence.Store {
	return &presenceStore{s, t}
}

type presenceStore struct {
	presence.Store
	*Tracing
}

func (p *presenceStore) Heartbeat(ctx context.Context, stale time.Duration, participants ...presence.Participant) error {
	ctx, end := p.begin(ctx, "roost.presence.heartbeat", "roost.participants", len(participants))
	err := p.Store.Heartbeat(ctx, stale, participants...)
	end(err)
	return err
}

func (p *presenceStore) Leave(ctx context.Context, participants ...presence.Participant) error {
	ctx, end := p.begin(ctx, "roost.presence.leave", "roost.participants", len(participants))
	err := p.Store.Leave(ctx, participants...)
	end(err)
	return err
}

func (p *presenceStore) Members(ctx context.Context, stale time.Duration, room presence.Room) ([]presence.Member, error) {
	ctx, end := p.begin(ctx, "roost.presence.members", "roost.rooms", 1)
	members, err := p.Store.Members(ctx, stale, room)
	end(err)
	return members, err
}

func (p *presenceStore) Count(ctx context.Context, stale time.Duration, rooms ...presence.Room) ([]int, error) {
	ctx, end := p.begin(ctx, "roost.presence.count", "roost.rooms", len(rooms))
	counts, err := p.Store.Count(ctx, stale, rooms...)
	end(err)
	return counts, err
}
