package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// moving reports whether an answer says that the keys of a command are on two servers: a
// slot of a Redis Cluster moves. A command with one key is redirected to the right server,
// and works.
func moving(answer rueidis.RedisResult) bool {
	err, ok := rueidis.IsRedisErr(answer.Error())
	return ok && err.IsTryAgain()
}

// apartResult is the result of an op, by the op's index.
type apartResult struct {
	op int
	pinstore.Result
}

// swapApart performs some ops with commands of one key each. The comparison and the pin are
// atomic, as in Swap. The index comes first: an entry without a pin is harmless. The entry of
// the replaced pin stays, until Index removes it. The needs come last: until then, other
// callers read the pin without them.
func (s *Store) swapApart(ctx context.Context, l *link, ops []pinstore.Op, of []int) []apartResult {
	var enter, swaps []call
	for _, i := range of {
		op := ops[i]
		whole := s.swapCall(batch{i}, ops)
		swaps = append(swaps, call{
			[]string{s.keys.pin(op.Partition, op.Room)}, append([]string{"swap"}, whole.args...),
		})
		if set := textOf(op.Set.Incarnation); set != "" {
			ttl := strconv.FormatInt(op.TTL.Milliseconds(), 10)
			enter = append(enter,
				call{[]string{s.keys.rooms(op.Partition, set)}, []string{"enter", op.Room, ttl}},
				call{[]string{s.keys.incarnations(op.Partition)}, []string{"enter", set, ttl}})
		}
	}
	var failed error
	if len(enter) > 0 {
		for _, answer := range s.apart.run(ctx, l.plain, enter...) {
			if err := answer.Error(); err != nil {
				failed = err
			}
		}
	}
	results := make([]apartResult, len(of))
	for j, i := range of {
		results[j].op = i
		results[j].Err = storeError(fmt.Sprintf("room %.80q", ops[i].Room), failed)
	}
	if failed != nil {
		return results
	}
	for j, answer := range s.apart.run(ctx, l.pins, swaps...) {
		results[j].Result = s.apartAnswer(ctx, l, ops[of[j]], answer) //nolint:gosec // one answer for each of swaps
	}
	return results
}

// apartAnswer reads the answer about a pin, and reads or writes its needs.
func (s *Store) apartAnswer(ctx context.Context, l *link, op pinstore.Op, from rueidis.RedisResult) pinstore.Result {
	const fields = 4
	pin := s.keys.pin(op.Partition, op.Room)
	answer, err := from.ToArray()
	if err == nil && len(answer) != fields {
		err = errAnswer
	}
	if err != nil {
		return pinstore.Result{Err: storeError(fmt.Sprintf("room %.80q", op.Room), err)}
	}
	result, err := swapResult(answer, l.tracked())
	text, _ := answer[1].ToString()
	needs := s.keys.needs(op.Partition, op.Room)
	switch {
	case err != nil:
		result.Err = storeError(fmt.Sprintf("key %.200q", pin), err)
	case !hasNeeds(text):
	case result.Done:
		result.Pin.Needs = op.Set.Needs
		err := l.plain.Do(ctx, l.plain.B().Set().Key(needs).Value(op.Set.Needs).Px(op.TTL).Build()).Error()
		if err != nil { // the next refresh writes them
			result.Fresh = 0
		}
	default:
		result.Pin.Needs, _ = l.plain.Do(ctx, l.plain.B().Get().Key(needs).Build()).ToString()
	}
	return result
}
