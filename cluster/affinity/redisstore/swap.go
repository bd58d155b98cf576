package redisstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/roomname"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	// maxFresh is the maximum freshness of an answer if the server notifies of changes, in case a
	// notification is lost.
	maxFresh = 30 * time.Second

	// untrackedFresh is the freshness of an answer if the server does not notify.
	untrackedFresh = time.Second

	// maxOps is how many ops a run of the script can have. The script blocks the server for about 8 µs per
	// op.
	maxOps = 64
)

// The outcomes of an op.
const (
	outcomeDone    = 1
	outcomeGarbage = 2
)

// Swap implements pinstore.Store. Up to 64 ops share a command (in Redis Cluster, only ops of the same
// partition), and all commands share a round trip. An invalid op fails without affecting the others, and
// writes nothing.
func (s *Store) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	if len(ops) == 1 && ops[0].Limit > 0 {
		return []pinstore.Result{s.claim(ctx, ops[0])}
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
	answers, err := do(ctx, s, func(ctx context.Context, l *link) []pinstore.Result {
		results := make([]pinstore.Result, len(ops))
		s.swapOn(ctx, l, ops, valid, results)
		return results
	})
	for _, i := range valid {
		if err != nil {
			results[i].Err = storeError(fmt.Sprintf("room %.80q", ops[i].Room), err)
		} else {
			results[i] = answers[i]
		}
	}
	s.notifyOthers(ops, results)
	return results
}

// swapOn performs the ops with the indexes of, and sets their results.
func (s *Store) swapOn(ctx context.Context, l *link, ops []pinstore.Op, of []int, results []pinstore.Result) {
	one := l.one && !l.split.Load()
	if one && !slices.ContainsFunc(of, func(i int) bool { return !reads(&ops[i]) }) {
		s.readOn(ctx, l, ops, of, results)
		return
	}
	order := batches(ops, of, one)
	calls, watch := s.swapCalls(l, order, ops)
	answers, pins := s.swap.watch(ctx, l.pins, calls, watch)
	var refused []int
	for i, b := range order {
		switch {
		case moving(answers[i]):
			s.swapApart(ctx, l, b, ops, results)
		case scattered(answers[i]) && !onePartition(ops, b):
			refused = append(refused, b...)
		default:
			s.swapResults(l, answers[i], b, ops, results)
			if watch[i] != nil {
				s.compare(pins[i], answers[i], b, ops, results)
			}
		}
	}
	s.swapSplit(ctx, l, ops, refused, results)
}

// swapSplit performs the ops of commands that were refused because a proxy divides the keys.
func (s *Store) swapSplit(ctx context.Context, l *link, ops []pinstore.Op, refused []int, results []pinstore.Result) {
	if len(refused) > 0 {
		l.split.Store(true)
		s.swapOn(ctx, l, ops, refused, results)
	}
}

// scattered reports whether a server or a proxy has refused a command because its keys are in several slots.
func scattered(answer rueidis.RedisResult) bool {
	err, ok := rueidis.IsRedisErr(answer.Error())
	return ok && strings.HasPrefix(err.Error(), "CROSSSLOT")
}

func onePartition(ops []pinstore.Op, of batch) bool {
	return !slices.ContainsFunc(of, func(i int) bool { return ops[i].Partition != ops[of[0]].Partition })
}

// batch has the indexes of the ops of a run of the script.
type batch []int

// batches divides ops into batches, by partition unless together is set.
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

// swapCalls returns the runs of the script, and the pins that the connection must track after each.
func (s *Store) swapCalls(l *link, order []batch, ops []pinstore.Op) (calls []call, watch [][]string) {
	calls, watch = make([]call, len(order)), make([][]string, len(order))
	for i, b := range order {
		calls[i] = s.swapCall(b, ops)
		if l.one && l.tracked() {
			watch[i] = s.pinsOf(b, ops)
		}
	}
	return calls, watch
}

func (s *Store) swapCall(b batch, ops []pinstore.Op) call {
	const keysPerOp, argsPerOp = 4, 8
	c := call{
		keys: make([]string, 0, keysPerOp*len(b)),
		args: make([]string, 0, argsPerOp*len(b)),
	}
	for _, i := range b {
		op := &ops[i]
		standing, set := textOf(op.If.Incarnation), textOf(op.Set.Incarnation)
		c.keys = append(c.keys, s.keys.pin(op.Partition, op.Room))
		if standing != "" {
			c.keys = append(c.keys, s.keys.rooms(op.Partition, standing))
		}
		if set != "" {
			c.keys = append(c.keys, s.keys.rooms(op.Partition, set), s.keys.incarnations(op.Partition))
		}
		c.args = append(c.args,
			op.Room,
			standing, strconv.FormatUint(op.If.Epoch, 10),
			set, strconv.FormatUint(op.Set.Epoch, 10), strconv.Itoa(op.Set.Size),
			strconv.FormatInt(op.TTL.Milliseconds(), 10), op.Set.Needs)
	}
	return c
}

func (s *Store) pinsOf(b batch, ops []pinstore.Op) []string {
	pins := make([]string, len(b))
	for j, i := range b {
		pins[j] = s.keys.pin(ops[i].Partition, ops[i].Room)
	}
	return pins
}

const answersPerOp = 3

// swapResults reads the answer for batch b.
func (s *Store) swapResults(l *link, from rueidis.RedisResult, b batch, ops []pinstore.Op, results []pinstore.Result) {
	answer, err := from.ToArray()
	if err == nil && len(answer) != answersPerOp*len(b) {
		err = errAnswer
	}
	for j, i := range b {
		op := &ops[i]
		if err != nil {
			results[i].Err = storeError(fmt.Sprintf("room %.80q", op.Room), err)
			continue
		}
		result, err := swapResult(answer[answersPerOp*j:], l.tracked())
		if err != nil {
			result.Err = storeError(fmt.Sprintf("key %.200q", s.keys.pin(op.Partition, op.Room)), err)
		}
		results[i] = result
	}
}

// compare compares the pins that the connection read when it began to track them with the answers of the
// script. If another client has changed a pin in between, it counts as changed after its answer. Answers that
// are not tracked are fresh for as long as without notifications.
func (s *Store) compare(pins, from rueidis.RedisResult, b batch, ops []pinstore.Op, results []pinstore.Result) {
	since, err := pins.ToArray()
	answer, _ := from.ToArray()
	for j, i := range b {
		if results[i].Err != nil {
			continue
		}
		if err != nil || len(since) != len(b) {
			results[i].Fresh = min(results[i].Fresh, untrackedFresh)
			continue
		}
		was, _ := answer[answersPerOp*j+1].ToString()
		if is, _ := since[j].ToString(); is == was { // both are empty if there is no pin
			continue
		}
		results[i].Fresh = 0
		for _, u := range s.users() {
			u.changed(ops[i].Room)
		}
	}
}

var errAnswer = errors.New("unexpected form of the answer of a script")

func swapResult(answer []rueidis.RedisMessage, tracked bool) (pinstore.Result, error) {
	outcome, err1 := answer[0].AsInt64()
	text, err2 := answer[1].ToString()
	ttl, err3 := answer[2].AsInt64()
	if err := errors.Join(err1, err2, err3); err != nil {
		return pinstore.Result{}, err
	}
	if outcome == outcomeGarbage {
		return pinstore.Result{}, fmt.Errorf("foreign value %.80q: remove the key", text)
	}
	result, err := pinResult(text, ttl, tracked)
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
