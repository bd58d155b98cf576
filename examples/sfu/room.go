package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/affinity/evacuate"
	"github.com/roost-cluster/roost/affinity/redisstore"
	"github.com/roost-cluster/roost/affinity/signalling"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/reconnect"
)

// linger is how long this node serves a room that has moved, for clients on their way.
const linger = 10 * time.Second

// fleet is what a node knows of the others: all that is about roost is in this file.
type fleet struct {
	agent *cluster.Agent
	store *redisstore.Store
	rooms *affinity.Resolver

	mu    sync.Mutex
	calls map[*affinity.Hosting]*tenure
	count int // of tenures
}

// tenure is the time in which this node hosts a room, and its call.
type tenure struct {
	call
	users int
}

// joinFleet starts the agent of a node, and leads clients to the rooms from then on.
func joinFleet(ctx context.Context, cfg cluster.Config, redis string, mux *http.ServeMux) (*fleet, error) {
	cfg.Cluster = "roost-sfu" // another fleet may use the same Redis
	store, err := redisstore.Open(ctx, redisstore.Options{URL: redis, Prefix: "roost-sfu:"})
	if err != nil {
		return nil, err
	}
	f := &fleet{store: store, calls: make(map[*affinity.Hosting]*tenure)}
	if f.agent, err = cluster.Start(ctx, cfg); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if f.rooms, err = affinity.Start(f.agent, store, affinity.Config{ReportLoad: true, Log: cfg.Log}); err != nil {
		return nil, errors.Join(err, f.agent.Close(), store.Close())
	}
	mux.Handle("GET /where/{room}", signalling.Where(f.rooms))
	mux.Handle("POST /report/{room}", signalling.Report(f.rooms))
	mux.Handle("GET /follow/{room}", signalling.Follow(f.rooms, 0))
	mux.Handle("GET /reconnect.mjs", signalling.JavaScript())
	return f, nil
}

// serve runs f for one participant of a room. The context of f ends when the participant
// has gone or the room is lost: see after.
func (f *fleet) serve(ctx context.Context, room string, run func(context.Context, *call, reconnect.Directive) error) error {
	return f.rooms.Serve(ctx, room, affinity.Demand{Size: 1}, func(ctx context.Context, h *affinity.Hosting) error {
		defer f.exit(h)
		self := f.agent.Config()
		return run(ctx, f.enter(h), reconnect.Directive{Room: room, To: f.agent.Snapshot().Self.ID, Addr: self.APIAddr, Epoch: h.Epoch()})
	})
}

func (f *fleet) enter(h *affinity.Hosting) *call {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.calls[h]
	if t == nil {
		t = new(tenure)
		f.calls[h] = t
		f.count++
	}
	t.users++
	return &t.call
}

func (f *fleet) exit(h *affinity.Hosting) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.calls[h]; t.users == 1 {
		delete(f.calls, h)
	} else {
		t.users--
	}
}

// elsewhere returns the node to which an error of serve, or the end of its context, sends the participants.
func elsewhere(err error) (reconnect.Directive, bool) {
	if moved, ok := errors.AsType[*affinity.NotOwnerError](err); ok {
		d := moved.Owner.Directive()
		return d, d.Addr != ""
	}
	return reconnect.Directive{}, false
}

// leave moves all rooms to other nodes, and leaves the fleet when the last participant has gone.
func (f *fleet) leave(ctx context.Context) error {
	err := f.agent.Drain(ctx)
	if err == nil && len(f.agent.Members()) > 1 {
		err = evacuate.Run(ctx, f.agent, f.rooms, evacuate.Plan{Rate: 50, Deadline: linger}, nil)
	}
	for end := time.Now().Add(linger); f.tenures() > 0 && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Join(err, f.rooms.Close(), f.agent.Leave(ctx), f.store.Close())
}

func (f *fleet) tenures() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

func (f *fleet) stats() stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return stats{f.rooms.Stats().Hosted, len(f.calls), f.count, len(f.agent.Members()), f.agent.Snapshot().Stats.Watched}
}
