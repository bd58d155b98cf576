//go:build linux

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A node whose rooms grow beyond its capacity moves some of them to the other nodes, until no node is overloaded. No
// participant is without a connection, and no room moves twice.
func TestRebalance(t *testing.T) {
	t.Parallel()
	args := []string{"-capacity", "40", "-rebalance", "90"}
	try(t, plan{nodes: "abc", rooms: 9, subscribers: 1, args: func(string) []string { return args }}, overloaded)
}

func overloaded(tr *trial) {
	const capacity, high = 40, 36 // streams
	id := tr.farm.busiest(tr.ctx)
	before := tr.settled("all calls")
	tr.unbroken("overload", func() {
		grown := slices.DeleteFunc(slices.Clone(tr.rooms), func(room string) bool { return string(before[room].To) != id })
		began := tr.crowd.begin()
		for i := len(grown); i <= capacity; i++ { // each subscriber is a stream
			tr.must(tr.crowd.join(tr.ctx, grown[i%len(grown)], false))
		}
		full := time.Now()
		// A slow machine relieves the node while participants still join, and they may bring its load back to the high mark.
		tr.until("relief", func() error {
			if moved(before, tr.homes()) == 0 {
				return errors.New("no room has moved")
			}
			return tr.carries(high)
		})
		relieved := time.Since(full)
		after := tr.settled("overload")
		n := moved(before, after)
		tr.note("overload", n, tr.crowd.measured(began))
		tr.Logf("%d rooms of %s grew to %d streams of %d: at most %d after %s", len(grown), id, capacity+1, capacity, high, relieved.Round(100*time.Millisecond))
		for room, home := range after {
			if was := before[room]; was.To != home.To && string(was.To) != id {
				tr.errorf("%s moved from %s, which was not overloaded, to %s", room, was.To, home.To)
			}
		}
		tr.healthy("overload", tr.crowd.measured(began))
	})
}

// carries returns nil if no node carries more than a number of streams.
func (t *trial) carries(most int64) error {
	var over []string
	for _, id := range t.farm.ids() {
		s, err := t.farm.stats(t.ctx, id)
		if err != nil {
			return err
		}
		if s.Load > most {
			over = append(over, fmt.Sprintf("%s carries %d streams", id, s.Load))
		}
	}
	if len(over) > 0 {
		return fmt.Errorf("%s", strings.Join(over, ", "))
	}
	return nil
}
