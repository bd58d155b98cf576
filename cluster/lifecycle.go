package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

// SetLoad sets the units of load that this node reports with its heartbeats;
// negative counts as 0. It does not wait. Before the first call, the node reports
// lease.NoLoad. While another part of the program computes the load, SetLoad fails with
// ErrLoadComputed and changes nothing: the two would overwrite each other.
func (a *Agent) SetLoad(units int64) error {
	a.reporting.Lock()
	defer a.reporting.Unlock()
	if a.computed {
		return ErrLoadComputed
	}
	a.load.Store(max(0, units))
	return nil
}

// ComputeLoad is for a part of the program that computes this node's load, as
// affinity.Config.ReportLoad does. Until release, the load is what set was last called with,
// 0 at first, and SetLoad fails. A second ComputeLoad fails with ErrLoadComputed. set does not wait.
func (a *Agent) ComputeLoad() (set func(units int64), release func(), err error) {
	a.reporting.Lock()
	defer a.reporting.Unlock()
	if a.computed {
		return nil, nil, ErrLoadComputed
	}
	a.computed = true
	a.load.Store(0)
	set = func(units int64) { a.load.Store(max(0, units)) }
	release = func() {
		a.reporting.Lock()
		defer a.reporting.Unlock()
		a.computed = false
	}
	return set, release, nil
}

// SetWeight changes this node's share relative to others; 0 owns nothing. Only
// partitions to or from this node move. SetWeight ends a ramp (Config.RampUp).
//
// SetWeight returns when the node's own snapshot shows the weight, also in the table
// if the node is a candidate. Other nodes follow within moments (see WaitConverged).
// Without such a table within LeaseTTL, because the strategy fails, the weight stays
// set and the error wraps context.DeadlineExceeded.
func (a *Agent) SetWeight(w uint32) error {
	if w > lease.MaxWeight {
		return fmt.Errorf("cluster: weight %d, at most %d", w, lease.MaxWeight)
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.LeaseTTL)
	defer cancel()
	set := func(now time.Time, n *node.Node) { n.SetWeight(now, w) }
	return a.change(ctx, "set weight", set, func(s *Snapshot) bool { return s.weighs(w) })
}

// SetLabels replaces all labels of this node, under the bounds of Config.Labels, so that they can follow the application's state. All change together:
// no node sees some of the new labels beside some of the old ones. Strategies and rooms that go by labels follow the change.
//
// SetLabels copies the labels, and returns when the node's own snapshot has them. Other nodes follow within moments, where
// Watch names this node in Batch.Changed. Labels last until the agent ends: a restart begins with those of Config. If the labels are not
// valid, the error says why, and nothing changes.
func (a *Agent) SetLabels(labels map[string]string) error {
	labels = maps.Clone(labels)
	var invalid error
	err := a.command(func(now time.Time, n *node.Node) { invalid = n.SetLabels(now, labels) })
	if err == nil {
		err = invalid
	}
	if err != nil {
		return fmt.Errorf("cluster: set labels: %w", err)
	}
	return nil
}

// Drain makes this node release all its partitions, and returns when it owns nothing
// and all live members run a table without it; with hand-over, when its runs have returned,
// too. The node stays a member. If ctx ends first, the draining continues.
//
// With hand-over, Drain waits for at most Config.Handover after a run was told to end. Then it fails with an error that wraps
// context.DeadlineExceeded. So a handler of RunOwned cannot drain its own node: Drain waits for the handler. If the
// handler passes its context, Drain fails as soon as the handler has to return.
func (a *Agent) Drain(ctx context.Context) error {
	drain := func(now time.Time, n *node.Node) { n.Drain(now) }
	var last *Snapshot
	err := a.change(ctx, "drain", drain, func(s *Snapshot) bool {
		last = s
		return s.holds <= len(s.overdue) && (s.Phase != PhaseActive || (s.Converged() && s.placed(s.Self.ID) == 0))
	})
	return a.explainRuns(ctx, last, err)
}

// explainRuns returns the error of a drain with the runs that the drain waited for, if any. last is what the drain saw last.
func (a *Agent) explainRuns(ctx context.Context, last *Snapshot, err error) error {
	switch {
	case last == nil || last.holds == 0 || errors.Is(err, ErrClosed):
		return err
	case errors.Is(context.Cause(ctx), events.ErrReleased):
		return fmt.Errorf("%w: it waits for the handler in RunOwned that called it: return from the handler first; the draining goes on", err)
	case err == nil:
		err = fmt.Errorf("cluster: drain: %w: Handover (%v) is over", context.DeadlineExceeded, a.cfg.Handover)
	}
	such := ""
	if len(last.overdue) > 0 {
		such = fmt.Sprintf(", such as %d", last.overdue[0])
	}
	return fmt.Errorf("%w: partitions whose handler in RunOwned has not returned: %d%s; the handler ignores the end of its context, or waits for this call; the draining goes on", err, last.holds, such)
}

// Undrain makes this node a candidate for ownership again, and returns when all live
// members run a table with it. With Config.RampUp, that is its first share. It returns
// without such a table if the node is evicted or held back, or its program is ill.
func (a *Agent) Undrain(ctx context.Context) error {
	undrain := func(now time.Time, n *node.Node) { n.Undrain(now) }
	return a.change(ctx, "undrain", undrain, func(s *Snapshot) bool {
		_, evicted := s.EvictionOf(s.Self.ID)
		return s.Converged() && (s.placed(s.Self.ID) > 0 || s.Self.Weight == 0 || s.Ill != nil || evicted || !s.Self.Held.IsZero())
	})
}

// change runs a command, even after the end of ctx, and returns when its effect is
// done or ctx ends.
func (a *Agent) change(ctx context.Context, what string, f func(time.Time, *node.Node), done func(*Snapshot) bool) error {
	err := a.command(f)
	if err == nil {
		err = a.await(ctx, done)
	}
	if err != nil {
		return fmt.Errorf("cluster: %s: %w", what, err)
	}
	return nil
}

// Leave ends the agent in order: it drains, sends a farewell, waits until the
// farewell has spread, and closes. It waits for a drain for LeaseTTL at most, since
// by then the lease would have expired, and with hand-over for Config.Handover. If ctx ends
// early, Leave waits less; the error says which wait was cut short, and the agent is closed
// in any case, unless the error is ErrStalled, of Close.
func (a *Agent) Leave(ctx context.Context) error {
	draining, cancel := context.WithTimeout(ctx, max(a.cfg.LeaseTTL, a.cfg.Handover))
	defer cancel()
	drained := a.Drain(draining)
	err := a.command(func(now time.Time, n *node.Node) { n.Leave(now) })
	switch {
	case errors.Is(err, ErrStalled):
		return cmp.Or(a.Close(), drained)
	case err != nil: // closed concurrently
		return err
	case len(a.Members()) > 1:
		a.linger(ctx)
	}
	return cmp.Or(a.Close(), drained)
}

// linger lets the farewell spread.
func (a *Agent) linger(ctx context.Context) {
	rounds := farewellRounds * a.cfg.GossipInterval
	timer := time.NewTimer(rounds)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-a.done:
	}
	_ = a.gossip.Leave(rounds) // so that memberlist's peers do not report a failure
}

// farewellRounds is the number of gossip intervals in which a farewell is repeated.
const farewellRounds = 5

// Close stops the agent at once, without farewell: other nodes see a crash. Close
// releases all partitions and waits until everything has stopped. It can be called
// again. If a Strategy does not return for LeaseTTL, Close fails with ErrStalled, and the
// agent stops when the Strategy returns.
func (a *Agent) Close() error {
	a.stop()
	timer := time.NewTimer(a.cfg.LeaseTTL)
	defer timer.Stop()
	select {
	case <-a.ended:
		<-a.done // the rest is bounded by itself, such as a second for a log handler
		return nil
	case <-timer.C:
		return ErrStalled
	}
}
