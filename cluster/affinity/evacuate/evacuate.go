// Package evacuate moves all rooms away from a draining node before the node stops. The rooms move one by one
// while the node still serves them.
//
//	err := agent.Drain(ctx)  // the node gets no new rooms
//	…
//	err = evacuate.Run(ctx, agent, rooms, evacuate.Plan{Rate: 50, Deadline: 10 * time.Minute}, nil)
//	…
//	err = agent.Leave(ctx)  // no room is left, so the node can stop
//
// When a room moves, its host loses the room with an error that names the new node. If the application
// continues to serve the room until its clients have left, clients can connect to the new node before they
// disconnect from the old node. If the node dies during the evacuation, the other nodes fail over the
// remaining rooms.
package evacuate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// Plan limits how fast and for how long an evacuation moves rooms.
type Plan struct {
	// Rate is the number of rooms that move per second. Default 10.
	Rate int

	// Deadline is the maximum duration of an evacuation. If necessary to meet the deadline, rooms move faster
	// than Rate. Run returns an error if any rooms are left at the deadline. Default 0: no deadline.
	Deadline time.Duration
}

// ErrNotDraining reports that the node still accepts rooms. Drain the node before you call Run. Run also
// returns ErrNotDraining if the node is undrained during the evacuation.
var ErrNotDraining = errors.New("evacuate: the node is not draining")

const (
	defaultRate = 10
	// abreast is the maximum number of rooms that move at the same time. With more than 4 rooms, calls to the
	// store would queue in the resolver.
	abreast  = 4
	burst    = 100 * time.Millisecond // after slow moves, how much of the rate Run may catch up on at once
	most     = 1 << 20                // rooms in one list
	listTime = 10 * time.Second       // for one query of all partitions
	pause    = time.Second            // after a failed list or round
)

// Run moves all rooms on the agent's node to other nodes, starting with the cheapest, and returns nil when no
// room is left. If no node has capacity for a room, Run retries the room. The Stats of rooms include the
// progress. If report is not nil, Run calls it after each room, one call at a time.
//
// If the node is not draining, Run returns ErrNotDraining. If ctx ends, Run returns the cause. After
// Plan.Deadline, Run returns context.DeadlineExceeded with the latest failure.
func Run(ctx context.Context, agent *cluster.Agent, rooms *affinity.Resolver, plan Plan, report func(affinity.Evacuation)) error {
	if plan.Rate < 0 || plan.Deadline < 0 {
		return fmt.Errorf("evacuate: the rate is %d and the deadline %v; neither may be negative", plan.Rate, plan.Deadline)
	}
	r := run{agent: agent, rooms: rooms, plan: plan, stats: rooms.Evacuating(), report: report, failed: make(map[string]struct{})}
	r.plan.Rate = cmp.Or(plan.Rate, defaultRate)
	if plan.Deadline > 0 {
		r.until = time.Now().Add(plan.Deadline)
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.until)
		defer cancel()
	}
	err := r.run(ctx)
	if err != nil {
		why := ""
		if r.progress.Why != "" {
			why = "; the latest failure: " + r.progress.Why
		}
		err = fmt.Errorf("evacuate: at least %d rooms are left: %w%s", r.progress.Left, err, why)
		r.progress.Error = strings.TrimPrefix(err.Error(), "evacuate: ")
	}
	r.progress.Over = true
	r.stats(r.progress)
	return err
}

type run struct {
	agent  *cluster.Agent
	rooms  *affinity.Resolver
	plan   Plan
	until  time.Time // zero: no deadline
	stats  func(affinity.Evacuation)
	report func(affinity.Evacuation)

	mu       sync.Mutex // guards the fields below during a round
	progress affinity.Evacuation
	failed   map[string]struct{} // in the current round
}

func (r *run) run(ctx context.Context) error {
	for {
		left, err := r.list(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !r.draining():
			return ErrNotDraining
		case err == nil && r.progress.Left == 0:
			return nil
		}
		if roundErr := r.round(ctx, left); roundErr != nil {
			return roundErr
		}
		if err == nil && len(left) > 0 && len(r.failed) == 0 {
			continue // rooms may have been pinned here in the meantime
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// list returns the rooms that are pinned to this node, cheapest first. A room that the node does not host
// costs nothing. If list returns an error, it also returns the rooms that it found. Hosted rooms without a
// pin count as left, because the store has lost their pins and the host will soon write them again.
func (r *run) list(ctx context.Context) ([]pinstore.Entry, error) {
	bounded, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	self := r.self()
	here, err := r.rooms.Rooms(bounded, self.Node, most)
	here = slices.DeleteFunc(here, func(e pinstore.Entry) bool { return e.Pin.Incarnation != self })
	switch {
	case err == nil:
		r.settle(bounded, here)
	case ctx.Err() == nil: // otherwise, the list failed only because the evacuation has ended
		r.progress.Why = err.Error()
	}
	units := make(map[string]int64)
	hosted, _ := r.rooms.Hosted()
	for _, h := range hosted {
		units[h.Room] = h.Units
	}
	slices.SortFunc(here, func(a, b pinstore.Entry) int {
		return cmp.Or(cmp.Compare(units[a.Room], units[b.Room]), cmp.Compare(a.Room, b.Room))
	})
	unpinned := len(hosted)
	for _, e := range here {
		if _, both := units[e.Room]; both {
			unpinned--
		}
	}
	r.progress.Left, r.progress.Failed = len(here)+unpinned, 0
	r.show()
	return here, err
}

// settle counts the rooms of the last round that moved or ended even though the call to move them failed.
func (r *run) settle(ctx context.Context, here []pinstore.Entry) {
	for _, e := range here {
		delete(r.failed, e.Room)
	}
	for room := range r.failed {
		if ctx.Err() != nil {
			return // the remaining rooms are counted after the next list
		}
		if _, err := r.rooms.Lookup(ctx, room); errors.Is(err, affinity.ErrNoPin) {
			r.progress.Ended++
		} else {
			r.progress.Moved++
		}
		delete(r.failed, room)
	}
}

// round tries to move each room once. round moves several rooms at the same time, so that a slow connection
// to the store does not slow down the evacuation.
func (r *run) round(ctx context.Context, left []pinstore.Entry) (err error) {
	var moves errgroup.Group
	moves.SetLimit(abreast)
	next := time.Now()
	for i, e := range left {
		moves.Go(func() error { // Go waits while abreast moves are running
			if r.draining() && ctx.Err() == nil {
				r.move(ctx, e)
			}
			return nil
		})
		if !r.draining() {
			err = ErrNotDraining
			break
		}
		next = next.Add(r.interval(len(left) - i))
		if least := time.Now().Add(-burst); next.Before(least) {
			next = least
		}
		if err = sleep(ctx, time.Until(next)); err != nil {
			break
		}
	}
	_ = moves.Wait()
	return err
}

// move moves a room and updates the progress. If ctx ends before the room has moved, the room counts as left.
func (r *run) move(ctx context.Context, e pinstore.Entry) {
	_, err := r.rooms.MoveFrom(ctx, e.Room, e.Pin.Incarnation, 0)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.progress.Moved++
		r.progress.Left--
		delete(r.failed, e.Room)
	case errors.Is(err, affinity.ErrNoPin):
		r.progress.Ended++
		r.progress.Left--
		delete(r.failed, e.Room)
	case ctx.Err() != nil:
		return
	default:
		r.failed[e.Room] = struct{}{}
		r.progress.Failed++
		r.progress.Why = err.Error()
	}
	r.show()
}

// interval returns the time until the next room moves. If the deadline requires it, the interval is shorter
// than Plan.Rate implies.
func (r *run) interval(left int) time.Duration {
	d := time.Second / time.Duration(r.plan.Rate)
	if !r.until.IsZero() {
		const reserve = 10 // leaves a tenth of the time for rooms whose first move fails
		d = min(d, time.Until(r.until)*(reserve-1)/reserve/time.Duration(left))
	}
	return d
}

func (r *run) show() {
	r.stats(r.progress)
	if r.report != nil {
		r.report(r.progress)
	}
}

func (r *run) draining() bool { return r.agent.Snapshot().Self.State == lease.Draining }

func (r *run) self() lease.Incarnation {
	s := r.agent.Snapshot().Self
	return lease.Incarnation{Node: s.ID, Number: s.Incarnation}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
