package affinity_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// faulty is a store with problems that a test turns on and off.
type faulty struct {
	pinstore.Store
	swaps atomic.Int64
	fails atomic.Bool  // fails at once
	hangs atomic.Bool  // does not answer
	stuck atomic.Bool  // does not answer Swap
	late  atomic.Bool  // performs Swap, and does not answer
	blind atomic.Bool  // has no index: no node finds the rooms of dead nodes
	pause atomic.Int64 // after every eight ops, in nanoseconds
	mute  bool         // does not notify

	heartbeatPause atomic.Int64 // after a heartbeat, before its answer, in nanoseconds

	shardDown atomic.Bool // of every third partition: a call that names one fails for it
	hung      bool        // such a call does not answer before its time is over
	users     []func(string)
	notified  atomic.Int64 // users of now

	beforeRelease atomic.Pointer[func()] // is called once, before a pin is deleted
	releasesLate  atomic.Bool            // that pin is deleted a second after the caller has given up
	afterSwap     atomic.Pointer[func()] // is called once, before the answer
}

var errDown = fmt.Errorf("%w: %w", pinstore.ErrStore, errors.New("connection refused"))

func (f *faulty) Notify(changed func(string)) (stop func()) {
	if f.mute {
		return func() {}
	}
	f.notified.Add(1)
	f.users = append(f.users, changed)
	end := f.Store.Notify(changed)
	return func() {
		f.notified.Add(-1)
		end()
	}
}

// disconnect notifies all users of a lost connection.
func (f *faulty) disconnect() {
	for _, changed := range f.users {
		changed("")
	}
}

func (f *faulty) trouble(ctx context.Context) error {
	switch {
	case f.fails.Load():
		return errDown
	case f.hangs.Load() || f.late.Load():
		<-ctx.Done()
		return fmt.Errorf("%w: %w", pinstore.ErrStore, ctx.Err())
	}
	return nil
}

func (f *faulty) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	f.swaps.Add(int64(len(ops)))
	if f.late.Load() {
		f.Store.Swap(ctx, ops...)
	}
	err := f.trouble(ctx)
	if err == nil && f.stuck.Load() {
		<-ctx.Done()
		err = fmt.Errorf("%w: %w", pinstore.ErrStore, ctx.Err())
	}
	if err != nil {
		results := make([]pinstore.Result, len(ops))
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	if f.shardDown.Load() {
		return f.swapUp(ctx, ops)
	}
	if ops[0].If != (pinstore.Pin{}) && ops[0].Set == (pinstore.Pin{}) {
		if before := f.beforeRelease.Swap(nil); before != nil {
			(*before)()
			if f.releasesLate.Load() {
				<-ctx.Done()
				time.AfterFunc(time.Second, func() { f.Store.Swap(context.Background(), ops...) })
				return []pinstore.Result{{Err: fmt.Errorf("%w: %w", pinstore.ErrStore, ctx.Err())}}
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
	var results []pinstore.Result
	for piece := range slices.Chunk(ops, 8) {
		results = append(results, f.Store.Swap(ctx, piece...)...)
		time.Sleep(pause)
	}
	return results
}

func (f *faulty) Index(
	ctx context.Context,
	parts []placement.Partition,
	want func(lease.Incarnation) bool,
	limit int,
) ([]pinstore.Entry, error) {
	if err := f.trouble(ctx); err != nil {
		return nil, err
	}
	if f.blind.Load() {
		return nil, errDown
	}
	if !f.shardDown.Load() {
		return f.Store.Index(ctx, parts, want, limit)
	}
	up := slices.DeleteFunc(slices.Clone(parts), onShard)
	if len(up) == len(parts) {
		return f.Store.Index(ctx, parts, want, limit)
	}
	if f.hung {
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", pinstore.ErrStore, ctx.Err())
	}
	found, _ := f.Store.Index(ctx, up, want, limit)
	return found, errDown
}

func onShard(p placement.Partition) bool { return p%3 == 0 }

// swapUp is Swap while a shard is down. The other shards perform their ops. If the shard hangs, the whole answer waits
// for it.
func (f *faulty) swapUp(ctx context.Context, ops []pinstore.Op) []pinstore.Result {
	results := make([]pinstore.Result, len(ops))
	down := errDown
	for i, op := range ops {
		if !onShard(op.Partition) {
			results[i] = f.Store.Swap(ctx, op)[0]
		}
	}
	for i, op := range ops {
		if !onShard(op.Partition) {
			continue
		}
		if f.hung {
			<-ctx.Done()
			down = fmt.Errorf("%w: %w", pinstore.ErrStore, ctx.Err())
		}
		results[i].Err = down
	}
	return results
}

func (f *faulty) Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	if err := f.trouble(ctx); err != nil {
		return nil, err
	}
	defer func() { time.Sleep(time.Duration(f.heartbeatPause.Load())) }()
	return f.Store.Heartbeat(ctx, self, ttl, ask)
}

func (f *faulty) Agree(ctx context.Context, self lease.Incarnation, ttl time.Duration, s pinstore.Settings) (pinstore.Agreed, error) {
	if err := f.trouble(ctx); err != nil {
		return pinstore.Agreed{}, err
	}
	return f.Store.Agree(ctx, self, ttl, s)
}

func (f *faulty) Reserve(ctx context.Context, r pinstore.Reservation) error {
	if err := f.trouble(ctx); err != nil {
		return err
	}
	return f.Store.Reserve(ctx, r)
}

func (f *faulty) Reservations(ctx context.Context) ([]pinstore.Reservation, error) {
	if err := f.trouble(ctx); err != nil {
		return nil, err
	}
	return f.Store.Reservations(ctx)
}

// replaced is a store that a test can empty, like a server that restarts without persistence. When the store is
// emptied, it notifies its users.
type replaced struct {
	mu    sync.Mutex
	now   *pinstore.Memory
	heeds []func(string)
	lists atomic.Int64 // of reservations
}

func newReplaced() *replaced { return &replaced{now: pinstore.NewMemory()} }

func (s *replaced) empty() { s.restore(pinstore.NewMemory()) }

// failOver empties the store. No user is notified.
func (s *replaced) failOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = pinstore.NewMemory()
	for _, heed := range s.heeds {
		s.now.Notify(heed)
	}
}

// restore gives the store other data, such as an earlier copy.
func (s *replaced) restore(data *pinstore.Memory) {
	s.mu.Lock()
	s.now = data
	heeds := s.heeds
	for _, heed := range heeds {
		s.now.Notify(heed)
	}
	s.mu.Unlock()
	for _, heed := range heeds {
		heed("")
	}
}

func (s *replaced) memory() *pinstore.Memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *replaced) Notify(changed func(string)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heeds = append(s.heeds, changed)
	return s.now.Notify(changed)
}

func (s *replaced) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	return s.memory().Swap(ctx, ops...)
}

func (s *replaced) Index(
	ctx context.Context,
	parts []placement.Partition,
	want func(lease.Incarnation) bool,
	limit int,
) ([]pinstore.Entry, error) {
	return s.memory().Index(ctx, parts, want, limit)
}

func (s *replaced) Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	return s.memory().Heartbeat(ctx, self, ttl, ask)
}

func (s *replaced) Agree(
	ctx context.Context,
	self lease.Incarnation,
	ttl time.Duration,
	settings pinstore.Settings,
) (pinstore.Agreed, error) {
	return s.memory().Agree(ctx, self, ttl, settings)
}

func (s *replaced) Reserve(ctx context.Context, r pinstore.Reservation) error {
	return s.memory().Reserve(ctx, r)
}

func (s *replaced) Reservations(ctx context.Context) ([]pinstore.Reservation, error) {
	s.lists.Add(1)
	return s.memory().Reservations(ctx)
}
