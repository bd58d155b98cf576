package affinity

import (
	"context"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
)

// linger is how long a room without participants stays hosted, in case a participant returns.
const linger = 10 * time.Second

// Serve runs f for a participant of a room, on the node that hosts the room, like Agent.RunOwned does for
// partitions. Serve hosts the room, uses the number of running Serve calls as the room's size, and releases
// the room 10 s after the last call has returned. If you use Serve for a room, don't call Touch or Release
// yourself.
//
// The context of f is cancelled when ctx is done or this node loses the room. If the room is lost,
// context.Cause returns the reason. Serve always waits for f. Serve returns the error of Host if Host fails.
// If the room was lost, it returns the reason, such as a *NotOwnerError that names the node to send the
// participant to. Otherwise it returns the error of f.
func (r *Resolver) Serve(ctx context.Context, room string, d Demand, f func(context.Context, *Hosting) error) error {
	h, err := r.enter(ctx, room, d)
	if err != nil {
		return err
	}
	defer h.depart()
	served, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-h.Lost():
			cancel(h.Err())
		case <-served.Done():
		}
	}()
	defer func() {
		cancel(nil)
		<-watched
	}()
	err = f(served, h)
	if lost := h.Err(); lost != nil {
		return lost
	}
	return err
}

// enter hosts the room and counts a participant. If the hosting ends in between, enter calls Host again.
func (r *Resolver) enter(ctx context.Context, room string, d Demand) (*Hosting, error) {
	for {
		h, err := r.Host(ctx, room, d)
		if err != nil {
			return h, err
		}
		switch refused, ended := h.arrive(); {
		case refused > 0:
			return h, r.outgrown(h, refused)
		case !ended:
			return h, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// arrive counts a participant, unless the hosting has ended. If the room would outgrow this node, arrive returns
// the units that the node lacks room for.
func (h *Hosting) arrive() (refused int64, ended bool) {
	h.r.hosts.mu.Lock()
	defer h.r.hosts.mu.Unlock()
	if h.err != nil {
		return 0, true
	}
	served := h.served + 1
	refused, _ = h.grow(func(n capacity.Need) capacity.Need {
		if served > n.Size() {
			return n.Counted(served) // else the demand already expects more participants
		}
		return n
	})
	if refused > 0 {
		h.idle() // this may have been the first participant
		return refused, false
	}
	h.served = served
	return 0, false
}

// depart is the inverse of arrive. After the last participant has left, it schedules releaseIdle.
func (h *Hosting) depart() {
	h.r.hosts.mu.Lock()
	defer h.r.hosts.mu.Unlock()
	h.served--
	served := h.served
	h.touch(func(n capacity.Need) capacity.Need { return n.Counted(served) })
	h.idle()
}

// idle schedules releaseIdle if the room has no participants. The caller must hold the table's lock.
func (h *Hosting) idle() {
	if h.served == 0 && h.err == nil && !h.lingers {
		h.lingers = true
		time.AfterFunc(linger, h.releaseIdle)
	}
}

// releaseIdle releases the room unless a participant has returned. releaseIdle waits longer if Host was
// called recently, because another participant may be about to arrive.
func (h *Hosting) releaseIdle() {
	pin, ok, rest := h.r.hosts.releaseIdle(h, linger, time.Now())
	if rest > 0 {
		time.AfterFunc(rest, h.releaseIdle)
	}
	if !ok {
		return
	}
	if err := h.void(context.Background(), pin); err != nil {
		h.r.cfg.Log.Debug("idle room not released", "room", h.room, "err", err)
	}
}
