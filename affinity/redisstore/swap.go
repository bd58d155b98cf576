package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/roomname"
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

// Swap implements pinstore.Store. Up to 64 ops of one partition share a command, and all
// commands share a round trip. An invalid op fails alone, and writes nothing.
func (s *Store) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	if len(ops) == 1 && ops[0].Limit > 0 {
		return []pinstore.Result{s.claim(ctx, ops[0])}
	}
	return s.swapAll(ctx, ops)
}

func (s *Store) swapAll(ctx context.Context, ops []pinstore.Op) []pinstore.Result {
	results := make([]pinstore.Result, len(ops))
	order := batches(ops, results)
	if len(order) == 0 {
		return results
	}
	calls := make([]call, len(order))
	for i, b := range order {
		calls[i] = s.swapCall(b, ops)
	}
	answers, err := do(ctx, s, func(ctx context.Context, l *link) swapped {
		got := swapped{s.swap.run(ctx, l.pins, calls...), l.plain != l.pins, nil}
		for i, b := range order {
			if moving(got.answers[i]) {
				got.apart = append(got.apart, s.swapApart(ctx, l, ops, b.ops)...)
			}
		}
		return got
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
	for _, r := range answers.apart {
		results[r.op] = r.Result
	}
	s.notifyOthers(ops, results)
	return results
}

// batches returns the valid ops, by partition. The others fail.
func batches(ops []pinstore.Op, results []pinstore.Result) (order []batch) {
	if len(ops) == 1 && check(ops[0]) == nil {
		return []batch{{ops[0].Partition, []int{0}}}
	}
	batches := make(map[placement.Partition][]int, min(len(ops), 64)) // → indexes of ops
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
	return order
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
	apart   []apartResult // of ops whose keys are on two servers
}

func (s *Store) swapCall(b batch, ops []pinstore.Op) call {
	const keysPerOp, argsPerOp = 4, 8
	c := call{
		keys: make([]string, 0, 1+keysPerOp*len(b.ops)),
		args: make([]string, 0, argsPerOp*len(b.ops)),
	}
	// Redis 7.0 tracks all declared keys, so there are as few as possible.
	sets := false
	for _, i := range b.ops {
		op := ops[i]
		standing, set := textOf(op.If.Incarnation), textOf(op.Set.Incarnation)
		c.keys = append(c.keys, s.keys.pin(b.partition, op.Room), s.keys.needs(b.partition, op.Room))
		if standing != "" {
			c.keys = append(c.keys, s.keys.rooms(b.partition, standing))
		}
		if set != "" {
			c.keys = append(c.keys, s.keys.rooms(b.partition, set))
			sets = true
		}
		c.args = append(c.args,
			op.Room,
			standing, strconv.FormatUint(op.If.Epoch, 10),
			set, strconv.FormatUint(op.Set.Epoch, 10), strconv.Itoa(op.Set.Size),
			strconv.FormatInt(op.TTL.Milliseconds(), 10), op.Set.Needs)
	}
	if sets {
		c.keys = append(c.keys, s.keys.incarnations(b.partition))
	}
	return c
}

// swapResults reads the i-th answer, for batch b.
func (s *Store) swapResults(from swapped, i int, b batch, ops []pinstore.Op, results []pinstore.Result) {
	answer, err := from.answers[i].ToArray()
	const perOp = 4
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

func swapResult(answer []rueidis.RedisMessage, tracked bool) (pinstore.Result, error) {
	outcome, err1 := answer[0].AsInt64()
	text, err2 := answer[1].ToString()
	ttl, err3 := answer[2].AsInt64()
	needs, err4 := answer[3].ToString()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return pinstore.Result{}, err
	}
	result := pinstore.Result{Done: outcome == outcomeDone}
	if outcome == outcomeGarbage {
		return result, fmt.Errorf("foreign value %.80q: remove the key", text)
	}
	if text == "" {
		return result, nil
	}
	pin, err := parsePin(text)
	if err != nil {
		return pinstore.Result{}, fmt.Errorf("foreign value %.80q: %w: remove the key", text, err)
	}
	result.Pin, result.Pin.Needs = pin, needs
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
	errNeeds = errors.New("needs must be 8 KiB or less")
)

// check rejects an op with a key or value that other nodes could not read.
func check(op pinstore.Op) error {
	if err := roomname.Check(op.Room); err != nil {
		return fmt.Errorf("invalid name: %w", err)
	}
	if err := errors.Join(checkIncarnation(op.If.Incarnation), checkIncarnation(op.Set.Incarnation)); err != nil {
		return err
	}
	switch {
	case op.If.Epoch >= maxEpoch-1, op.Set.Epoch >= maxEpoch-1:
		return errEpoch
	case op.Set.Size < 0 || op.Set.Size > pinstore.MaxSize:
		return errSize
	case len(op.Set.Needs) > 8<<10:
		return errNeeds
	case op.Set.Incarnation != (lease.Incarnation{}) && op.TTL < time.Millisecond:
		return errTTL
	}
	return nil
}
