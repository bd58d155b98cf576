package redisstore

import (
	"context"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// swapApart performs the ops of batch b by running scripts that have only one key each, and sets the results
// of the ops. The store uses swapApart for a slot that is moving to another server. As in Swap, comparing and
// setting the pin is atomic. swapApart writes the entry in the index first, because an entry without a pin is
// harmless. The entry of the replaced pin remains until Index removes it.
func (s *Store) swapApart(ctx context.Context, names keys, b batch, ops []pinstore.Op, results []pinstore.Result) {
	var entries, swaps []call
	for _, i := range b {
		op := &ops[i]
		standing, set := textOf(op.If.Incarnation), textOf(op.Set.Incarnation)
		args := argsOf(op, standing, set)
		swaps = append(swaps, call{[]string{names.pin(op.Partition, op.Room)}, append([]string{s.news.channel, s.news.self}, args...)})
		if set != "" {
			room, partition, ttl := args[0], args[1], args[6]
			entries = append(entries,
				call{[]string{names.rooms(op.Partition, set)}, []string{room, partition, ttl}},
				call{[]string{names.incarnations(op.Partition)}, []string{set, "", ttl}})
		}
	}
	for _, reply := range s.enter.run(ctx, s.conn, entries...) {
		if reply.Err != nil {
			fail(ops, b, results, reply.Err)
			return
		}
	}
	for j, reply := range s.swap.run(ctx, s.conn, swaps...) {
		s.swapResults(names, reply, b[j:j+1], ops, results)
	}
}
