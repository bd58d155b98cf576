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
	// so PinTTL only removes pins that nobody needs any more. Default 1 h; at least 1 s.
	PinTTL time.Duration

	// Budget bounds the wait of Resolve and Host for the store. After it they answer from what this node knows,
	// marked Degraded. It should be three round trips to the store or more: below that, Stats and the log say so.
	// Give rueidisconn.Options the same. Default BudgetOf the agent's network: 150 ms (WAN 1 s).
	Budget time.Duration

	// Cost returns the units of load that a room costs its node, unless the demand has Units. Prefer and
	// Require are not set in d. Cost must be quick and only depend on its argument. Nodes with another Cost
	// or MinCost are refused with ErrSettings, because nodes compare the costs of a few sample demands with
	// up to 1,000 participants. Default Demand.Streams.
	Cost func(d Demand) int64

	// AnyCost lets this node run together with nodes that have another Cost or MinCost. Set it for a rolling
	// deploy that changes Cost, and remove it with the next deploy. Until then, nodes may disagree about how
	// full a node is.
	AnyCost bool

	// MinCost is the minimum cost of a room in units. Without it, any number of rooms that cost nothing would
	// fit on a node. Default 1.
	MinCost int64

	// Selector reports whether a room may go to a member, for your own rules in addition to Demand.Require.
	// It also applies when rooms of a dead node are failed over. It must only depend on its arguments, and
	// must be quick, because it runs for each member before each claim. Default: every member.
	Selector func(room string, d Demand, m *cluster.Member) bool

	// SoftCeiling is the percentage of its capacity up to which a node gets new rooms, as long as another
	// node has headroom. Rooms that grow past it stay where they are: see Resolver.Pressures. Default 80.
	SoftCeiling int

	// HardCeiling is the percentage of its capacity above which a node gets no new room even if no other node
	// can take the room. Resolve then fails with ErrNoCapacity. It counts the new rooms of all instances
	// together, but does not limit rooms that grow, fail over or are moved. Default 0: never refuse.
	HardCeiling int

	// StrictCeiling refuses a first join with ErrStore while the store does not answer, because HardCeiling
	// cannot be checked then. Rooms that this node knows are still found, and fail over. Without it, such a join is Degraded, and
	// any number of new rooms may be placed on a node. It needs a HardCeiling. Default false.
	StrictCeiling bool

	// ReportLoad makes the resolver report the cost of the rooms hosted here as this node's load. Leave it
	// false in an application that measures its load and calls Agent.SetLoad, which fails while ReportLoad is
	// on.
	ReportLoad bool

	// Settle is how long the cost of a claim stays reserved on its node at least. In this time clients
	// connect and begin to show in the node's load. Default 5 s.
	Settle time.Duration

	// Counter returns the sizes of the rooms of a dead node. All its calls in a sweep of such rooms together
	// have 2 s. After a failure it is not called for 30 s. While a part of the store fails, several calls run
	// at the same time, with 2 s each. Participants beyond the demand's Publishers count as subscribers,
	// unless the demand has a Size. Default: none; the size with which the pin was last refreshed is used.
	Counter Counter

	// MaxKnown is the maximum number of rooms in the pin cache, at about 200 bytes each. Default 100,000.
	MaxKnown int

	// Log receives the log. Default slog.Default(). Its handler may be slow: see
	// cluster.Config.
	Log *slog.Logger

	// Tracer observes single calls. Default: none.
	Tracer Tracer
}

// BudgetOf returns the default of Config.Budget in a network.
func BudgetOf(n cluster.Network) time.Duration {
	if n == cluster.WAN {
		return time.Second // for a round trip of up to a third of it
	}
	return 150 * time.Millisecond
}

// WithDefaults returns c with every zero field replaced by its default, of a LAN.
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
	check(!c.StrictCeiling || c.HardCeiling > 0, "StrictCeiling needs a HardCeiling above 0")
	check(c.Settle > 0, "Settle is %v; it must not be negative", c.Settle)
	check(c.MaxKnown > 0, "MaxKnown is %d; it must not be negative", c.MaxKnown)
	return errors.Join(problems...)
}

// Tracer observes the calls that callers wait for, and the failover of rooms. Package clusterotel has a
// Tracer for OpenTelemetry. The values of the contexts that it returns reach the Store. Its methods may be
// called from any goroutine, must not block, and must not call the Resolver.
type Tracer interface {
	// Begin is called at the start of each "resolve" and "host" of a room. end receives the caller's result
	// and, with a NotOwnerError, the owner's assignment. It may be nil.
	//
	// If several callers share an answer (see Resolve), the Store receives the context of only one of them.
	Begin(ctx context.Context, call, room string) (_ context.Context, end func(Assignment, error))

	// Unasked is called when a call skips the store, because the circuit breaker is open.
	Unasked(ctx context.Context, why error)

	// Failover is called when rooms of dead nodes were found (up to some thousands, in up to 64 partitions),
	// before they get new homes. end, which may be nil, receives how many rooms this instance failed over,
	// how many have no home yet, and the latest reason for that.
	Failover(ctx context.Context, rooms int) (_ context.Context, end func(failedOver, homeless int, err error))
}
