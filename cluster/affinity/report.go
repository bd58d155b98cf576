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

// Report takes the word of a client, or of a node, that it has lost the host of a room: lost
// is the directive of the connection. It returns where the room lives now.
//
// The word moves nothing. If the room still lives on that node, the agent looks at the node
// itself, at most once a second however many report it. If its process is gone, Report waits
// for the confirmation, for at most a second, and the room gets a new home as from Resolve: of any number of
// reports at any nodes one moves it, once. If the node is alive, or its end is not confirmed,
// Report returns the present home, and the caller asks again.
//
// It takes one round trip to the store, and those of Resolve if the node is dead. It pins
// nothing: it fails with ErrNoPin, and otherwise as Lookup and Resolve do.
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

// names reports whether a directive may be of the node that an assignment names, by any of its
// epochs: the epoch of a pin that was restored has grown since. A directive without a node is of a
// client that does not know it.
func names(d reconnect.Directive, a Assignment) bool {
	return d.To == a.Node || d.To == "" && (d.Epoch == 0 || d.Epoch >= a.Epoch)
}

// lookEvery is how often reports have the agent look at one node.
const lookEvery = time.Second

// looks are the latest looks of the agent at nodes.
type looks struct {
	ended func(context.Context, lease.Incarnation) bool // Agent.Ended

	mu sync.Mutex
	of map[lease.Incarnation]*look
}

// look is a look at one node. All reports during the look, and soon afterwards, share it.
type look struct {
	began time.Time
	done  chan struct{}
}

// at looks at a node unless that has been done lately, and returns when it is done or ctx ends.
func (l *looks) at(ctx context.Context, node lease.Incarnation) {
	this, first := l.join(node, time.Now())
	if first {
		go func() {
			defer close(this.done)
			l.ended(context.WithoutCancel(ctx), node) // others wait for it, too
		}()
	}
	select {
	case <-this.done:
	case <-ctx.Done():
	}
}

// join returns the latest look at a node, and whether it begins now.
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

// wait returns when no look goes on.
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
