package clusterhttp

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/evacuate"
	"github.com/roost-cluster/roost/lease"
)

const (
	maxRate     = 100_000 // rooms per second
	maxDeadline = 24 * time.Hour
)

// evacuation contains what is needed to stop the latest evacuation of this node.
type evacuation struct {
	mu    sync.Mutex
	stop  context.CancelCauseFunc // nil: there was no evacuation
	ended <-chan struct{}         // closed when the evacuation has ended; nil: there was no evacuation
}

func (e *evacuation) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop != nil {
		e.stop(errActive)
	}
}

var errActive = errors.New("the node accepts rooms again")

// evacuate starts to move the rooms of this draining node in the background. evacuate first stops an earlier
// evacuation.
func (a *api) evacuate(plan evacuate.Plan) {
	ctx, stop := context.WithCancelCause(context.Background())
	a.evacuation.mu.Lock()
	defer a.evacuation.mu.Unlock()
	if a.evacuation.stop != nil {
		a.evacuation.stop(nil)
	}
	earlier, ended := a.evacuation.ended, make(chan struct{})
	a.evacuation.stop, a.evacuation.ended = stop, ended
	show := a.rooms.Evacuating() // so that the response already shows the new evacuation
	go func() {
		select {
		case <-a.agent.Done():
			stop(nil)
		case <-ctx.Done():
		}
	}()
	go func() {
		defer close(ended)
		defer stop(nil)
		var last affinity.Evacuation
		if earlier != nil {
			<-earlier // otherwise the earlier evacuation could start late and replace this one in Stats
		}
		a.awaitDrain(ctx)
		if ctx.Err() != nil { // don't call Run, which would replace a later evacuation in Stats
			show(affinity.Evacuation{Over: true, Error: context.Cause(ctx).Error()})
			return
		}
		err := evacuate.Run(ctx, a.agent, a.rooms, plan, func(e affinity.Evacuation) { last = e })
		a.log.Info("evacuation ended", "moved", last.Moved, "ended", last.Ended, "left", last.Left, "err", err)
	}()
}

// awaitDrain waits until all members know that this node drains, for at most defaultWait.
func (a *api) awaitDrain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, defaultWait)
	defer cancel()
	tick := time.NewTicker(toLoop)
	defer tick.Stop()
	for a.agent.Snapshot().Self.State != lease.Draining || !a.agent.Converged() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// planOf returns the plan for moving the rooms, or nil if the request does not ask to move rooms.
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
