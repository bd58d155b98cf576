package affinity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/roost-cluster/roost/cluster"
)

// Counter returns the number of participants of each room, in the same order as rooms. A *presence.Tracker is
// a Counter.
type Counter interface {
	Counts(ctx context.Context, rooms []string) ([]int, error)
}

// Config configures a Resolver. The zero value of each field means its default. All nodes of a cluster should
// use the same values, except for Log and Tracer, and must use the same Cost and MinCost.
type Config struct {
	// PinTTL is how long a pin lasts without a refresh. The host of a room refreshes its pin every PinTTL/3,
	// so only unused pins expire. Default 1 h; at least 1 s.
	PinTTL time.Duration

	// Budget is the maximum time that Resolve and Host wait for the store. After that, they answer from what
	// this node knows, marked Degraded. Budget should be at least three round trips to the store. If it is
	// less, Stats and the log report it. Use the same value in rueidisconn.Options. Default: BudgetOf the
	// agent's network, which is 150 ms (WAN 1 s).
	Budget time.Duration

	// Cost returns the units of load that a room costs its node, unless the demand has Units. Prefer and
	// Require are not set in d. Cost must be quick, must only depend on its argument, and must not call the
	// Resolver, which may hold a lock. A node with a different Cost or MinCost fails with ErrSettings. Nodes
	// detect a difference by comparing the costs of a few sample demands with up to 1,000 participants.
	// Default Demand.Streams.
	Cost func(d Demand) int64

	// AnyCost allows this node to run together with nodes that have another Cost or MinCost. Set it for a
	// rolling deploy that changes Cost, and remove it with the next deploy. Until then, nodes may disagree
	// about how full a node is.
	AnyCost bool

	// MinCost is the minimum cost of a room in units. Without it, any number of rooms that cost nothing would
	// fit on a node. Default 1.
	MinCost int64

	// Selector reports whether a room may go to a member, for your own rules in addition to Demand.Require.
	// Selector also applies when rooms of a dead node are failed over. Selector must only depend on its
	// arguments, and must be quick, because it runs for each member before each claim. Default: every member.
	Selector func(room string, d Demand, m *cluster.Member) bool

	// SoftCeiling is the percentage of a node's capacity up to which the node gets new rooms. The node only
	// gets more rooms if no other node has headroom. Rooms that grow past it only move with
	// Rebalance. See also Resolver.Pressures. Default 80.
	SoftCeiling int

	// HardCeiling is the percentage of a node's capacity above which the node gets no new rooms. If every
	// node would exceed it, Resolve fails with ErrNoCapacity. For a new room, the ceiling includes the rooms
	// that all instances have placed. For a room that fails over or is moved, it only includes the load that
	// the deciding node knows. Rooms that grow are only limited with LimitGrowth. Default 0: no
	// limit.
	HardCeiling int

	// StrictCeiling makes the first join of a room fail with ErrStore while the store does not answer,
	// because HardCeiling cannot be checked then. Joins of known rooms still succeed, and rooms still fail
	// over. Without StrictCeiling, a first join is Degraded, and any number of new rooms may be placed on a
	// node. StrictCeiling requires a HardCeiling. Default false.
	StrictCeiling bool

	// LimitGrowth applies HardCeiling to rooms that grow, too. A participant whose join would bring this node
	// above its hard ceiling gets an [OutgrownError] from Host or Serve, which names a node for a relay. Joins
	// that do not raise the cost of a room always succeed, and so do Touch and Restate. LimitGrowth needs a
	// HardCeiling. Default false: hosted rooms grow without a limit.
	LimitGrowth bool

	// Rebalance is the percentage of this node's capacity above which the node moves rooms away, one after the
	// other, until its load is not above SoftCeiling. A room goes to the least loaded node that stays below its
	// own SoftCeiling, and then stays there for at least ten minutes. The node moves as few rooms as possible,
	// so it prefers large rooms. Each move interrupts the calls of a room: see package reconnect. Rebalance
	// needs a Capacity and a reported load. It must be above SoftCeiling, and with LimitGrowth below
	// HardCeiling. 90 is a good value. Default 0: no room moves because of load.
	Rebalance int

	// ReportLoad makes the resolver report the cost of the rooms hosted here as this node's load. Leave it
	// false in an application that measures its load and calls Agent.SetLoad, which fails while ReportLoad is
	// on. Agent.SetUse works in both cases.
	ReportLoad bool

	// Settle is the minimum time for which the cost of a claim stays reserved on its node. During this time,
	// clients connect and the node's load begins to include them. With Rebalance, the load of a node may
	// include a room that has moved away for three times as long. Default 5 s.
	Settle time.Duration

	// Counter returns the sizes of the rooms of a dead node. During one sweep, all calls of the Counter
	// together have a timeout of 2 s. After a failure, the Counter is not called for 30 s. While a part of
	// the store fails, several calls can run at the same time, with a timeout of 2 s each. Participants in
	// excess of the demand's Publishers are considered subscribers, unless the demand has a Size. Default:
	// none. Each room then keeps the size from the last refresh of its pin.
	Counter Counter

	// MaxKnown is the maximum number of rooms in the pin cache. Each room takes about 200 bytes. Default
	// 100,000.
	MaxKnown int

	// Log is the logger. Its handler may be slow: see cluster.Config. Default slog.Default().
	Log *slog.Logger

	// Tracer observes calls of Resolve and Host, and failovers. Default: none.
	Tracer Tracer
}

// BudgetOf returns the default of Config.Budget for a network type.
func BudgetOf(n cluster.Network) time.Duration {
	if n == cluster.WAN {
		return time.Second // allows round trips of up to a third of a second
	}
	return 150 * time.Millisecond
}

// WithDefaults returns c with every zero field replaced by its default. Budget gets the default for a LAN.
func (c Config) WithDefaults() Config {
	c.PinTTL = cmp.Or(c.PinTTL, time.Hour)
	c.Budget = cmp.Or(c.Budget, BudgetOf(cluster.LAN))
	c.MinCost = cmp.Or(c.MinCost, 1)
	c.SoftCeiling = cmp.Or(c.SoftCeiling, 80)
	c.Settle = cmp.Or(c.Settle, 5*time.Second)
	c.MaxKnown = cmp.Or(c.MaxKnown, 100_000)
	if c.Cost == nil {
		c.Cost = Demand.Streams
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Validate fills in the defaults and returns all problems of c as one error, or nil. Start calls it.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("affinity: "+format, args...))
		}
	}
	check(c.PinTTL >= time.Second, "PinTTL is %v; it must be at least 1s", c.PinTTL)
	check(c.Budget >= time.Millisecond, "Budget is %v; it must be at least 1ms", c.Budget)
	check(c.Budget <= time.Minute, "Budget is %v; it must be at most 1m, because callers wait that long for a store that hangs", c.Budget)
	check(c.MinCost > 0, "MinCost is %d; it must be at least 1 unit", c.MinCost)
	check(c.SoftCeiling > 0, "SoftCeiling is %d; it must be a percentage above 0", c.SoftCeiling)
	check(c.HardCeiling == 0 || c.HardCeiling >= c.SoftCeiling,
		"HardCeiling (%d %%) must not be below SoftCeiling (%d %%)", c.HardCeiling, c.SoftCeiling)
	check(c.Rebalance == 0 || c.Rebalance > c.SoftCeiling,
		"Rebalance (%d %%) must be above SoftCeiling (%d %%)", c.Rebalance, c.SoftCeiling)
	check(!c.StrictCeiling || c.HardCeiling > 0, "StrictCeiling needs a HardCeiling above 0")
	check(!c.LimitGrowth || c.Rebalance == 0 || c.Rebalance < c.HardCeiling,
		"Rebalance (%d %%) must be below HardCeiling (%d %%) with LimitGrowth, because no load would exceed it", c.Rebalance, c.HardCeiling)
	check(!c.LimitGrowth || c.HardCeiling > 0, "LimitGrowth needs a HardCeiling above 0")
	check(c.Settle > 0, "Settle is %v; it must not be negative", c.Settle)
	check(c.MaxKnown > 0, "MaxKnown is %d; it must not be negative", c.MaxKnown)
	return errors.Join(problems...)
}

// Tracer observes the calls of Resolve and Host, and the failover of rooms. Package clusterotel has a Tracer
// for OpenTelemetry. The Resolver passes the contexts that the Tracer returns to the Store. The methods of a
// Tracer can be called from any goroutine, must not block, and must not call the Resolver.
type Tracer interface {
	// Begin is called at the start of each Resolve and Host, with call set to "resolve" or "host". If the
	// returned end is not nil, it receives the caller's result. With a NotOwnerError, end also receives the
	// owner's assignment.
	//
	// If several callers share an answer (see Resolve), the Store receives the context of only one of them.
	Begin(ctx context.Context, call, room string) (_ context.Context, end func(Assignment, error))

	// Unasked is called when a call skips the store, because the circuit breaker is open.
	Unasked(ctx context.Context, why error)

	// Failover is called after the Resolver has found rooms of dead nodes and before it moves them to new
	// nodes. One call covers up to a few thousand rooms in up to 64 partitions. If end is not nil, it
	// receives the number of rooms that this instance has failed over, the number of rooms that have no new
	// node yet, and the latest reason for that.
	Failover(ctx context.Context, rooms int) (_ context.Context, end func(failedOver, homeless int, err error))
}
