package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	// maxFresh bounds the freshness of an answer when the server notifies of changes, in
	// case a notification is lost.
	maxFresh = 30 * time.Second

	// untrackedFresh is the freshness of an answer when the server does not notify.
	untrackedFresh = time.Second

	// maxOps bounds the ops of one run of the script: it blocks the server for some 8 µs
	// an op.
	maxOps = 64
)

// The outcomes of an op.
const (
	outcomeDone    = 1
	outcomeGarbage = 2
)

// Swap implements affinity.Store. Up to 64 ops of one partition share a command, and all
// commands share a round trip. An invalid op fails alone, and writes nothing.
func (s *Store) Swap(ctx context.Context, ops ...affinity.Op) []affinity.Result {
	results := make([]affinity.Result, len(ops))
	batches := make(map[placement.Partition][]int, min(len(ops), 64)) // → indexes of ops
	var order []batch
	for i, op := range ops {
		if err := check(op); err != nil {
			results[i].Err = fault(fmt.Sprintf("room %.80q", op.Room), err)
			continue
		}
		of := append(batches[op.Partition], i)
		if len(of) == maxOps {
			order = append(order, batch{op.Partition, of})
			of = nil
		}
		batches[op.Partition] = of
	}
	for p, of := range batches {
		if len(of) > 0 {
			order = append(order, batch{p, of})
		}
	}
	if len(order) == 0 {
		return results
	}
	calls := make([]call, len(order))
	for i, b := range order {
		calls[i] = s.swapCall(b, ops)
	}
	answers, err := do(ctx, s, func(ctx context.Context, l *link) swapped {
		return swapped{s.swap.run(ctx, l.pins, calls...), l.plain != l.pins}
	})
	for i, b := range order {
		if err != nil {
			for _, op := range b.ops {
				results[op].Err = fault(fmt.Sprintf("room %.80q", ops[op].Room), err)
			}
			continue
		}
		s.swapResults(answers, i, b, ops, results)
	}
	s.notifyOthers(ops, results)
	return results
}

// batch is some ops of one partition, by index.
type batch struct {
	partition placement.Partition
	ops       []int
}

// swapped holds the answers of the script.
type swapped struct {
	answers []rueidis.RedisResult
	tracked bool
}

func (s *Store) swapCall(b batch, ops []affinity.Op) call {
	const keysPerOp, argsPerOp = 3, 7
	c := call{
		keys: make([]string, 0, 1+keysPerOp*len(b.ops)),
		args: make([]string, 0, argsPerOp*len(b.ops)),
	}
	// A pin replaces a key that is not needed. Redis 7.0 tracks all declared keys, and a
	// read should declare as few as possible.
	c.keys = append(c.keys, s.keys.pin(b.partition, ops[b.ops[0]].Room))
	for _, i := range b.ops {
		op := ops[i]
		standing, set := textOf(op.If.Incarnation), textOf(op.Set.Incarnation)
		pin := s.keys.pin(b.partition, op.Room)
		index := func(at string) string {
			if at == "" {
				return pin
			}
			return s.keys.rooms(b.partition, at)
		}
		if set != "" {
			c.keys[0] = s.keys.incarnations(b.partition)
		}
		c.keys = append(c.keys, pin, index(standing), index(set))
		c.args = append(c.args,
			op.Room,
			standing, strconv.FormatUint(op.If.Epoch, 10),
			set, strconv.FormatUint(op.Set.Epoch, 10), strconv.Itoa(op.Set.Size),
			strconv.FormatInt(op.TTL.Milliseconds(), 10))
	}
	return c
}

// swapResults reads the i-th answer, for batch b.
func (s *Store) swapResults(from swapped, i int, b batch, ops []affinity.Op, results []affinity.Result) {
	answer, err := from.answers[i].ToArray()
	const perOp = 3
	if err == nil && len(answer) != perOp*len(b.ops) {
		err = errAnswer
	}
	for j, op := range b.ops {
		room := ops[op].Room
		if err != nil {
			results[op].Err = fault(fmt.Sprintf("room %.80q", room), err)
			continue
		}
		result, err := swapResult(answer[perOp*j:], from.tracked)
		if err != nil {
			result.Err = fault(fmt.Sprintf("key %.200q", s.keys.pin(b.partition, room)), err)
		}
		results[op] = result
	}
}

var errAnswer = errors.New("unexpected form of the answer of a script")

func swapResult(answer []rueidis.RedisMessage, tracked bool) (affinity.Result, error) {
	outcome, err1 := answer[0].AsInt64()
	text, err2 := answer[1].ToString()
	ttl, err3 := answer[2].AsInt64()
	if err := errors.Join(err1, err2, err3); err != nil {
		return affinity.Result{}, err
	}
	result := affinity.Result{Done: outcome == outcomeDone}
	if outcome == outcomeGarbage {
		return result, fmt.Errorf("foreign value %.80q: remove the key", text)
	}
	if text == "" {
		return result, nil
	}
	pin, err := parsePin(text)
	if err != nil {
		return affinity.Result{}, fmt.Errorf("foreign value %.80q: %w: remove the key", text, err)
	}
	result.Pin = pin
	result.Fresh = untrackedFresh
	if tracked {
		result.Fresh = maxFresh
	}
	if ttl >= 0 { // otherwise the TTL was removed
		result.Fresh = min(result.Fresh, time.Duration(ttl)*time.Millisecond)
	}
	return result, nil
}

var (
	errTTL   = errors.New("a pin needs a TTL of a millisecond or more")
	errEpoch = errors.New("an epoch must be below 2^53")
	errSize  = errors.New("a size must be from 0 to 1,000,000")
)

// check rejects an op with a key or value that other nodes could not read.
func check(op affinity.Op) error {
	if err := affinity.CheckName(op.Room); err != nil {
		return err
	}
	if err := errors.Join(checkIncarnation(op.If.Incarnation), checkIncarnation(op.Set.Incarnation)); err != nil {
		return err
	}
	switch {
	case op.If.Epoch >= maxEpoch-1, op.Set.Epoch >= maxEpoch-1:
		return errEpoch
	case op.Set.Size < 0 || op.Set.Size > affinity.MaxSize:
		return errSize
	case op.Set.Incarnation != (lease.Incarnation{}) && op.TTL < time.Millisecond:
		return errTTL
	}
	return nil
}
