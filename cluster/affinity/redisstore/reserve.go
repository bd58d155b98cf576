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
)

// counted is the answer of the script reserve.lua.
type counted struct {
	quarter string // where the units were counted; empty: they would exceed the limit
	before  int64
	err     error
}

// claim performs an op with a limit. The node's units are in a different slot than the room's pin, so one
// script cannot update both. Therefore, claim runs two scripts concurrently, which takes one round trip. If
// the limit forbids the pin, claim undoes the pin with a compare-and-set before it returns.
func (s *Store) claim(ctx context.Context, op pinstore.Op) pinstore.Result {
	if err := check(&op); err != nil {
		return pinstore.Result{Err: storeError(fmt.Sprintf("room %.80q", op.Room), err)}
	}
	var units counted
	var side sync.WaitGroup
	side.Go(func() { units = s.count(ctx, op, "") })
	result := s.swapAll(ctx, []pinstore.Op{op})[0]
	side.Wait()
	switch {
	case units.err != nil: // the server of the node's units is down: continue without a limit
		return result
	case !result.Done && units.quarter != "" && unwritten(result.Err):
		s.uncount(op, units.quarter)
	case result.Done && units.quarter == "":
		return s.undo(ctx, op, result, units)
	}
	return result
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

// undo restores the pin to its state before the claim.
func (s *Store) undo(ctx context.Context, op pinstore.Op, claimed pinstore.Result, units counted) pinstore.Result {
	back := pinstore.Op{Partition: op.Partition, Room: op.Room, If: claimed.Pin, Set: op.If, TTL: op.TTL}
	undone := s.swapAll(ctx, []pinstore.Op{back})[0]
	switch {
	case undone.Err != nil:
		return undone
	case !undone.Done: // another caller has moved the room in the meantime
		return undone
	}
	return pinstore.Result{Pin: undone.Pin, Full: true, Counted: units.before}
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
