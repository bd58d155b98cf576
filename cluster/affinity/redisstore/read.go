package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
	"github.com/roost-cluster/roost/lease"
)

// reads reports whether an op changes nothing.
func reads(op *pinstore.Op) bool {
	return op.If == (pinstore.Pin{}) && op.Set.Incarnation == (lease.Incarnation{})
}

// readOn performs ops that change nothing. readOn uses plain commands, which cost the server a third of what
// the script costs. If a pin changes between the commands, the returned TTL may be the TTL of the next pin.
func (s *Store) readOn(ctx context.Context, names keys, ops []pinstore.Op, order []batch, results []pinstore.Result) {
	var commands []redisconn.Command
	for _, b := range order {
		pins := make([]string, len(b))
		for j, i := range b {
			pins[j] = names.pin(ops[i].Partition, ops[i].Room)
		}
		commands = append(commands, redisconn.Command{Head: []string{"MGET"}, Keys: pins})
		for j := range pins {
			commands = append(commands, redisconn.Command{Head: []string{"PTTL"}, Keys: pins[j : j+1]})
		}
	}
	var refused []int
	replies := s.conn.Do(ctx, commands...)
	for _, b := range order {
		pins, ttls := replies[0], replies[1:1+len(b)]
		replies = replies[1+len(b):]
		switch {
		case moving(pins.Err):
			s.swapApart(ctx, names, b, ops, results)
		case scattered(pins.Err) && !names.clustered:
			refused = append(refused, b...)
		default:
			readResults(names, b, ops, results, pins, ttls)
		}
	}
	s.swapSplit(ctx, ops, refused, results)
}

// readResults parses the answers for batch b.
func readResults(names keys, b batch, ops []pinstore.Op, results []pinstore.Result, pins redisconn.Reply, ttls []redisconn.Reply) {
	texts, err := pins.Texts() // "" if there is no pin
	if err == nil && len(texts) != len(b) {
		err = errAnswer
	}
	if err != nil {
		fail(ops, b, results, err)
		return
	}
	for j, i := range b {
		ttl, err := ttls[j].Int()
		if err != nil {
			results[i].Err = storeError(fmt.Sprintf("room %.80q", ops[i].Room), err)
			continue
		}
		results[i], err = pinResult(texts[j], ttl)
		if err != nil {
			results[i].Err = storeError(fmt.Sprintf("key %.200q", names.pin(ops[i].Partition, ops[i].Room)), err)
			continue
		}
		results[i].Done = texts[j] == ""
	}
}

// pinResult returns the result for a pin with the given value and TTL in milliseconds.
func pinResult(text string, ttl int64) (pinstore.Result, error) {
	const expired, none = -2, -1
	if text == "" {
		return pinstore.Result{}, nil
	}
	pin, err := parsePin(text)
	if err != nil {
		return pinstore.Result{}, fmt.Errorf("value %.80q was not written by roost: %w: remove the key", text, err)
	}
	fresh := maxFresh
	switch ttl {
	case none: // the key has lost its TTL
	case expired:
		fresh = 0
	default:
		fresh = min(fresh, time.Duration(ttl)*time.Millisecond)
	}
	return pinstore.Result{Pin: pin, Fresh: fresh}, nil
}
