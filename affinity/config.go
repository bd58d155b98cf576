package affinity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Counter returns the number of participants of each room, in the order of rooms. A
// *presence.Tracker is a Counter.
type Counter interface {
	Counts(ctx context.Context, rooms []string) ([]int, error)
}

// Config is how a Resolver works. The zero value of every field is a sensible
// default. All nodes of a cluster should use the same, but for Log and Tracer.
type Config struct {
	// PinTTL is how long a pin lasts unless the node that hosts the room
	// refreshes it, which it does every PinTTL/3 while the room is hosted. It only
	// collects garbage. Default 1 h; at least 1 s.
	PinTTL time.Duration

	// Budget bounds what Resolve and Host wait for the store. After it they answer
	// from what is known here, marked Degraded. Default 150 ms.
	Budget time.Duration

	// Cost is the units of load that a room of that many participants costs its
	// node. It is called under a lock: it must be quick. Default FullMesh.
	Cost func(size int) int64

	// SoftCeiling is the percentage of a node's capacity up to which it is given
	// new rooms, as long as another one has headroom. Default 80. Rooms that grow
	// past it stay; see Resolver.Pressures.
	SoftCeiling int

	// HardCeiling is the percentage of a node's capacity above which it is given
	// no new room even if no other can take it: Resolve then fails with
	// ErrNoCapacity. Default 0: never refuse.
	HardCeiling int

	// ReportLoad makes the resolver tell the agent, as this node's load, what the
	// rooms that are hosted here cost. Leave it false in a program that measures
	// its load itself and calls Agent.SetLoad.
	ReportLoad bool

	// Settle is how long a claim keeps its cost reserved on its node at least, for
	// clients to connect and show in the load that the node reports. Default 5 s.
	Settle time.Duration

	// Counter tells the size of rooms that have to move because their node died.
	// Default: the size that the pin was last refreshed with.
	Counter Counter

	// MaxKnown bounds how many rooms are remembered here, at some 200 bytes each.
	// Default 100,000.
	MaxKnown int

	// Log receives the log. Default slog.Default().
	Log *slog.Logger

	// Tracer is told of what takes its time, call by call. Default: nobody.
	Tracer Tracer
}

// FullMesh is the cost of a room in which each of n participants receives the
// stream of each other one: n·(n−1) forwarded streams.
func FullMesh(n int) int64 { return int64(n) * int64(n-1) }

// WithDefaults returns c with every zero field replaced by its default.
func (c Config) WithDefaults() Config {
	c.PinTTL = cmp.Or(c.PinTTL, time.Hour)
	c.Budget = cmp.Or(c.Budget, 150*time.Millisecond)
	c.SoftCeiling = cmp.Or(c.SoftCeiling, 80)
	c.Settle = cmp.Or(c.Settle, 5*time.Second)
	c.MaxKnown = cmp.Or(c.MaxKnown, 100_000)
	if c.Cost == nil {
		c.Cost = FullMesh
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Validate reports everything that is wrong with c, after defaults, joined; or
// nil. Start calls it.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("affinity: "+format, args...))
		}
	}
	check(c.PinTTL >= time.Second, "PinTTL is %v; it must be at least 1s", c.PinTTL)
	check(c.Budget >= time.Millisecond, "Budget is %v; it must be at least 1ms", c.Budget)
	check(c.SoftCeiling > 0, "SoftCeiling is %d; it must be a percentage above 0", c.SoftCeiling)
	check(c.HardCeiling == 0 || c.HardCeiling >= c.SoftCeiling,
		"HardCeiling (%d %%) must not be below SoftCeiling (%d %%)", c.HardCeiling, c.SoftCeiling)
	check(c.Settle > 0, "Settle is %v; it must not be negative", c.Settle)
	check(c.MaxKnown > 0, "MaxKnown is %d; it must not be negative", c.MaxKnown)
	return errors.Join(faults...)
}
