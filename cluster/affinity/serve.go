package affinity

import (
	"context"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
)

// linger is how long a room without participants keeps its node, for one who returns.
const linger = 10 * time.Second

// Serve runs f for one participant of a room, on the node that hosts the room: it is to
// a room what Agent.RunOwned is to partitions. It hosts the room, counts the
// participants of all its calls as the room's size, and releases the room 10 s after the
// last one. An application that uses it for a room calls neither Touch nor Release itself.
//
// The context of f ends when ctx is done, or when the room is lost, which is then its
// cause. Serve waits for f, and returns the error of Host; why the room was lost, such
// as a *NotOwnerError with the node to send the participant to; or the error of f.
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

// enter hosts the room, and counts a participant. A hosting may end in between: then the
// room is hosted again, or lives elsewhere.
func (r *Resolver) enter(ctx context.Context, room string, d Demand) (*Hosting, error) {
	for {
		h, err := r.Host(ctx, room, d)
		if err != nil || h.arrive() {
			return h, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// arrive counts a participant, unless the hosting has ended.
func (h *Hosting) arrive() bool {
	h.r.hosts.mu.Lock()
	defer h.r.hosts.mu.Unlock()
	if h.err != nil {
		return false
	}
	h.served++
	served := h.served
	h.touch(func(n capacity.Need) capacity.Need {
		if served > n.Size() {
			return n.Counted(served) // otherwise the demand expects more
		}
		return n
	})
	return true
}

// depart is the inverse of arrive. The last one leaves the room to releaseIdle.
func (h *Hosting) depart() {
	h.r.hosts.mu.Lock()
	defer h.r.hosts.mu.Unlock()
	h.served--
	served := h.served
	h.touch(func(n capacity.Need) capacity.Need { return n.Counted(served) })
	if h.served == 0 && h.err == nil && !h.lingers {
		h.lingers = true
		time.AfterFunc(linger, h.releaseIdle)
	}
}

// releaseIdle releases the room unless a participant has returned. A Host may have been for one who is
// about to.
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
