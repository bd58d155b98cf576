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

// SetWeight changes this node's share of the partitions relative to other nodes. With a weight of 0, the node
// owns nothing. Partitions move only to or from this node. SetWeight ends a slow start (Config.SlowStart).
//
// SetWeight returns when the node's own snapshot shows the weight and, if the node is a candidate, its table
// uses the weight. Other nodes follow shortly afterwards (see WaitConverged). If no table uses the weight
// within LeaseTTL because the strategy fails, the weight remains set and the error wraps
// context.DeadlineExceeded.
func (a *Agent) SetWeight(w uint32) error {
	if w > lease.MaxWeight {
		return fmt.Errorf("cluster: weight %d, at most %d", w, lease.MaxWeight)
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.LeaseTTL)
	defer cancel()
	set := func(now time.Time, n *node.Node) { n.SetWeight(now, w) }
	return a.change(ctx, "set weight", set, func(s *Snapshot) bool { return s.weighs(w) })
}

// SetLabels replaces all labels of this node, so that labels can follow the state of the application. The
// limits are the same as for Config.Labels. All labels change together: no node sees a mixture of new and old
// labels. Strategies and rooms that depend on labels follow the change.
//
// SetLabels copies the labels, and returns when the node's own snapshot has them. Other nodes follow shortly
// afterwards, and their Watch then reports this node in Batch.Changed. The labels apply until the agent
// stops. After a restart, Config.Labels applies again. If the labels are not valid, the error says why, and
// nothing changes.
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

// Drain makes this node release all its partitions. Drain returns when the node owns nothing and the tables
// of all live members no longer include the node. With handoff, Drain also waits until the node's runs have
// returned. A run is a call of the function that you pass to RunOwned. The node remains a member. If ctx ends
// first, the node continues to drain.
//
// With handoff, Drain waits for at most Config.Handoff after the agent has canceled a run. Then Drain returns
// an error that wraps context.DeadlineExceeded. A handler of RunOwned therefore cannot drain its own node,
// because Drain waits for that handler. If the handler passes its own context, Drain fails as soon as the
// agent cancels the handler.
func (a *Agent) Drain(ctx context.Context) error {
	return a.drain(ctx, time.Time{}, func(now time.Time, n *node.Node) { n.Drain(now) })
}

// MaxAhead is how far in the future [Agent.DrainAt] and [Agent.LeaveAt] can plan.
const MaxAhead = time.Hour

// DrainAt is like Drain, but at a planned time. All nodes learn the time in advance, so they switch to the table
// without this node within some milliseconds of each other. The nodes use cluster time, so their wall clocks don't
// matter. The time should be at least ten gossip intervals ahead (2 s on a LAN) and at most [MaxAhead]. A node that
// learns of the plan after the planned time switches immediately. A time in the past means now. Undrain cancels the
// plan if you call it before the planned time.
//
// After the planned time, DrainAt returns in the same cases as Drain. With handoff, DrainAt waits for at most
// Config.Handoff after the planned time. If ctx ends first, the plan remains. If the Strategy remembers owners, the
// nodes switch when they have the new assignment. With handoff, runs move to their new owners after the planned time.
func (a *Agent) DrainAt(ctx context.Context, at time.Time) error {
	if ahead := time.Until(at); ahead > MaxAhead {
		return fmt.Errorf("cluster: drain at %v: %w: it is %v ahead, at most %v", at, ErrAhead, ahead.Round(time.Second), MaxAhead)
	}
	return a.drain(ctx, at, func(now time.Time, n *node.Node) { n.DrainAt(now, now.Add(time.Until(at))) })
}

// drain runs a drain command that takes effect at time at. drain returns in the same cases as Drain.
func (a *Agent) drain(ctx context.Context, at time.Time, command func(time.Time, *node.Node)) error {
	var last *Snapshot
	err := a.change(ctx, "drain", command, func(s *Snapshot) bool {
		last = s
		return !time.Now().Before(at) && s.runsLeft <= len(s.overdue) && (s.Phase != PhaseActive || (s.Converged() && s.placed(s.Self.ID) == 0))
	})
	return a.explainRuns(ctx, last, err)
}

// explainRuns adds the runs that a drain waited for, if any, to the error of the drain. last is the last
// snapshot that the drain saw.
func (a *Agent) explainRuns(ctx context.Context, last *Snapshot, err error) error {
	switch {
	case last == nil || last.runsLeft == 0 || errors.Is(err, ErrClosed):
		return err
	case err == nil:
		err = fmt.Errorf("cluster: drain: %w: the time of Handoff (%v) is over", context.DeadlineExceeded, a.cfg.Handoff)
	}
	return runsLeft(ctx, err, last.runsLeft, last.overdue, "the node continues to drain")
}

// runsLeft adds to err how many runs had not returned when a call stopped waiting. some contains a few of the
// partitions whose runs are left, and then says what happens next.
func runsLeft(ctx context.Context, err error, runs int, some []placement.Partition, then string) error {
	if errors.Is(context.Cause(ctx), events.ErrReleased) {
		return fmt.Errorf("%w: this call waits for the handler in RunOwned that made it: return from the handler first; %s", err, then)
	}
	such := ""
	if len(some) > 0 {
		such = fmt.Sprintf(", such as %d", some[0])
	}
	return fmt.Errorf("%w: partitions whose handler in RunOwned has not returned: %d%s; the handler ignores the end of its context, needs more time, or waits for this call; %s",
		err, runs, such, then)
}

// Undrain makes this node a candidate for ownership again, and returns when the tables of all live members
// include the node. With Config.SlowStart, these tables give the node only its first share. If the node has
// another [Hold], Undrain returns without waiting for a table.
func (a *Agent) Undrain(ctx context.Context) error {
	undrain := func(now time.Time, n *node.Node) { n.Undrain(now) }
	return a.change(ctx, "undrain", undrain, func(s *Snapshot) bool {
		other := slices.ContainsFunc(s.Holds, func(h Hold) bool { return h.Cause != CauseDraining })
		return s.Converged() && (s.placed(s.Self.ID) > 0 || s.Self.Weight == 0 || other)
	})
}

// change runs a command, even if ctx has ended. change returns when done reports true or ctx ends.
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

// MaxLeaveWait is the maximum time that [Agent.Leave] waits for the handlers of RunOwned if Config.Handoff is
// 0.
const MaxLeaveWait = 20 * time.Second

// beforeLeaveTime is how long Leave waits for the functions of BeforeLeave.
const beforeLeaveTime = 2 * time.Second

// BeforeLeave makes Leave call f after the node has drained and the handlers of RunOwned have returned, right
// before the other members learn that the node leaves. Use f to release anything that other members take over
// when the node leaves. For example, an affinity.Resolver uses BeforeLeave to end its rooms. Leave waits for
// f, and returns the error of f if no earlier error occurred. The functions run once, one after another, in
// reverse order like deferred calls. Leave waits for all functions for at most 2 s in total. If f panics,
// Leave treats the panic as an error, and the log contains the stack. The other functions still run, and the
// node leaves. Call cancel to remove f.
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

// part calls the functions of BeforeLeave once and waits until they return. A function may call its own
// cancel.
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
		return fmt.Errorf("cluster: leave: %w: functions of BeforeLeave have not returned within %v, perhaps because one of them waits for this call; the node leaves anyway",
			context.DeadlineExceeded, beforeLeaveTime)
	}
}

// partWith calls a function of BeforeLeave and recovers from a panic. Without the recovery, the panic would
// end the process in the middle of the leave. The caller of Leave could not recover from it, because the
// function runs in another goroutine.
func (a *Agent) partWith(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			a.cfg.Log.Error("function of BeforeLeave panicked", "panic", r, "stack", string(debug.Stack()))
			cause, ok := r.(error)
			if !ok {
				cause = fmt.Errorf("%v", r)
			}
			err = fmt.Errorf("cluster: leave: a function of BeforeLeave panicked: %w; the node leaves anyway: see the stack in the log", cause)
		}
	}()
	return f()
}

// Leave shuts the agent down. Leave drains the node, waits until all handlers of RunOwned have returned, and
// runs the functions of BeforeLeave (an affinity.Resolver ends its rooms). Then Leave sends a leave message,
// waits until the message has spread, and closes the agent. The node remains a member until the handlers have
// returned.
//
// Leave waits for the handlers for at most [MaxLeaveWait] (with handoff: Config.Handoff), and for the tables
// of the other members for at most LeaseTTL. If ctx ends earlier, Leave stops waiting. The node leaves in any
// case. The error says which wait was cut short. If handlers did not return in time, the error wraps
// ctx.Err() or context.DeadlineExceeded. If the error wraps ErrStalled, the agent is not closed yet: see
// Close.
//
// A handler of RunOwned should not call Leave, because Leave waits for that handler. If the handler passes
// its own context, Leave does not wait for any handler.
func (a *Agent) Leave(ctx context.Context) error { return a.leave(ctx, time.Now()) }

// leave implements Leave. from is when the agent cancels the runs, and may be in the past.
func (a *Agent) leave(ctx context.Context, from time.Time) error {
	running, cancel := context.WithDeadline(ctx, from.Add(cmp.Or(a.cfg.Handoff, MaxLeaveWait)))
	defer cancel()
	draining, cancel := context.WithTimeout(ctx, max(a.cfg.LeaseTTL, a.cfg.Handoff))
	defer cancel()
	cut := a.Drain(draining)
	if errors.Is(cut, ErrStalled) { // the runs continue
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
	case err != nil: // the agent was closed concurrently
		return err
	case len(a.Members()) > 1:
		a.linger(ctx)
	}
	return cmp.Or(a.Close(), cut)
}

// LeaveAt is like Leave, but at a planned time, at which all nodes switch to the table without this one: see
// [Agent.DrainAt]. After the planned time, LeaveAt waits for the handlers as long as Leave does, and for the tables of
// the other members for two LeaseTTLs. If ctx ends before the planned time, the node leaves immediately. Undrain
// cancels the planned switch but not the leave. The leave then starts a LeaseTTL after the planned time. If the time is
// more than MaxAhead away, LeaveAt returns ErrAhead and the node does not leave.
func (a *Agent) LeaveAt(ctx context.Context, at time.Time) error {
	draining, cancel := context.WithDeadline(ctx, at.Add(a.cfg.LeaseTTL))
	defer cancel()
	if err := a.DrainAt(draining, at); errors.Is(err, ErrAhead) {
		return err
	}
	from := a.Snapshot().Self.Drains
	switch {
	case from.IsZero(): // ctx ended before the planned time, or Undrain canceled the plan
		from = time.Now()
	case from.Before(at):
		from = at
	}
	return a.leave(ctx, from) // leave also reports the errors of the drain
}

// linger waits for the leave message to spread.
func (a *Agent) linger(ctx context.Context) {
	rounds := leaveRounds * a.cfg.GossipInterval
	timer := time.NewTimer(rounds)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-a.done:
	}
	_ = a.gossip.Leave(rounds) // prevents memberlist's peers from reporting a failure
}

// leaveRounds is the number of gossip intervals for which the node repeats its leave message.
const leaveRounds = 5

// Close stops the agent immediately and without a leave message, so other nodes treat the stop as a crash. Close
// releases all partitions and waits until everything has stopped. You can call Close several times. If a Strategy does
// not return within LeaseTTL, Close returns ErrStalled, and the agent stops when the Strategy returns.
func (a *Agent) Close() error {
	a.stop()
	timer := time.NewTimer(a.cfg.LeaseTTL)
	defer timer.Stop()
	select {
	case <-a.ended:
		<-a.done // everything else has its own time limit, such as a second for a log handler
		return nil
	case <-timer.C:
		return ErrStalled
	}
}
