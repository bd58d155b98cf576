//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A node whose rooms grow beyond its capacity moves some of them to the other nodes, until its load is below the low
// mark. No participant is without a connection, and no room moves twice.
func TestRebalance(t *testing.T) {
	t.Parallel()
	args := []string{"-capacity", "40", "-rebalance", "90"}
	try(t, plan{nodes: "abc", rooms: 9, subscribers: 1, args: func(string) []string { return args }}, overloaded)
}

func overloaded(tr *trial) {
	const capacity, low = 40, 32
	id := tr.farm.busiest(tr.ctx)
	before := tr.settled("all calls")
	tr.unbroken("overload", func() {
		grown := slices.DeleteFunc(slices.Clone(tr.rooms), func(room string) bool { return string(before[room].To) != id })
		began := tr.crowd.begin()
		for i := len(grown); i <= capacity; i++ { // each subscriber is a stream
			tr.must(tr.crowd.join(tr.ctx, grown[i%len(grown)], false))
		}
		full := time.Now()
		tr.until("a load below the low mark", func() error { return tr.below(low) })
		relieved := time.Since(full)
		after := tr.settled("overload")
		n := moved(before, after)
		tr.note("overload", n, tr.crowd.measured(began))
		tr.Logf("%d rooms of %s grew to %d streams of %d: below %d after %s", len(grown), id, capacity+1, capacity, low, relieved.Round(100*time.Millisecond))
		if n == 0 {
			tr.errorf("no room moved")
		}
		for room, home := range after {
			if was := before[room]; was.To != home.To && string(was.To) != id {
				tr.errorf("%s moved from %s, which was not overloaded, to %s", room, was.To, home.To)
			}
		}
		tr.healthy("overload", tr.crowd.measured(began))
	})
}

// below returns nil if no node carries more than a number of streams.
func (t *trial) below(most int64) error {
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
