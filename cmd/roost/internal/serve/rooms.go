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

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/lease"
)

const (
	roomFresh   = 500 * time.Millisecond // how long an answer is used without asking again
	roomTimeout = 2 * time.Second        // for all agents together
	maxRooms    = 1 << 16                // known rooms; beyond that, all are forgotten
	sayAgain    = time.Minute
)

// pinnedRooms finds the server of a key by its pin, by resolving the key as a room. While no agent knows the
// pins, a known room stays where it was as long as its node is a member. An unknown room goes to the agents'
// best guess. If no agent answers, it gets an error.
type pinnedRooms struct {
	client  *routing.Client
	log     *slog.Logger
	flights singleflight.Group

	mu    sync.Mutex
	rooms map[string]pinnedRoom
	said  time.Time // when it was logged that rooms are not resolved
}

type pinnedRoom struct {
	node lease.NodeID
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
	d, _ := v.(reconnect.Directive)
	if err == nil && d.Epoch > 0 {
		return d.Addr, false, nil
	}
	refusal, refused := errors.AsType[*routing.AgentError](err)
	if refused && refusal.Status < http.StatusInternalServerError { // the key is not a valid room name, or the token is missing
		return "", false, err
	}
	if err == nil {
		p.warn(errors.New("the store of pins does not answer the agents"))
	} else {
		p.warn(err)
	}
	if _, member := p.client.Member(known.node); known.addr != "" && (member || err != nil) {
		return known.addr, false, nil
	}
	return d.Addr, false, err
}

// resolve asks the agents where a room is, and remembers the answer unless it is a guess.
func (p *pinnedRooms) resolve(room string) (d reconnect.Directive, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), roomTimeout) // shared by many requests
	defer cancel()
	d, err = p.client.Resolve(ctx, room, 0)
	switch {
	case err != nil:
		return d, err
	case d.Addr == "":
		return d, fmt.Errorf("room %q is on node %s, which has no --api-addr or is not seen by the agent", room, d.To)
	case d.Epoch == 0:
		return d, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rooms == nil || len(p.rooms) >= maxRooms {
		p.rooms = make(map[string]pinnedRoom)
	}
	p.rooms[room] = pinnedRoom{d.To, d.Addr, time.Now()}
	return d, nil
}

// warn logs once a minute that rooms are not resolved.
func (p *pinnedRooms) warn(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.said) >= sayAgain {
		p.said = time.Now()
		p.log.Warn("rooms not resolved; keeping known ones", "err", err)
	}
}
