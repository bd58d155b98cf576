package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// SetLoad sets the units of load that this node reports with its heartbeats;
// negative counts as 0. It does not wait. Before the first call, the node reports
// lease.NoLoad. While another part of the application computes the load, SetLoad fails with
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

// ComputeLoad is for a part of the application that computes this node's load, as
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
// partitions to or from this node move. SetWeight ends a slow start (Config.SlowStart).
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

// SetLabels replaces all labels of this node, under the bounds of Config.Labels, so that they can follow the
// application's state. All change together: no node sees some of the new labels beside some of the old ones.
// Strategies and rooms that go by labels follow the change.
//
// SetLabels copies the labels, and returns when the node's own snapshot has them. Other nodes follow within
// moments, where Watch names this node in Batch.Changed. Labels last until the agent ends: a restart begins
// with those of Config. If the labels are not valid, the error says why, and nothing changes.
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
// and all live members run a table without it; with handoff, when its runs have returned,
// too. The node stays a member. If ctx ends first, the draining continues.
//
// With handoff, Drain waits for at most Config.Handoff after a run was told to end. Then it fails with an
// error that wraps context.DeadlineExceeded. So a handler of RunOwned cannot drain its own node: Drain waits
// for the handler. If the handler passes its context, Drain fails as soon as the handler has to return.
func (a *Agent) Drain(ctx context.Context) error {
	return a.drain(ctx, time.Time{}, func(now time.Time, n *node.Node) { n.Drain(now) })
}

// MaxAhead is how far ahead the moment of [Agent.DrainAt] and [Agent.LeaveAt] may be.
const MaxAhead = time.Hour

// DrainAt is Drain at a moment at which all nodes switch to the table without this one, within some
// milliseconds of each other: all learn of the moment beforehand, in cluster time, so no message has to
// arrive at it. Wall clocks of other nodes play no part. The moment should be ten gossip intervals ahead or
// more (2 s on a LAN) and may be [MaxAhead] ahead. A node that learns of it late switches then. A moment that
// is past is now. Until the moment, Undrain ends the plan.
//
// DrainAt returns when Drain does, after the moment. With handoff, it waits for at most Config.Handoff after
// the moment. If ctx ends first, the plan stays. With a Strategy that remembers, the nodes switch when they
// have the new assignment; with handoff, runs move after the moment.
func (a *Agent) DrainAt(ctx context.Context, at time.Time) error {
	if ahead := time.Until(at); ahead > MaxAhead {
		return fmt.Errorf("cluster: drain at %v: %w: it is %v ahead, at most %v", at, ErrAhead, ahead.Round(time.Second), MaxAhead)
	}
	return a.drain(ctx, at, func(now time.Time, n *node.Node) { n.DrainAt(now, now.Add(time.Until(at))) })
}

// drain runs a command to drain, from at on, and returns when Drain does.
func (a *Agent) drain(ctx context.Context, at time.Time, command func(time.Time, *node.Node)) error {
	var last *Snapshot
	err := a.change(ctx, "drain", command, func(s *Snapshot) bool {
		last = s
		return !time.Now().Before(at) && s.runsLeft <= len(s.overdue) && (s.Phase != PhaseActive || (s.Converged() && s.placed(s.Self.ID) == 0))
	})
	return a.explainRuns(ctx, last, err)
}

// explainRuns returns the error of a drain with the runs that the drain waited for, if any. last is what the
// drain saw last.
func (a *Agent) explainRuns(ctx context.Context, last *Snapshot, err error) error {
	switch {
	case last == nil || last.runsLeft == 0 || errors.Is(err, ErrClosed):
		return err
	case err == nil:
		err = fmt.Errorf("cluster: drain: %w: Handoff (%v) is over", context.DeadlineExceeded, a.cfg.Handoff)
	}
	return runsLeft(ctx, err, last.runsLeft, last.overdue, "the draining goes on")
}

// runsLeft returns err with the runs that a call waited for in vain, and what happens nevertheless. some are
// partitions of them.
func runsLeft(ctx context.Context, err error, runs int, some []placement.Partition, then string) error {
	if errors.Is(context.Cause(ctx), events.ErrReleased) {
		return fmt.Errorf("%w: it waits for the handler in RunOwned that called it: return from the handler first; %s", err, then)
	}
	such := ""
	if len(some) > 0 {
		such = fmt.Sprintf(", such as %d", some[0])
	}
	return fmt.Errorf("%w: partitions whose handler in RunOwned has not returned: %d%s; the handler ignores the end of its context, needs more time, or waits for this call; %s",
		err, runs, such, then)
}

// Undrain makes this node a candidate for ownership again, and returns when all live
// members run a table with it. With Config.SlowStart, that is its first share. It returns
// without such a table if the node has another [Hold].
func (a *Agent) Undrain(ctx context.Context) error {
	undrain := func(now time.Time, n *node.Node) { n.Undrain(now) }
	return a.change(ctx, "undrain", undrain, func(s *Snapshot) bool {
		other := slices.ContainsFunc(s.Holds, func(h Hold) bool { return h.Cause != CauseDraining })
		return s.Converged() && (s.placed(s.Self.ID) > 0 || s.Self.Weight == 0 || other)
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

// MaxLeaveWait is how long [Agent.Leave] waits at most for the handlers of RunOwned, without handoff.
const MaxLeaveWait = 20 * time.Second

// beforeLeaveTime is how long Leave waits for the functions of BeforeLeave.
const beforeLeaveTime = 2 * time.Second

// BeforeLeave has Leave call f when the node has drained and the handlers of RunOwned have returned, right
// before the other members learn that it leaves: for what others take over then. An affinity.Resolver ends
// its rooms there. Leave waits for f and returns its error if there is no other one. Functions run one after
// the other, the latest one first, and once; Leave waits for 2 s at most for all of them. If f panics, the
// panic is its error, and the log has the stack: the other functions run, and the node leaves. A call of
// cancel removes f.
func (a *Agent) BeforeLeave(f func() error) (cancel func()) {
	a.registering.Lock()
	defer a.registering.Unlock()
	p := &f
	a.beforeLeave = append(a.beforeLeave, p)
	return func() {
		a.registering.Lock()
		defer a.registering.Unlock()
		a.beforeLeave = slices.DeleteFunc(a.beforeLeave, func(of *func() error) bool { return of == p })
	}
}

// part calls the functions of BeforeLeave, once, and waits for them. They may cancel themselves.
func (a *Agent) part() error {
	a.parting.Do(func() {
		a.registering.Lock()
		all := slices.Clone(a.beforeLeave)
		a.registering.Unlock()
		a.parted = make(chan struct{})
		go func() {
			defer close(a.parted)
			for _, f := range slices.Backward(all) {
				a.partErr = cmp.Or(a.partErr, a.partWith(*f))
			}
		}()
	})
	select {
	case <-a.parted:
		return a.partErr
	case <-time.After(beforeLeaveTime):
		return fmt.Errorf("cluster: leave: %w: functions of BeforeLeave have not returned within %v, perhaps because one of them waits for this call; the node leaves nevertheless",
			context.DeadlineExceeded, beforeLeaveTime)
	}
}

// partWith calls a function of BeforeLeave. A panic there would end the process in the middle of the leave,
// and the goroutine that called Leave could not recover from it.
func (a *Agent) partWith(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			a.cfg.Log.Error("function of BeforeLeave panicked", "panic", r, "stack", string(debug.Stack()))
			cause, ok := r.(error)
			if !ok {
				cause = fmt.Errorf("%v", r)
			}
			err = fmt.Errorf("cluster: leave: a function of BeforeLeave panicked: %w; the node leaves nevertheless: see the stack in the log", cause)
		}
	}()
	return f()
}

// Leave ends the agent in order: it drains, waits until all handlers of RunOwned have returned, ends its rooms if an
// affinity.Resolver runs over it (see BeforeLeave), sends a leave message, waits until that has
// spread, and closes. The node is a member until the handlers have returned.
//
// Leave waits for the handlers for [MaxLeaveWait] at most, with handoff for Config.Handoff, and for the other members'
// tables for LeaseTTL. If ctx ends early, Leave waits less. It leaves in any case. The error says which wait was cut
// short: after a wait for handlers it wraps ctx.Err() or context.DeadlineExceeded. With ErrStalled, of
// Close, the agent is not closed yet.
//
// So a handler of RunOwned should not call Leave, which waits for the handler. If it passes its context, Leave
// waits for no handler at all.
func (a *Agent) Leave(ctx context.Context) error { return a.leave(ctx, time.Now()) }

// leave is Leave. From is when the runs were told to end, or will be.
func (a *Agent) leave(ctx context.Context, from time.Time) error {
	running, cancel := context.WithDeadline(ctx, from.Add(cmp.Or(a.cfg.Handoff, MaxLeaveWait)))
	defer cancel()
	draining, cancel := context.WithTimeout(ctx, max(a.cfg.LeaseTTL, a.cfg.Handoff))
	defer cancel()
	cut := a.Drain(draining)
	if errors.Is(cut, ErrStalled) { // its runs go on
		return cmp.Or(a.Close(), cut)
	}
	if left := a.feed.AwaitRuns(running); len(left) > 0 {
		cut = runsLeft(ctx, fmt.Errorf("cluster: leave: %w", running.Err()), len(left), left, "the node has left")
	}
	for _, sc := range a.Scopes() {
		if left := sc.feed.AwaitRuns(running); len(left) > 0 {
			cut = runsLeft(ctx, fmt.Errorf("cluster: leave: scope %q: %w", sc.name, running.Err()), len(left), left, "the node has left")
		}
	}
	cut = cmp.Or(cut, a.part())
	err := a.command(func(now time.Time, n *node.Node) { n.Leave(now) })
	switch {
	case errors.Is(err, ErrStalled):
		return cmp.Or(a.Close(), cut)
	case err != nil: // closed concurrently
		return err
	case len(a.Members()) > 1:
		a.linger(ctx)
	}
	return cmp.Or(a.Close(), cut)
}

// LeaveAt is Leave at a moment at which all nodes switch to the table without this one: see [Agent.DrainAt].
// It waits for the handlers as long as Leave does, from the moment on, and for the other members' tables for
// two LeaseTTLs. If ctx ends before the moment, the node leaves at once. Undrain cancels the moment and not
// the leave, which then begins a LeaseTTL after the moment. It fails with ErrAhead, and stays, if the moment
// is too far ahead.
func (a *Agent) LeaveAt(ctx context.Context, at time.Time) error {
	draining, cancel := context.WithDeadline(ctx, at.Add(a.cfg.LeaseTTL))
	defer cancel()
	if err := a.DrainAt(draining, at); errors.Is(err, ErrAhead) {
		return err
	}
	from := a.Snapshot().Self.Drains
	switch {
	case from.IsZero(): // ctx ended before the moment, or Undrain ended the plan
		from = time.Now()
	case from.Before(at):
		from = at
	}
	return a.leave(ctx, from) // which reports what the drain has not achieved
}

// linger lets the leave message spread.
func (a *Agent) linger(ctx context.Context) {
	rounds := leaveRounds * a.cfg.GossipInterval
	timer := time.NewTimer(rounds)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-a.done:
	}
	_ = a.gossip.Leave(rounds) // so that memberlist's peers do not report a failure
}

// leaveRounds is the number of gossip intervals for which a leave message is repeated.
const leaveRounds = 5

// Close stops the agent at once, without a leave message: other nodes see a crash. Close
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
