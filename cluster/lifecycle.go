package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// SetLoad sets the units of load that this node reports with its heartbeats;
// negative counts as 0. It does not wait. Until it is called, the node's load is
// lease.NoLoad to everybody.
func (a *Agent) SetLoad(units int64) { a.load.Store(max(0, units)) }

// SetWeight changes this node's share relative to others; 0 owns nothing. Only
// partitions to or from this node move. It takes effect at once, and ends a ramp
// (Config.RampUp) that is under way.
func (a *Agent) SetWeight(w uint32) error {
	if w > lease.MaxWeight {
		return fmt.Errorf("cluster: weight %d, at most %d", w, lease.MaxWeight)
	}
	return a.do(context.Background(), func(l *loop) { l.setWeight(w) })
}

// Drain makes this node give up everything it owns, and returns when it owns
// nothing and every live member has agreed to that. It stays a member. If ctx
// ends first, the draining goes on.
func (a *Agent) Drain(ctx context.Context) error {
	return a.changeState(ctx, "drain", (*loop).drain, func(s *Snapshot) bool {
		_, candidate := findOwner(s.owners, a.self)
		return s.Phase != PhaseActive || (s.Converged() && !candidate)
	})
}

// Undrain makes this node a candidate for ownership again, and returns when
// every live member has agreed to that: with Config.RampUp, to its first share.
func (a *Agent) Undrain(ctx context.Context) error {
	return a.changeState(ctx, "undrain", (*loop).undrain, func(s *Snapshot) bool {
		_, candidate := findOwner(s.owners, a.self)
		return s.Converged() && (candidate || s.Self.Weight == 0)
	})
}

func (a *Agent) changeState(ctx context.Context, what string, change func(*loop), done func(*Snapshot) bool) error {
	err := a.do(context.Background(), func(l *loop) { // whatever ctx says: see Drain
		change(l)
		l.publishNow()
	})
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
	err := a.do(context.Background(), func(l *loop) {
		l.farewell()
		alone = len(l.set.Peers(nil)) == 0
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
	_ = a.node.Leave(rounds) // a courtesy to memberlist's peers
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

// do runs f in the loop and returns when it has run.
func (a *Agent) do(ctx context.Context, f func(*loop)) error {
	ran := make(chan struct{})
	select {
	case a.calls <- func(l *loop) { f(l); close(ran) }:
	case <-a.ended:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-ran:
		return nil
	case <-a.ended:
		return ErrClosed
	}
}
