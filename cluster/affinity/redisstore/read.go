package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// reads reports whether an op changes nothing.
func reads(op *pinstore.Op) bool {
	return op.If == (pinstore.Pin{}) && op.Set.Incarnation == (lease.Incarnation{})
}

// readOn performs ops that change nothing, for a store on one server, with plain commands, which cost the
// server a third of what the script costs.
func (s *Store) readOn(ctx context.Context, l *link, ops []pinstore.Op, of []int, results []pinstore.Result) {
	var refused []int
	var cmds []rueidis.Completed
	order := slices.Collect(chunks(of))
	for _, b := range order {
		cmds = s.readCommands(cmds, l, b, ops)
	}
	answers := send(ctx, l.pins, cmds)
	for _, b := range order {
		var caching error
		if l.tracked() {
			caching, answers = answers[0].Error(), answers[1:]
		}
		pins, ttls := answers[0], answers[1:1+len(b)]
		answers = answers[1+len(b):]
		if scattered(pins) {
			refused = append(refused, b...)
			continue
		}
		s.readResults(l.tracked() && caching == nil, b, ops, results, pins, ttls)
	}
	s.swapSplit(ctx, l, ops, refused, results)
}

// readCommands adds the commands for a batch. The connection tracks the pins from when it reads them, so the
// server notifies of later changes. After such a change the TTL may be that of the next pin.
func (s *Store) readCommands(cmds []rueidis.Completed, l *link, b batch, ops []pinstore.Op) []rueidis.Completed {
	build := l.pins.B()
	pins := s.pinsOf(b, ops)
	if l.tracked() {
		cmds = append(cmds, build.ClientCaching().Yes().Build())
	}
	cmds = append(cmds, build.Mget().Key(pins...).Build())
	for _, pin := range pins {
		cmds = append(cmds, build.Pttl().Key(pin).Build())
	}
	return cmds
}

// readResults reads the answers for batch b.
func (s *Store) readResults(
	tracked bool,
	b batch,
	ops []pinstore.Op,
	results []pinstore.Result,
	pins rueidis.RedisResult,
	ttls []rueidis.RedisResult,
) {
	texts, err := pins.ToArray()
	if err == nil && len(texts) != len(b) {
		err = errAnswer
	}
	for j, i := range b {
		if err != nil {
			results[i].Err = storeError(fmt.Sprintf("room %.80q", ops[i].Room), err)
			continue
		}
		text, _ := texts[j].ToString() // "" if there is no pin
		ttl, err := ttls[j].AsInt64()
		if err != nil {
			results[i].Err = storeError(fmt.Sprintf("room %.80q", ops[i].Room), err)
			continue
		}
		results[i], err = pinResult(text, ttl, tracked)
		if err != nil {
			results[i].Err = storeError(fmt.Sprintf("key %.200q", s.keys.pin(ops[i].Partition, ops[i].Room)), err)
			continue
		}
		results[i].Done = text == ""
	}
}

// pinResult returns the result for a pin with the given text and TTL in milliseconds.
func pinResult(text string, ttl int64, tracked bool) (pinstore.Result, error) {
	const expired, none = -2, -1
	if text == "" {
		return pinstore.Result{}, nil
	}
	pin, err := parsePin(text)
	if err != nil {
		return pinstore.Result{}, fmt.Errorf("foreign value %.80q: %w: remove the key", text, err)
	}
	fresh := untrackedFresh
	if tracked {
		fresh = maxFresh
	}
	switch ttl {
	case none: // the TTL was removed
	case expired:
		fresh = 0
	default:
		fresh = min(fresh, time.Duration(ttl)*time.Millisecond)
	}
	return pinstore.Result{Pin: pin, Fresh: fresh}, nil
}
