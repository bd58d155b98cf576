package main

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/evacuate"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/cluster/affinity/signalling"
)

// linger is how long this node serves a room that has moved, for clients that are still moving.
const linger = 10 * time.Second

// fleet is what a node knows about the other nodes. All code that uses roost's rooms is in this file.
type fleet struct {
	agent *cluster.Agent
	store *redisstore.Store
	rooms *affinity.Resolver

	mu    sync.Mutex
	calls map[*affinity.Hosting]*hosting
	begun int // hostings
}

// hosting is a room that this node hosts, with its call.
type hosting struct {
	call
	senders, receivers int
}

// joinFleet starts the agent of a node. The node then directs clients to their rooms.
func joinFleet(ctx context.Context, cfg cluster.Config, url string, rebalance int, mux *http.ServeMux) (*fleet, error) {
	cfg.Cluster = "roost-sfu" // another fleet may use the same Redis
	redis, err := rueidisconn.Open(ctx, rueidisconn.Options{URL: url})
	if err != nil {
		return nil, err
	}
	store, err := redisstore.New(redis, redisstore.Options{Prefix: "roost-sfu:"})
	if err != nil {
		return nil, err
	}
	f := &fleet{store: store, calls: make(map[*affinity.Hosting]*hosting)}
	if f.agent, err = cluster.Start(ctx, cfg); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if f.rooms, err = affinity.Start(f.agent, store, affinity.Config{ReportLoad: true, Rebalance: rebalance, Log: cfg.Log}); err != nil {
		return nil, errors.Join(err, f.agent.Close(), store.Close())
	}
	mux.Handle("GET /where/{room}", anyOrigin(signalling.Where(f.rooms)))
	mux.Handle("POST /report/{room}", anyOrigin(signalling.Report(f.rooms)))
	mux.Handle("GET /follow/{room}", anyOrigin(signalling.Follow(f.rooms, 0)))
	return f, nil
}

// serve runs a function for a participant of a room. senders is 1 if the participant sends, and 0 if it only receives.
// The context of run ends when the participant has left or the room is lost: see elsewhere.
func (f *fleet) serve(ctx context.Context, room string, senders int, run func(context.Context, *call, reconnect.Directive) error) error {
	receivers := 1 - senders
	demand := affinity.Demand{Publishers: senders, Subscribers: receivers}
	return f.rooms.Serve(ctx, room, demand, func(ctx context.Context, h *affinity.Hosting) error {
		c := f.count(h, senders, receivers)
		defer f.count(h, -senders, -receivers)
		return run(ctx, c, reconnect.Directive{Room: room, To: f.agent.Snapshot().Self.ID, Addr: f.agent.Config().APIAddr, Epoch: h.Epoch()})
	})
}

// count updates the number of participants in a room, reports what the room costs, and returns the call of the room.
func (f *fleet) count(h *affinity.Hosting, senders, receivers int) *call {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.calls[h]
	if t == nil {
		t = new(hosting)
		f.calls[h] = t
		f.begun++
	}
	t.senders, t.receivers = t.senders+senders, t.receivers+receivers
	if t.senders+t.receivers == 0 {
		delete(f.calls, h)
	}
	_ = h.Restate(affinity.Demand{Publishers: t.senders, Subscribers: t.receivers}) // cannot fail: the demand is valid
	return &t.call
}

// apart returns the node of a relay. The relay is the last name in the chain. A relay is also a room: it counts towards
// its node's load, and its clients follow it. It lives on a different node than its room and the other relays.
func (f *fleet) apart(ctx context.Context, chain []string, subscribers int) (reconnect.Directive, error) {
	last := len(chain) - 1
	a, err := f.rooms.ResolveApart(ctx, chain[last], affinity.Demand{Publishers: 1, Subscribers: subscribers}, chain[:last]...)
	return a.Directive(), err
}

// home returns where the room of a relay lives now, after the relay has lost its connection to the room.
func (f *fleet) home(ctx context.Context, lost reconnect.Directive) (reconnect.Directive, error) {
	a, err := f.rooms.Report(ctx, lost)
	if errors.Is(err, affinity.ErrNoPin) {
		a, err = f.rooms.Resolve(ctx, lost.Room, affinity.Demand{})
	}
	return a.Directive(), err
}

// follow yields the node on which a relay's room lives, and each later node.
func (f *fleet) follow(ctx context.Context, room string) iter.Seq[reconnect.Directive] {
	return f.rooms.Follow(ctx, room)
}

// elsewhere returns the node to which participants should go. err is the error of serve, or the cause of its context's
// end.
func elsewhere(err error) (reconnect.Directive, bool) {
	if moved, ok := errors.AsType[*affinity.NotOwnerError](err); ok {
		d := moved.Owner.Directive()
		return d, d.Addr != ""
	}
	return reconnect.Directive{}, false
}

// leave moves all rooms to other nodes, and leaves the fleet when the last participant is gone.
func (f *fleet) leave(ctx context.Context) error {
	err := f.agent.Drain(ctx)
	if err == nil && len(f.agent.Members()) > 1 {
		err = evacuate.Run(ctx, f.agent, f.rooms, evacuate.Plan{Rate: 50, Deadline: linger}, nil)
	}
	for end := time.Now().Add(linger); f.hostings() > 0 && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Join(err, f.agent.Leave(ctx), f.store.Close()) // Leave closes the rooms
}

func (f *fleet) hostings() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

func (f *fleet) stats() stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	rooms, load := f.rooms.Hosted()
	s := stats{len(rooms), len(f.calls), f.begun, len(f.agent.Members()), f.agent.Snapshot().Stats.Watched, load, make(map[string]int64), 0, 0}
	for _, r := range rooms {
		s.Rooms[r.Room] = r.Units
	}
	return s
}
