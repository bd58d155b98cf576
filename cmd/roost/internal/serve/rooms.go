package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/roost-cluster/roost/follow"
)

const (
	roomFresh   = 500 * time.Millisecond // how long an answer is used without asking again
	roomTimeout = 2 * time.Second        // of all agents together
	maxRooms    = 1 << 16                // known ones; beyond that all are forgotten
	sayAgain    = time.Minute
)

// pinnedRooms finds the server of a key by its pin: it resolves the key as a room. While no agent resolves rooms, a
// room stays where it was. One that is not known gets an error: it may be pinned anywhere.
type pinnedRooms struct {
	follower *follow.Follower
	log      *slog.Logger
	flights  singleflight.Group

	mu    sync.Mutex
	rooms map[string]pinnedRoom
	said  time.Time // when it was logged that rooms are not resolved
}

type pinnedRoom struct {
	addr string
	at   time.Time
}

// place is an httpproxy.Place.
func (p *pinnedRooms) place(room string) (addr string, here bool, err error) {
	p.mu.Lock()
	known := p.rooms[room]
	p.mu.Unlock()
	if known.addr != "" && time.Since(known.at) < roomFresh {
		return known.addr, false, nil
	}
	v, err, _ := p.flights.Do(room, func() (any, error) { return p.resolve(room) })
	if err == nil {
		return v.(string), false, nil
	}
	refusal, refused := errors.AsType[*follow.AgentError](err)
	if refused && refusal.Status < http.StatusInternalServerError { // the key is no name of a room, or the token is missing
		return "", false, err
	}
	p.warn(err)
	if known.addr != "" {
		return known.addr, false, nil
	}
	return "", false, err
}

func (p *pinnedRooms) resolve(room string) (addr string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), roomTimeout) // of one request for many
	defer cancel()
	d, err := p.follower.Resolve(ctx, room, 0)
	switch {
	case err != nil:
		return "", err
	case d.Addr == "":
		return "", fmt.Errorf("room %q is on node %s, which has no --api-addr or is not seen by the agent", room, d.To)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rooms == nil || len(p.rooms) >= maxRooms {
		p.rooms = make(map[string]pinnedRoom)
	}
	p.rooms[room] = pinnedRoom{d.Addr, time.Now()}
	return d.Addr, nil
}

// warn logs once a minute that rooms are not resolved.
func (p *pinnedRooms) warn(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.said) >= sayAgain {
		p.said = time.Now()
		p.log.Warn("rooms are not resolved; known ones stay where they were", "err", err)
	}
}
