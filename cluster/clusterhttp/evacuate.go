package clusterhttp

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/roost-cluster/roost/affinity/evacuate"
	"github.com/roost-cluster/roost/lease"
)

const (
	maxRate     = 100_000 // rooms a second
	maxDeadline = 24 * time.Hour
)

// Evacuation is how far this node has been emptied of rooms, since the latest drain that
// asked for it.
type Evacuation struct {
	evacuate.Progress
	Over  bool   `json:"over"`            // no room is left, or it ended with Error
	Error string `json:"error,omitempty"` // for people
}

// evacuation is the one in progress, or the latest.
type evacuation struct {
	mu    sync.Mutex
	stop  context.CancelFunc // nil: there was none
	state Evacuation
}

func (e *evacuation) get() *Evacuation {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop == nil {
		return nil
	}
	state := e.state
	return &state
}

// end ends the evacuation in progress, if there is one.
func (e *evacuation) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop != nil && !e.state.Over {
		e.stop()
		e.state.Over, e.state.Error = true, "the node takes rooms again"
	}
}

// evacuate moves the rooms of this node, which begins to drain, in the background. An earlier
// evacuation ends.
func (a *api) evacuate(plan evacuate.Plan) {
	e := &a.evacuation
	ctx, stop := context.WithCancel(context.Background())
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop != nil {
		e.stop()
	}
	e.stop, e.state = stop, Evacuation{}
	show := func(change func(*Evacuation)) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if ctx.Err() == nil { // otherwise the state is a later evacuation's
			change(&e.state)
		}
	}
	go func() {
		select {
		case <-a.agent.Done():
			stop()
		case <-ctx.Done():
		}
	}()
	go func() {
		defer stop()
		var last evacuate.Progress
		a.awaitDrain(ctx)
		err := evacuate.Run(ctx, a.agent, a.rooms, plan, func(p evacuate.Progress) {
			last = p
			show(func(e *Evacuation) { e.Progress = p })
		})
		show(func(e *Evacuation) {
			if e.Over = true; err != nil {
				e.Error = bare(err)
			}
		})
		a.log.Info("evacuation ended", "moved", last.Moved, "ended", last.Ended, "left", last.Left, "err", err)
	}()
}

// awaitDrain waits until all members know that this node drains, for a while.
func (a *api) awaitDrain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, defaultWait)
	defer cancel()
	tick := time.NewTicker(handOver)
	defer tick.Stop()
	for a.agent.Snapshot().Self.State != lease.Draining || !a.agent.Converged() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// planOf returns the plan of a drain that evacuates, or nil.
func (a *api) planOf(r *http.Request) (*evacuate.Plan, *Problem) {
	var body struct {
		Rooms *struct {
			Rate       int64 `json:"rate"`
			DeadlineMS int64 `json:"deadline_ms"`
		} `json:"rooms"`
	}
	switch p := decode(r, &body); {
	case p != nil || body.Rooms == nil:
		return nil, p
	case a.rooms == nil:
		return nil, noStore()
	case body.Rooms.Rate < 0 || body.Rooms.Rate > maxRate:
		return nil, badRequest("rooms.rate is %d; it must be 0 to %d rooms a second", body.Rooms.Rate, maxRate)
	case body.Rooms.DeadlineMS < 0 || body.Rooms.DeadlineMS > maxDeadline.Milliseconds():
		return nil, badRequest("rooms.deadline_ms is %d; it must be 0 to %d", body.Rooms.DeadlineMS, maxDeadline.Milliseconds())
	}
	return &evacuate.Plan{Rate: int(body.Rooms.Rate), Deadline: time.Duration(body.Rooms.DeadlineMS) * time.Millisecond}, nil
}
