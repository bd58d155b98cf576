package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// faulty is a store with faults that a test turns on and off.
type faulty struct {
	affinity.Store
	swaps atomic.Int64
	fails atomic.Bool  // fails at once
	hangs atomic.Bool  // does not answer
	stuck atomic.Bool  // does not answer Swap
	late  atomic.Bool  // performs Swap, and does not answer
	blind atomic.Bool  // has no index: no node finds the rooms of dead nodes
	pause atomic.Int64 // after every eight ops, in nanoseconds
	mute  bool         // does not notify

	beforeRelease atomic.Pointer[func()] // is called once, before a pin is deleted
	releasesLate  atomic.Bool            // that pin is deleted a second after the caller has given up
	afterSwap     atomic.Pointer[func()] // is called once, before the answer
}

var errDown = fmt.Errorf("%w: %w", affinity.ErrStore, errors.New("connection refused"))

func (f *faulty) Notify(changed func(string)) {
	if !f.mute {
		f.Store.Notify(changed)
	}
}

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
	err := f.trouble(ctx)
	if err == nil && f.stuck.Load() {
		<-ctx.Done()
		err = fmt.Errorf("%w: %w", affinity.ErrStore, ctx.Err())
	}
	if err != nil {
		results := make([]affinity.Result, len(ops))
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	if ops[0].If != (affinity.Pin{}) && ops[0].Set == (affinity.Pin{}) {
		if before := f.beforeRelease.Swap(nil); before != nil {
			(*before)()
			if f.releasesLate.Load() {
				<-ctx.Done()
				time.AfterFunc(time.Second, func() { f.Store.Swap(context.Background(), ops...) })
				return []affinity.Result{{Err: fmt.Errorf("%w: %w", affinity.ErrStore, ctx.Err())}}
			}
		}
	}
	pause := time.Duration(f.pause.Load())
	if pause == 0 {
		results := f.Store.Swap(ctx, ops...)
		if after := f.afterSwap.Swap(nil); after != nil {
			(*after)()
		}
		return results
	}
	var results []affinity.Result
	for piece := range slices.Chunk(ops, 8) {
		results = append(results, f.Store.Swap(ctx, piece...)...)
		time.Sleep(pause)
	}
	return results
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
