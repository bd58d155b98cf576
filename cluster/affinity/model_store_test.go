//go:build !race

package affinity

import (
	"context"
	"errors"
	"fmt"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// modelStore is a real Memory, which keeps the pin of one room. A faulty variant shows that
// pin with another epoch than its own, and takes the epoch that it shows.
type modelStore struct {
	*pinstore.Memory
	own, shown uint64 // epochs; equal without a problem
}

func newModelStore() *modelStore { return &modelStore{Memory: pinstore.NewMemory()} }

// do performs one op on the room.
func (s *modelStore) do(op pinstore.Op) pinstore.Result {
	op.Room = modelRoom
	if op.If.Epoch != 0 && op.If.Epoch == s.shown {
		op.If.Epoch = s.own
	}
	if op.Set.Epoch >= s.shown {
		op.Set.Epoch += s.own - s.shown
	}
	res := s.Swap(context.Background(), op)[0]
	res.Pin = s.show(res.Pin)
	return res
}

// pin returns the room's pin.
func (s *modelStore) pin() pinstore.Pin { return s.do(pinstore.Op{}).Pin }

// pretend shows a new pin with another epoch from now on.
func (s *modelStore) pretend(pin *pinstore.Pin, epoch uint64) {
	s.own, s.shown = pin.Epoch, epoch
	*pin = s.show(*pin)
}

func (s *modelStore) show(pin pinstore.Pin) pinstore.Pin {
	if pin.Epoch == s.own {
		pin.Epoch = s.shown
	}
	return pin
}

func (s *modelStore) index(parts []placement.Partition, want func(lease.Incarnation) bool, limit int) ([]pinstore.Entry, error) {
	found, err := s.Index(context.Background(), parts, want, limit)
	for i := range found {
		found[i].Pin = s.show(found[i].Pin)
	}
	return found, err
}

// alive reports whether the heartbeat of an incarnation has not expired.
func (s *modelStore) alive(at lease.Incarnation) bool {
	alive, err := s.Heartbeat(context.Background(), lease.Incarnation{}, 0, []lease.Incarnation{at})
	return err == nil && alive[0]
}

func (s *modelStore) earlier() *modelStore { return &modelStore{s.Copy(), s.own, s.shown} }

// storeError makes err what a Store returns.
func storeError(err error) error { return fmt.Errorf("%w: %w", pinstore.ErrStore, err) }

var (
	errModelFailed = storeError(errors.New("connection refused"))
	errModelLost   = storeError(context.DeadlineExceeded)
)
