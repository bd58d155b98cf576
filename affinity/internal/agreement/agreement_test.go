package agreement

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

func agreementOn(store pinstore.Store, partitions string) *Agreement {
	return &Agreement{
		Store: store, Log: slog.New(slog.DiscardHandler), TTL: time.Second,
		Settings: pinstore.Settings{Cluster: "c", Values: []pinstore.Setting{{Name: "partitions", Value: partitions}}},
		Explain:  func(pinstore.Difference) string { return "" },
	}
}

// A node that had agreed wins against nodes that came while the store did not hear it, unless its own
// lease has ended by then: they had to take it for dead.
func TestEarlierWins(t *testing.T) { // S6.12
	self, other := lease.Incarnation{Node: "a", Number: 1}, lease.Incarnation{Node: "b", Number: 1}
	for name, c := range map[string]struct {
		again  lease.Incarnation
		fences uint64
		gap    bool // not live in between
		brief  bool // and live soon, while the store is away
		wins   bool
	}{
		"store was away":         {again: self, wins: true},
		"lease has ended":        {again: self, fences: 1},
		"was not live":           {again: self, gap: true},
		"live again, store away": {again: self, gap: true, brief: true, wins: true},
		"next incarnation":       {again: lease.Incarnation{Node: "a", Number: 2}},
		"lease, store away":      {again: self, fences: 1, gap: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := pinstore.NewMemory()
				first, late := agreementOn(store, "64"), agreementOn(store, "128")
				check := func(a *Agreement, self lease.Incarnation, fences uint64) bool {
					t.Helper()
					if err := a.Check(t.Context(), self, fences); err != nil {
						t.Fatal(err)
					}
					if err := a.Refused(); err != nil && !errors.Is(err, ErrSettings) {
						t.Fatal(err)
					}
					return a.Refused() == nil
				}
				if !check(first, self, 0) || check(late, other, 0) {
					t.Fatal("the first to come is not the only one")
				}
				if c.gap {
					check(first, lease.Incarnation{}, 0)
				}
				if c.brief {
					ended, cancel := context.WithCancel(t.Context())
					cancel()
					if first.Check(ended, self, 0) == nil {
						t.Fatal("the store is not away")
					}
				}
				time.Sleep(2 * time.Second)
				if !check(late, other, 0) {
					t.Fatal(late.Refused())
				}
				if check(first, c.again, c.fences) != c.wins || check(late, other, 0) == c.wins {
					t.Errorf("wins: %v; want %v", first.Refused(), c.wins)
				}
			})
		})
	}
}
