package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

// SetLoad sets the units of load that this node reports with its heartbeats;
// negative counts as 0. It does not wait. Until it is called, the node's load is
// lease.NoLoad to everybody.
func (a *Agent) SetLoad(units int64) { a.load.Store(max(0, units)) }

// SetWeight changes this node's share relative to others; 0 owns nothing. Only
// partitions to or from this node move. It takes effect at once, and ends a ramp
// (Config.RampUp) that is under way.
//
// SetWeight returns when the node's own snapshot shows the weight and, if the node is
// a candidate, the table of it; others follow within moments (see WaitConverged). If
// there is no such table within LeaseTTL, because the strategy fails, the weight stays
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

// Drain makes this node give up everything it owns, and returns when it owns
// nothing and every live member has agreed to that. It stays a member. If ctx
// ends first, the draining goes on.
func (a *Agent) Drain(ctx context.Context) error {
	drain := func(now time.Time, n *node.Node) { n.Drain(now) }
	return a.change(ctx, "drain", drain, func(s *Snapshot) bool {
		_, candidate := findOwner(s.owners, a.self)
		return s.Phase != PhaseActive || (s.Converged() && !candidate)
	})
}

// Undrain makes this node a candidate for ownership again, and returns when
// every live member has agreed to that: with Config.RampUp, to its first share.
func (a *Agent) Undrain(ctx context.Context) error {
	undrain := func(now time.Time, n *node.Node) { n.Undrain(now) }
	return a.change(ctx, "undrain", undrain, func(s *Snapshot) bool {
		_, candidate := findOwner(s.owners, a.self)
		return s.Converged() && (candidate || s.Self.Weight == 0)
	})
}

// change runs a command, whatever ctx says, and returns when its effect is done.
func (a *Agent) change(ctx context.Context, what string, f func(time.Time, *node.Node), done func(*Snapshot) bool) error {
	err := a.do(context.Background(), f)
	if err == nil {
		err = a.await(ctx, done)
	}
	if err != nil {
		return fmt.Errorf("cluster: %s: %w", what, err)
	}
	return nil
}

// Leave is the orderly end: it drains, says farewell, lingers until the farewell
// has spread, and closes. It waits for the others' agreement for LeaseTTL at
// most, since by then they would have noticed anyway. If ctx ends early, it goes
// on with less waiting; the error says what was cut short, and the agent is
// closed in any case.
func (a *Agent) Leave(ctx context.Context) error {
	draining, cancel := context.WithTimeout(ctx, a.cfg.LeaseTTL)
	defer cancel()
	drained := a.Drain(draining)
	alone := false
	err := a.do(context.Background(), func(now time.Time, n *node.Node) {
		n.Leave(now)
		alone = len(n.Contacts(now).Members) == 0
	})
	if err != nil { // closed meanwhile
		return err
	}
	if !alone {
		a.linger(ctx)
	}
	_ = a.Close()
	return drained
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
	_ = a.gossip.Leave(rounds) // a courtesy to memberlist's peers
}

// farewellRounds is for how many gossip intervals a farewell is repeated.
const farewellRounds = 5

// Close stops the agent at once, without farewell: to others it looks like a
// crash. It releases everything, waits until all is stopped, and can be called
// again.
func (a *Agent) Close() error {
	a.stop()
	<-a.done
	return nil
}
