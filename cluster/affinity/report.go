package affinity

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/lease"
)

// Report returns where a room lives now. Call it when a client or a node reports that it has lost the
// connection to the room's host. lost is the directive of that connection.
//
// A report alone does not move the room. If the room is still pinned to the reported node, the agent checks
// that node, at most once per second no matter how many callers report it. If the node's process has ended,
// Report waits at most a second until the failure is confirmed, and then resolves the room to a new node. If
// many callers on any nodes report the same node, the room only moves once. If the node is alive, or its
// failure is not confirmed, Report returns the current node, and the caller must ask again later.
//
// Report takes one round trip to the store, plus the round trips of Resolve if the node is dead. Report fails
// with ErrNoPin if the room has no pin, and with the errors of Lookup and Resolve.
func (r *Resolver) Report(ctx context.Context, lost reconnect.Directive) (Assignment, error) {
	a, err := r.Lookup(ctx, lost.Room)
	if err != nil || a.Source == Degraded {
		return a, err
	}
	if names(lost, a) && liveness.Live(r.agent.Snapshot(), a.Incarnation) != nil {
		r.shared.looks.at(ctx, a.Incarnation)
	}
	if liveness.Live(r.agent.Snapshot(), a.Incarnation) != nil {
		return a, nil
	}
	return r.Resolve(ctx, lost.Room, Demand{})
}

// names reports whether a directive may be for the node of an assignment. If the directive has a node, names
// ignores its epoch, because the epoch of a pin grows when the pin is restored. A directive without a node
// comes from a client that does not know the node.
func names(d reconnect.Directive, a Assignment) bool {
	return d.To == a.Node || d.To == "" && (d.Epoch == 0 || d.Epoch >= a.Epoch)
}

// lookEvery is the minimum time between two checks of the same node.
const lookEvery = time.Second

// looks contains the recent checks of nodes.
type looks struct {
	ended func(context.Context, lease.Incarnation) bool // Agent.Ended

	mu sync.Mutex
	of map[lease.Incarnation]*look
}

// look is a check of a node. All reports during the check, and until lookEvery after its start, share the
// result.
type look struct {
	began time.Time
	done  chan struct{}
}

// at checks a node, or waits for a recent check of it. at returns when the check is done or ctx ends.
func (l *looks) at(ctx context.Context, node lease.Incarnation) {
	this, first := l.join(node, time.Now())
	if first {
		go func() {
			defer close(this.done)
			l.ended(context.WithoutCancel(ctx), node) // the check continues after ctx, because other callers wait for it, too
		}()
	}
	select {
	case <-this.done:
	case <-ctx.Done():
	}
}

// join returns the latest check of a node. first reports whether the caller must run the check.
func (l *looks) join(node lease.Incarnation, now time.Time) (_ *look, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, old := range l.of {
		if now.Sub(old.began) >= lookEvery && old.over() {
			delete(l.of, at)
		}
	}
	if this := l.of[node]; this != nil {
		return this, false
	}
	if l.of == nil {
		l.of = make(map[lease.Incarnation]*look)
	}
	this := &look{now, make(chan struct{})}
	l.of[node] = this
	return this, true
}

// wait waits for all running checks.
func (l *looks) wait() {
	l.mu.Lock()
	all := slices.Collect(maps.Values(l.of))
	l.mu.Unlock()
	for _, this := range all {
		<-this.done
	}
}

func (l *look) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}
