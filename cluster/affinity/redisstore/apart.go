package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// moving reports whether an answer says that the keys of a command are on two servers, because a slot of a
// Redis Cluster moves. A command with only one key still works, because it is redirected to the right server.
func moving(answer rueidis.RedisResult) bool {
	err, ok := rueidis.IsRedisErr(answer.Error())
	return ok && err.IsTryAgain()
}

// swapApart performs the ops of batch b with commands of one key each, and sets their results. Comparing and
// setting the pin is atomic, as in Swap. The entry in the index is written first, because an entry without a
// pin is harmless. The entry of the replaced pin stays until Index removes it.
func (s *Store) swapApart(ctx context.Context, l *link, b batch, ops []pinstore.Op, results []pinstore.Result) {
	var enter, swaps []call
	for _, i := range b {
		op := &ops[i]
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
	if failed != nil {
		for _, i := range b {
			results[i].Err = storeError(fmt.Sprintf("room %.80q", ops[i].Room), failed)
		}
		return
	}
	for j, answer := range s.apart.run(ctx, l.pins, swaps...) {
		s.swapResults(l, answer, b[j:j+1], ops, results)
	}
}
