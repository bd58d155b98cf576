//go:build !race

package affinity

import (
	"context"
	"log/slog"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// modelPlaces is how many nodes a world can have.
const modelPlaces = 3

const (
	modelTTL  = 6 * time.Second
	modelRoom = "room"
)

// modelFault is what a broken variant does.
type modelFault string

const (
	comparesNothing modelFault = "the store compares nothing"
	comparesLives   modelFault = "the store compares no epochs"
	keepsEpoch      modelFault = "a new home keeps the epoch"
	clockGoesBack   modelFault = "epochs follow a clock that goes back"
	gossipDecides   modelFault = "the word of gossip is enough"
	storeDecides    modelFault = "the silence in the store is enough"
	silenceProves   modelFault = "silence counts for a node that was silent itself"
	sameNumber      modelFault = "a process that restarts has its former number"
	noFence         modelFault = "a fence is skipped"
	believes        modelFault = "a host does not believe a pin"
	newComerProves  modelFault = "silence counts for a node that has just started"
	yieldsToDead    modelFault = "a host takes a dead home for alive"
	trustsCopies    modelFault = "a pin from a copy counts"
)

// modelLimits bound what may happen in a world.
type modelLimits struct {
	nodes                                        int
	resolves, hosts, sweeps, refreshes, releases int // calls, by any node
	crashes, starts, pauses, cuts, deaf, outages int
	ticks                                        int  // TTLs that pass
	lost, late, failed, wipes                    int  // answers, requests, calls; and losses of all data
	copies, reverts                              int  // of the data, and returns to the last copy
	slow                                         int  // answers that are under way for a while
	confirmations                                bool // ends of processes are confirmed
}

// modelWorld is a few processes with real resolvers, a real Memory, and all that is under
// way between them. One goroutine runs at a time: that of the world, or the one of a call
// until it needs the store.
type modelWorld struct {
	fault modelFault
	left  modelLimits
	nodes int

	at       [modelPlaces]*modelProcess
	store    *modelStore
	copy     *modelStore // of its data, or nil
	redis    *modelRedis // which does the same, or nil
	reverted uint64      // the latest epoch of all when the store went back to its copy
	away     bool        // the store answers no process
	late     []*modelAct // of calls that were given up
	direct   bool        // calls of the store are answered at once
	events   chan *modelCall

	epochs []uint64 // of the room, in the order of their pins
	homes  map[uint64]lease.Incarnation
	heirs  map[pinstore.Pin]int
	claims map[uint64]*modelOp // by the epoch that they got
	broken string
}

// modelProcess is one life of a node. It is the agent and the store of its resolver.
type modelProcess struct {
	w     *modelWorld
	self  lease.Incarnation
	place int

	gone       bool // the process has ended
	paused     bool
	deaf       bool   // it does not reach the store
	overdue    bool   // its lease has ended, and its agent has not noticed
	silent     bool   // it was silent in the store for a TTL
	seen       uint64 // the latest epoch that a Resolve has returned
	otherEpoch uint64 // the latest epoch of another home that a refresh has read, while this one hosts the room
	hosting    uint64 // the greatest epoch at which it began to host the room
	fences     uint64 // that its agent has noticed

	view  [modelPlaces]uint64 // lives that gossip knows; 0 = none
	ended [modelPlaces]uint64 // lives that have ended by confirmation

	r  *Resolver
	k  *keeper
	op *modelOp

	shown  *cluster.Snapshot
	showed modelSight // what it was made of
}

// modelSight is all that a snapshot depends on.
type modelSight struct {
	view, ended [modelPlaces]uint64
	fences      uint64
}

func newModelWorld(l modelLimits, f modelFault, redis *modelRedis) *modelWorld {
	w := &modelWorld{
		fault: f, left: l, nodes: l.nodes, redis: redis, store: newModelStore(), events: make(chan *modelCall),
		homes: make(map[uint64]lease.Incarnation), heirs: make(map[pinstore.Pin]int), claims: make(map[uint64]*modelOp), direct: true,
	}
	for i := range w.nodes {
		w.start(i).heartbeatSince(modelTTL)
	}
	for _, p := range w.running() {
		p.hearAll()
	}
	w.direct = false
	return w
}

// start starts the next life of a node. It knows what another process knows, if one runs.
func (w *modelWorld) start(i int) *modelProcess {
	p := &modelProcess{w: w, place: i, self: lease.Incarnation{Node: modelID(i), Number: 1}}
	if before := w.at[i]; before != nil {
		p.self.Number = before.self.Number + 1
		if w.fault == sameNumber {
			p.self.Number = before.self.Number
		}
	}
	for _, o := range w.running() {
		p.view, p.ended = o.view, o.ended
	}
	p.view[i] = p.self.Number
	w.at[i] = p
	cfg := Config{Log: slog.New(slog.DiscardHandler)}.WithDefaults()
	p.r = newResolver(p, modelTTL, p, cfg)
	p.k = &keeper{Resolver: p.r, every: time.Second, reported: -1}
	p.heartbeat()
	if w.fault == newComerProves {
		p.heartbeatSince(modelTTL)
	}
	return p
}

func modelID(i int) lease.NodeID { return lease.NodeID(rune('a' + i)) }

// running returns the processes that have not ended.
func (w *modelWorld) running() (all []*modelProcess) {
	for _, p := range w.at {
		if p != nil && !p.gone {
			all = append(all, p)
		}
	}
	return all
}

// pass lets a TTL pass. Processes that are not paused send heartbeats to the store.
func (w *modelWorld) pass() {
	was := w.direct
	w.direct = true
	for range 4 {
		time.Sleep(modelTTL / 4)
		for _, p := range w.running() {
			if !p.paused {
				p.heartbeat()
			}
		}
	}
	for _, p := range w.running() {
		p.overdue = p.overdue || p.paused
		p.silent = p.silent || ((p.paused || p.deaf) && !w.away)
	}
	w.direct = was
}

// heartbeat sends a heartbeat of p to the store.
func (p *modelProcess) heartbeat() {
	was := p.w.direct
	p.w.direct = true
	p.k.heartbeat(context.Background())
	if p.w.fault == silenceProves {
		p.heartbeatSince(3 * modelTTL)
	}
	p.w.direct = was
}

// heartbeatSince makes p believe that its heartbeats have reached the store for that long.
func (p *modelProcess) heartbeatSince(span time.Duration) {
	l, begin := p.r.liveness, time.Now().Add(-span)
	l.HeartbeatArrived(begin.Add(-modelTTL)) // and a gap
	for past := time.Duration(0); past <= span; past += modelTTL / 2 {
		l.HeartbeatArrived(begin.Add(past))
	}
}

// hearAll makes gossip of p know all processes that run.
func (p *modelProcess) hearAll() {
	p.view = [modelPlaces]uint64{}
	for _, o := range p.w.running() {
		p.view[o.place] = o.self.Number
	}
}

// modelTables has the tables over all sets of nodes.
var modelTables = func() (tables [1 << modelPlaces]*placement.Table) {
	for set := range tables {
		in := placement.Input{Partitions: 1}
		for i := range modelPlaces {
			if set>>i&1 == 1 {
				in.Nodes = append(in.Nodes, placement.Node{ID: modelID(i), Weight: 1})
			}
		}
		tables[set], _ = placement.Compute(in)
	}
	return tables
}()

// Snapshot implements agent.
func (p *modelProcess) Snapshot() *cluster.Snapshot {
	sight := modelSight{p.sees(), p.ended, p.fences}
	if p.shown != nil && p.showed == sight {
		return p.shown
	}
	s := &cluster.Snapshot{Stats: cluster.Stats{CoreStats: cluster.CoreStats{Fences: p.fences}}}
	set := 0
	for i, life := range sight.view {
		if life == 0 {
			continue
		}
		m := &cluster.Member{Profile: lease.Profile{ID: modelID(i), Incarnation: life, Weight: 1}, State: lease.Active}
		s.Members = append(s.Members, m)
		set |= 1 << i
		if i == p.place {
			s.Self = m
		}
	}
	for i, life := range p.ended {
		if life > 0 {
			s.Crashed = append(s.Crashed, lease.Incarnation{Node: modelID(i), Number: life})
		}
	}
	s.Table = modelTables[set]
	p.shown, p.showed = s, sight
	return s
}

// sees returns the lives that p takes for live.
func (p *modelProcess) sees() [modelPlaces]uint64 {
	view := p.view
	for i, o := range p.w.at {
		if p.w.fault == storeDecides && o != nil && o != p && !p.w.store.alive(o.self) {
			view[i] = 0
		}
	}
	return view
}

// Place implements agent.
func (p *modelProcess) Place(key string) (*cluster.Member, error) {
	s := p.Snapshot()
	id, _ := s.Table.Owner(placement.Of(key, 1))
	m, _ := s.Member(id)
	return m, nil
}

// Live implements agent.
func (p *modelProcess) Live() bool { return !p.overdue }
