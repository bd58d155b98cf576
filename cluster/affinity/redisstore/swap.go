package redisstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
	"github.com/roost-cluster/roost/internal/roomname"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	// maxFresh is the maximum freshness of an answer while the subscription works. maxFresh limits how long a
	// lost message can cause a stale answer.
	maxFresh = 30 * time.Second

	// unnotifiedFresh is the freshness of an answer while the subscription does not work.
	unnotifiedFresh = time.Second

	// maxOps is the maximum number of ops in one run of the script. The script blocks the server for about 5
	// µs per op.
	maxOps = 64
)

// Each op has one of these outcomes.
const (
	outcomeDone    = 1
	outcomeGarbage = 2
	outcomeError   = 3
)

// Swap implements pinstore.Store. Up to 64 ops share a command, and all commands share a round trip. In a
// Redis Cluster, only ops of the same partition share a command. An invalid op fails without writing anything
// and does not affect the other ops.
func (s *Store) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	if len(ops) == 1 && ops[0].Limit > 0 {
		return []pinstore.Result{s.limited(ctx, ops[0])}
	}
	return s.swapAll(ctx, ops)
}

func (s *Store) swapAll(ctx context.Context, ops []pinstore.Op) []pinstore.Result {
	results := make([]pinstore.Result, len(ops))
	valid := make([]int, 0, len(ops))
	for i := range ops {
		if err := check(&ops[i]); err != nil {
			results[i].Err = storeError(fmt.Sprintf("room %.80q", ops[i].Room), err)
		} else {
			valid = append(valid, i)
		}
	}
	if len(valid) == 0 {
		return results
	}
	asked := s.news.alive()
	s.swapOn(ctx, ops, valid, results)
	if asked == nil || s.news.alive() != asked { // a change may go unnoticed
		for i := range results {
			results[i].Fresh = min(results[i].Fresh, unnotifiedFresh)
		}
	}
	s.notifyOthers(ops, results)
	return results
}

// swapOn performs the ops whose indexes are in of, and sets their results.
func (s *Store) swapOn(ctx context.Context, ops []pinstore.Op, of []int, results []pinstore.Result) {
	names, err := s.keys()
	if err != nil {
		fail(ops, of, results, err)
		return
	}
	order := batches(ops, of, !names.clustered)
	if !slices.ContainsFunc(of, func(i int) bool { return !reads(&ops[i]) }) {
		s.readOn(ctx, names, ops, order, results)
		return
	}
	calls := make([]call, len(order))
	for i, b := range order {
		calls[i] = s.swapCall(names, b, ops)
	}
	var refused []int
	for i, reply := range s.swap.run(ctx, s.conn, calls...) {
		b := order[i]
		switch {
		case moving(reply.Err):
			s.swapApart(ctx, names, b, ops, results)
		case scattered(reply.Err) && !names.clustered:
			refused = append(refused, b...)
		default:
			s.swapResults(names, reply, b, ops, results)
		}
	}
	s.swapSplit(ctx, ops, refused, results)
}

// swapSplit performs the ops of commands that were refused because a proxy divides the keys.
func (s *Store) swapSplit(ctx context.Context, ops []pinstore.Op, refused []int, results []pinstore.Result) {
	if len(refused) > 0 {
		s.split.Store(true)
		s.swapOn(ctx, ops, refused, results)
	}
}

// fail sets err as the error of the ops whose indexes are in of.
func fail(ops []pinstore.Op, of []int, results []pinstore.Result, err error) {
	for _, i := range of {
		results[i] = pinstore.Result{Err: storeError(fmt.Sprintf("room %.80q", ops[i].Room), err)}
	}
}

// batch contains the indexes of the ops in one run of the script.
type batch []int

// batches divides ops into batches. Each batch has ops of only one partition, unless together is true.
func batches(ops []pinstore.Op, of []int, together bool) []batch {
	if together || len(of) == 1 {
		return slices.Collect(chunks(of))
	}
	byPartition := make(map[placement.Partition][]int)
	for _, i := range of {
		p := ops[i].Partition
		byPartition[p] = append(byPartition[p], i)
	}
	var order []batch
	for _, of := range byPartition {
		order = slices.AppendSeq(order, chunks(of))
	}
	return order
}

func chunks(of []int) iter.Seq[batch] {
	return func(yield func(batch) bool) {
		for some := range slices.Chunk(of, maxOps) {
			if !yield(some) {
				return
			}
		}
	}
}

// swapCall returns the call of the script for a batch.
func (s *Store) swapCall(names keys, b batch, ops []pinstore.Op) call {
	const keysPerOp, argsPerOp = 4, 8
	c := call{
		keys: make([]string, 0, keysPerOp*len(b)),
		args: make([]string, 0, 2+argsPerOp*len(b)),
	}
	c.args = append(c.args, s.news.channel, s.news.self)
	for _, i := range b {
		op := &ops[i]
		standing, set := textOf(op.If.Incarnation), textOf(op.Set.Incarnation)
		c.keys = append(c.keys, names.pin(op.Partition, op.Room))
		if standing != "" {
			c.keys = append(c.keys, names.rooms(op.Partition, standing))
		}
		if set != "" {
			c.keys = append(c.keys, names.rooms(op.Partition, set), names.incarnations(op.Partition))
		}
		c.args = append(c.args, argsOf(op, standing, set)...)
	}
	return c
}

// argsOf returns the arguments of an op for swap.lua.
func argsOf(op *pinstore.Op, standing, set string) []string {
	return []string{
		op.Room, strconv.FormatUint(uint64(op.Partition), 10),
		standing, strconv.FormatUint(op.If.Epoch, 10),
		set, strconv.FormatUint(op.Set.Epoch, 10),
		strconv.FormatInt(op.TTL.Milliseconds(), 10), strconv.Itoa(op.Set.Size) + "|" + op.Set.Needs,
	}
}

const answersPerOp = 3

// swapResults parses the answer for batch b.
func (s *Store) swapResults(names keys, reply redisconn.Reply, b batch, ops []pinstore.Op, results []pinstore.Result) {
	answer, err := reply.List()
	if err == nil && len(answer) != answersPerOp*len(b) {
		err = errAnswer
	}
	if err != nil {
		fail(ops, b, results, err)
		return
	}
	for j, i := range b {
		result, err := swapResult(answer[answersPerOp*j:])
		if err != nil {
			result.Err = storeError(fmt.Sprintf("key %.200q", names.pin(ops[i].Partition, ops[i].Room)), err)
		}
		results[i] = result
	}
}

func swapResult(answer []any) (pinstore.Result, error) {
	outcome, ok1 := answer[0].(int64)
	text, ok2 := answer[1].(string)
	ttl, ok3 := answer[2].(int64)
	if !ok1 || !ok2 || !ok3 {
		return pinstore.Result{}, errAnswer
	}
	if outcome == outcomeError {
		return pinstore.Result{}, redisconn.Error(text)
	}
	if outcome == outcomeGarbage {
		return pinstore.Result{}, fmt.Errorf("foreign value %.80q: remove the key", text)
	}
	result, err := pinResult(text, ttl)
	result.Done = err == nil && outcome == outcomeDone
	return result, err
}

var (
	errTTL   = errors.New("a pin needs a TTL of a millisecond or more")
	errEpoch = errors.New("an epoch must be below 2^53")
	errSize  = errors.New("a size must be from 0 to 1,000,000")
	errNeeds = errors.New("needs must be 8 KiB or less")
)

// check rejects an op with a key or value that other nodes could not read.
func check(op *pinstore.Op) error {
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
	case len(op.Set.Needs) > maxNeeds:
		return errNeeds
	case op.Set.Incarnation != (lease.Incarnation{}) && op.TTL < time.Millisecond:
		return errTTL
	}
	return nil
}
