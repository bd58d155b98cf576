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

// Report is for when a client or a node says that it has lost the connection to the host of a room. lost is
// the directive of that connection. Report returns where the room lives now.
//
// A report alone does not move the room. If the room still lives on that node, the agent checks the node
// itself, at most once a second no matter how many callers report it. If its process is gone, Report waits
// until that is confirmed, for at most a second, and the room gets a new home as with Resolve. Of any number
// of reports, on any nodes, only one moves the room. If the node is alive, or its end is not confirmed,
// Report returns the present home, and the caller has to ask again later.
//
// It takes one round trip to the store, and those of Resolve if the node is dead. It fails with ErrNoPin if
// the room has no pin, and with the errors of Lookup and Resolve.
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

// names reports whether a directive may be for the node of an assignment. It ignores the epoch, because the
// epoch of a pin grows when the pin is restored. A directive without a node comes from a client that does not
// know the node.
func names(d reconnect.Directive, a Assignment) bool {
	return d.To == a.Node || d.To == "" && (d.Epoch == 0 || d.Epoch >= a.Epoch)
}

// lookEvery is how often reports can make the agent check a node.
const lookEvery = time.Second

// looks has the latest checks of nodes.
type looks struct {
	ended func(context.Context, lease.Incarnation) bool // Agent.Ended

	mu sync.Mutex
	of map[lease.Incarnation]*look
}

// look is a check of a node. All reports during the check, and soon after it, share it.
type look struct {
	began time.Time
	done  chan struct{}
}

// at checks a node unless that was done recently. It returns when the check is done or ctx ends.
func (l *looks) at(ctx context.Context, node lease.Incarnation) {
	this, first := l.join(node, time.Now())
	if first {
		go func() {
			defer close(this.done)
			l.ended(context.WithoutCancel(ctx), node) // because others wait for it, too
		}()
	}
	select {
	case <-this.done:
	case <-ctx.Done():
	}
}

// join returns the latest check of a node, and whether it begins now.
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

// wait returns when no check is running.
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
