package serve

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/follow/httpproxy"
)

const (
	roomFresh   = 500 * time.Millisecond // how long an answer is used without asking again
	roomTimeout = time.Second            // of one call
	maxRooms    = 1 << 16                // known ones; beyond that all are forgotten
	sayAgain    = time.Minute
)

// pinnedRooms finds the node of a key by its pin: it resolves the key as a room at one of the agents. While no agent
// answers, a room stays where it was, and one that is not known goes to the owner of its partition.
type pinnedRooms struct {
	agents  []*clusterhttp.Client
	byTable httpproxy.Place
	log     *slog.Logger

	flights singleflight.Group
	turn    atomic.Int64 // the agent that answered last

	mu    sync.Mutex
	rooms map[string]pinnedRoom
	said  time.Time // when it was logged that no agent answers
}

type pinnedRoom struct {
	addr string
	at   time.Time
}

func (p *pinnedRooms) place(room string) (addr string, here bool, err error) {
	known := p.known(room)
	if time.Since(known.at) < roomFresh {
		return known.addr, false, nil
	}
	v, err, _ := p.flights.Do(room, func() (any, error) { return p.resolve(room) })
	if err == nil {
		return v.(string), false, nil
	}
	if refusal, ok := errors.AsType[*clusterhttp.Problem](err); ok && refusal.Status < 500 {
		return "", false, err // the key is no name of a room, or the token is missing
	}
	p.warn(err)
	if known.addr != "" {
		return known.addr, false, nil
	}
	return p.byTable(room)
}

func (p *pinnedRooms) known(room string) pinnedRoom {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rooms[room]
}

// resolve asks the agents one after the other, first the one that answered last.
func (p *pinnedRooms) resolve(room string) (addr string, err error) {
	first := int(p.turn.Load())
	for i := range p.agents {
		agent := (first + i) % len(p.agents)
		ctx, cancel := context.WithTimeout(context.Background(), roomTimeout)
		var a clusterhttp.RoomAssignment
		a, err = p.agents[agent].ResolveRoom(ctx, room, affinity.Demand{})
		cancel()
		if refusal, ok := errors.AsType[*clusterhttp.Problem](err); ok && refusal.Status < 500 {
			return "", err
		}
		if err == nil && a.Node.APIAddr == "" {
			err = errors.New("the node of the room has no --api-addr, or the agent does not see it: " + string(a.Node.ID))
		}
		if err == nil {
			p.turn.Store(int64(agent))
			p.keep(room, a.Node.APIAddr)
			return a.Node.APIAddr, nil
		}
	}
	return "", err
}

func (p *pinnedRooms) keep(room, addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rooms == nil || len(p.rooms) >= maxRooms {
		p.rooms = make(map[string]pinnedRoom)
	}
	p.rooms[room] = pinnedRoom{addr, time.Now()}
}

// warn logs once a minute that rooms are not resolved.
func (p *pinnedRooms) warn(err error) {
	p.mu.Lock()
	quiet := time.Since(p.said) < sayAgain
	if !quiet {
		p.said = time.Now()
	}
	p.mu.Unlock()
	if !quiet {
		p.log.Warn("no agent resolves rooms; they stay where they were", "err", err)
	}
}
