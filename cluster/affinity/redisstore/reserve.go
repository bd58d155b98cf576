package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
	"github.com/roost-cluster/roost/lease"
)

// counted is the answer of the script reserve.lua.
type counted struct {
	quarter string // the quarter of a second in which the units were counted; empty if they would exceed the limit
	before  int64
	err     error
}

// limited performs an op with a limit. The node's units are in a different slot than the room's pin, so one
// script cannot update both. If the server of the node's units is down, a new room has no limit.
func (s *Store) limited(ctx context.Context, op pinstore.Op) pinstore.Result {
	if err := check(&op); err != nil {
		return pinstore.Result{Err: storeError(fmt.Sprintf("room %.80q", op.Room), err)}
	}
	if op.If.Incarnation == (lease.Incarnation{}) {
		return s.claim(ctx, op)
	}
	return s.replace(ctx, op)
}

// claim runs the two scripts concurrently, which takes one round trip. If the limit forbids the pin, claim
// deletes the pin before it returns.
func (s *Store) claim(ctx context.Context, op pinstore.Op) pinstore.Result {
	var units counted
	var side sync.WaitGroup
	side.Go(func() { units = s.count(ctx, op, "") })
	result := s.swapAll(ctx, []pinstore.Op{op})[0]
	side.Wait()
	if result.Done && units.err == nil && units.quarter == "" {
		return s.undo(ctx, op, result, units)
	}
	s.settle(op, units, result)
	return result
}

// replace counts the units before it replaces the pin, which takes two round trips. The room may have a host,
// and a host that reads another node's pin loses the room, even if the store restores the host's pin later. If
// the server of the node's units is down, the room stays, because no replacement with a limit is urgent.
func (s *Store) replace(ctx context.Context, op pinstore.Op) pinstore.Result {
	units := s.count(ctx, op, "")
	if units.err != nil {
		return pinstore.Result{Err: storeError(fmt.Sprintf("room %.80q", op.Room), units.err)}
	}
	if units.quarter == "" {
		stands := s.swapAll(ctx, []pinstore.Op{{Partition: op.Partition, Room: op.Room}})[0]
		stands.Full, stands.Counted = stands.Err == nil, units.before
		return stands
	}
	result := s.swapAll(ctx, []pinstore.Op{op})[0]
	s.settle(op, units, result)
	return result
}

// settle removes the units of an op that had no effect from the count.
func (s *Store) settle(op pinstore.Op, units counted, result pinstore.Result) {
	if units.err == nil && units.quarter != "" && !result.Done && unwritten(result.Err) {
		s.uncount(op, units.quarter)
	}
}

// unwritten reports whether an error, or nil, proves that a command wrote nothing. After a lost connection or
// a timeout, the server may have executed the command.
func unwritten(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op == "dial"
	}
	_, network := errors.AsType[net.Error](err)
	return !network && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, redisconn.ErrClosed)
}

// undo deletes the pin of a claim.
func (s *Store) undo(ctx context.Context, op pinstore.Op, claimed pinstore.Result, units counted) pinstore.Result {
	undone := s.swapAll(ctx, []pinstore.Op{{Partition: op.Partition, Room: op.Room, If: claimed.Pin}})[0]
	if undone.Err != nil || !undone.Done { // not done: another caller has moved the room in the meantime
		return undone
	}
	return pinstore.Result{Full: true, Counted: units.before}
}

// uncount subtracts the units that were counted for a claim that failed or that another caller won. uncount
// runs in the background. If uncount fails, the units remain counted until they are outside the window.
func (s *Store) uncount(op pinstore.Op, quarter string) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.count(ctx, op, quarter)
	}()
}

func (s *Store) count(ctx context.Context, op pinstore.Op, quarter string) counted {
	at, names := textOf(op.Set.Incarnation), keys{prefix: s.prefix}
	answer, err := s.reserve.run(ctx, s.conn, call{
		keys: []string{names.units(at), names.unitsFor(at, op.Room)},
		args: []string{
			strconv.FormatInt(op.Units, 10), strconv.FormatInt(op.Limit, 10),
			strconv.FormatInt(op.Window.Milliseconds(), 10), quarter,
		},
	})[0].Texts()
	if err != nil {
		return counted{err: err}
	}
	if len(answer) != 2 {
		return counted{err: errAnswer}
	}
	before, err := strconv.ParseInt(answer[0], 10, 64)
	if err != nil {
		return counted{err: fmt.Errorf("%w: %w", errAnswer, err)}
	}
	return counted{quarter: answer[1], before: before}
}
