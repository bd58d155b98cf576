package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// faulty is a store that a test takes away and brings back.
type faulty struct {
	affinity.Store
	swaps atomic.Int64
	fails atomic.Bool // refuses at once
	hangs atomic.Bool // does not answer
	late  atomic.Bool // does what it is asked, and does not answer
	blind atomic.Bool // has no index: no node finds the rooms of dead nodes
}

var errDown = fmt.Errorf("%w: %w", affinity.ErrStore, errors.New("connection refused"))

func (f *faulty) trouble(ctx context.Context) error {
	switch {
	case f.fails.Load():
		return errDown
	case f.hangs.Load() || f.late.Load():
		<-ctx.Done()
		return fmt.Errorf("%w: %w", affinity.ErrStore, ctx.Err())
	}
	return nil
}

func (f *faulty) Swap(ctx context.Context, ops ...affinity.Op) []affinity.Result {
	f.swaps.Add(int64(len(ops)))
	if f.late.Load() {
		f.Store.Swap(ctx, ops...)
	}
	if err := f.trouble(ctx); err != nil {
		results := make([]affinity.Result, len(ops))
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	return f.Store.Swap(ctx, ops...)
}

func (f *faulty) Index(ctx context.Context, parts []placement.Partition, want func(lease.Incarnation) bool, limit int) ([]affinity.Entry, error) {
	if err := f.trouble(ctx); err != nil {
		return nil, err
	}
	if f.blind.Load() {
		return nil, errDown
	}
	return f.Store.Index(ctx, parts, want, limit)
}

func (f *faulty) Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	if err := f.trouble(ctx); err != nil {
		return nil, err
	}
	return f.Store.Heartbeat(ctx, self, ttl, ask)
}

// slowSwaps performs ops in small pieces with a pause after each, if it is on.
type slowSwaps struct {
	affinity.Store
	pause atomic.Int64
}

func (s *slowSwaps) on(pause time.Duration) { s.pause.Store(int64(pause)) }

func (s *slowSwaps) Swap(ctx context.Context, ops ...affinity.Op) []affinity.Result {
	var results []affinity.Result
	for _, op := range ops {
		results = append(results, s.Store.Swap(ctx, op)...)
		if pause := time.Duration(s.pause.Load()); pause > 0 && len(results)%8 == 0 {
			time.Sleep(pause)
		}
	}
	return results
}

// replaced is a store that a test empties, like a restarted server without persistence.
// It notifies its users of that.
type replaced struct {
	mu    sync.Mutex
	now   *affinity.Memory
	heeds []func(string)
}

func (s *replaced) empty() {
	s.mu.Lock()
	s.now = affinity.NewMemory()
	heeds := s.heeds
	for _, heed := range heeds {
		s.now.Notify(heed)
	}
	s.mu.Unlock()
	for _, heed := range heeds {
		heed("")
	}
}

func (s *replaced) memory() *affinity.Memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *replaced) Notify(changed func(string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heeds = append(s.heeds, changed)
	s.now.Notify(changed)
}

func (s *replaced) Swap(ctx context.Context, ops ...affinity.Op) []affinity.Result {
	return s.memory().Swap(ctx, ops...)
}

func (s *replaced) Index(ctx context.Context, parts []placement.Partition, want func(lease.Incarnation) bool, limit int) ([]affinity.Entry, error) {
	return s.memory().Index(ctx, parts, want, limit)
}

func (s *replaced) Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	return s.memory().Heartbeat(ctx, self, ttl, ask)
}
