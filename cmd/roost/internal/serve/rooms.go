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
	roomFresh   = 500 * time.Millisecond // how long an answer is reused
	roomTimeout = 2 * time.Second        // for all agents together
	maxRooms    = 1 << 16                // number of rooms to remember; when it is reached, all are forgotten
	sayAgain    = time.Minute
)

// pinnedRooms finds the server for a key by resolving the key as a room. While the agents cannot read the pins, a known
// room stays on its node as long as that node is a member, and an unknown room goes to the node that an agent guesses.
// If no agent answers, a known room stays on its node, and a request for an unknown room fails.
type pinnedRooms struct {
	client  *routing.Client
	log     *slog.Logger
	flights singleflight.Group

	mu    sync.Mutex
	rooms map[string]pinnedRoom
	said  time.Time // when the log last said that rooms cannot be resolved
}

type pinnedRoom struct {
	node lease.NodeID
	addr string
	at   time.Time
}

// place implements httpproxy.Place.
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
		p.warn(errors.New("the pin store does not answer the agents"))
	} else {
		p.warn(err)
	}
	if _, member := p.client.Member(known.node); known.addr != "" && (member || err != nil) {
		return known.addr, false, nil
	}
	return d.Addr, false, err
}

// resolve asks the agents where a room is. If the answer is not just a guess, resolve remembers it.
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

// warn logs that rooms cannot be resolved, at most once a minute.
func (p *pinnedRooms) warn(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.said) >= sayAgain {
		p.said = time.Now()
		p.log.Warn("rooms not resolved; keeping known ones", "err", err)
	}
}
