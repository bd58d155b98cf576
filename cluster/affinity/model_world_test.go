//go:build !race

package affinity

import (
	"context"
	"errors"
	"fmt"
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
	hidesHeirs      modelFault = "a pin does not say that it replaces another"
	allAreHeirs     modelFault = "each pin says that it replaces another"
	trustsCopies    modelFault = "a pin from a copy counts"
)

// modelLimits bound what may happen in a world.
type modelLimits struct {
	nodes                                        int
	resolves, hosts, sweeps, refreshes, releases int // calls, by any node
	crashes, starts, pauses, cuts, deaf, outages int
	byName                                       int  // releases of the room, wherever it lives
	ticks                                        int  // TTLs that pass
	lost, late, failed, wipes                    int  // answers, requests, calls; and losses of all data
	copies, reverts                              int  // of the data, and returns to the last copy
	jumps                                        int  // of the store's clock, ahead by hours
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
	named  map[*Hosting]bool   // hostings of the room when it was released by name; value: they have to end
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

// modelSight contains everything that a snapshot depends on.
type modelSight struct {
	view, ended [modelPlaces]uint64
	fences      uint64
}

func newModelWorld(l modelLimits, f modelFault, redis *modelRedis) *modelWorld {
	w := &modelWorld{
		fault: f, left: l, nodes: l.nodes, redis: redis, store: newModelStore(), events: make(chan *modelCall),
		homes: make(map[uint64]lease.Incarnation), heirs: make(map[pinstore.Pin]int), claims: make(map[uint64]*modelOp),
		named: make(map[*Hosting]bool), direct: true,
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

// modelStore is a real Memory, which keeps the pin of one room. A faulty variant shows that
// pin with another epoch than its own, and takes the epoch that it shows.
type modelStore struct {
	*pinstore.Memory
	own, shown uint64 // epochs; equal without a problem
}

func newModelStore() *modelStore { return &modelStore{Memory: pinstore.NewMemory()} }

// do performs one op on the room.
func (s *modelStore) do(op pinstore.Op) pinstore.Result {
	op.Room = modelRoom
	if op.If.Epoch != 0 && op.If.Epoch == s.shown {
		op.If.Epoch = s.own
	}
	if op.Set.Epoch >= s.shown {
		op.Set.Epoch += s.own - s.shown
	}
	res := s.Swap(context.Background(), op)[0]
	res.Pin = s.show(res.Pin)
	return res
}

// pin returns the room's pin.
func (s *modelStore) pin() pinstore.Pin { return s.do(pinstore.Op{}).Pin }

// pretend shows a new pin with another epoch from now on.
func (s *modelStore) pretend(pin *pinstore.Pin, epoch uint64) {
	s.own, s.shown = pin.Epoch, epoch
	*pin = s.show(*pin)
}

func (s *modelStore) show(pin pinstore.Pin) pinstore.Pin {
	if pin.Epoch == s.own {
		pin.Epoch = s.shown
	}
	return pin
}

func (s *modelStore) index(parts []placement.Partition, want func(lease.Incarnation) bool, limit int) ([]pinstore.Entry, error) {
	found, err := s.Index(context.Background(), parts, want, limit)
	for i := range found {
		found[i].Pin = s.show(found[i].Pin)
	}
	return found, err
}

// alive reports whether the heartbeat of an incarnation has not expired.
func (s *modelStore) alive(at lease.Incarnation) bool {
	alive, err := s.Heartbeat(context.Background(), lease.Incarnation{}, 0, []lease.Incarnation{at})
	return err == nil && alive[0]
}

func (s *modelStore) earlier() *modelStore { return &modelStore{s.Copy(), s.own, s.shown} }

// storeError makes err what a Store returns.
func storeError(err error) error { return fmt.Errorf("%w: %w", pinstore.ErrStore, err) }

var (
	errModelFailed = storeError(errors.New("connection refused"))
	errModelLost   = storeError(context.DeadlineExceeded)
)

// modelOp is a call of a process that waits for the store.
type modelOp struct {
	what    string
	view    [modelPlaces]uint64 // when it began
	ended   [modelPlaces]uint64
	log     string // what the store has answered
	call    *modelCall
	fences  uint64         // when the store last did something for it
	ends    uint64         // of hostings here, when it began
	foreign uint64         // epoch of another home's pin that a refresh has read
	hosted  *Hosting       // when it began
	dead    bool           // a refresh has read the pin of a home that is dead, and nothing says that it lives
	did     func(*modelOp) // checks the result
}

// modelCall is a call of the store.
type modelCall struct {
	by      *modelProcess
	what    string
	acts    []*modelAct // a Swap
	do      func()      // an Index or a Heartbeat
	results []pinstore.Result
	said    string // the result of do
	err     error
	taken   bool // the store has done it; the answer is under way
	answer  chan struct{}
}

// modelAct is an op with the process that asked for it, and what that knew.
type modelAct struct {
	pinstore.Op
	by   *modelProcess
	of   *modelOp // its call, or nil
	view [modelPlaces]uint64
}

// wait hands a call to the world, and returns when the world answers.
func (c *modelCall) wait(ctx context.Context) {
	w := c.by.w
	switch {
	case c.by.gone || w.away || c.by.deaf:
		c.err = errModelFailed
	case ctx.Err() != nil:
		c.err = storeError(ctx.Err())
	case w.direct:
		c.take()
	default:
		c.answer = make(chan struct{})
		w.events <- c
		<-c.answer
	}
}

// take has the store do what was asked.
func (c *modelCall) take() {
	c.taken = true
	if op := c.by.op; op != nil {
		op.fences = c.by.fences
	}
	if c.do != nil {
		c.do()
	}
	for i, a := range c.acts {
		c.results[i] = c.by.w.swap(a)
	}
}

// Swap implements Store.
func (p *modelProcess) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	c := &modelCall{by: p, what: "swap", results: make([]pinstore.Result, len(ops))}
	for _, op := range ops {
		c.acts = append(c.acts, &modelAct{op, p, p.op, p.knew()})
	}
	c.wait(ctx)
	for i := range c.results {
		if c.err != nil {
			c.results[i] = pinstore.Result{Err: c.err}
		}
	}
	return c.results
}

// Index implements Store.
func (p *modelProcess) Index(
	ctx context.Context,
	parts []placement.Partition,
	want func(lease.Incarnation) bool,
	limit int,
) (found []pinstore.Entry, _ error) {
	c := &modelCall{by: p, what: "index"}
	c.do = func() {
		found, c.err = p.w.store.index(parts, want, limit)
		p.w.redis.index(p.self, parts, want, limit, found)
		for _, e := range found {
			c.said += fmt.Sprint(e.Pin.Incarnation, p.w.rank(e.Pin.Epoch))
		}
	}
	c.wait(ctx)
	return found, c.err
}

// Heartbeat implements Store.
func (p *modelProcess) Heartbeat(
	ctx context.Context,
	self lease.Incarnation,
	ttl time.Duration,
	ask []lease.Incarnation,
) (alive []bool, _ error) {
	c := &modelCall{by: p, what: fmt.Sprint("heartbeat", ask)}
	c.do = func() {
		alive, c.err = p.w.store.Heartbeat(context.Background(), self, ttl, ask)
		p.w.redis.heartbeat(p.self, self, ttl, ask, alive)
		switch {
		case p.w.fault == gossipDecides:
			clear(alive)
		case p.w.fault == yieldsToDead && p.r.hosts.count() > 0:
			for i := range alive {
				alive[i] = true
			}
		}
		c.said = fmt.Sprint(alive)
	}
	c.wait(ctx)
	return alive, c.err
}

// Agree implements Store. All processes have the same settings.
func (p *modelProcess) Agree(context.Context, lease.Incarnation, time.Duration, pinstore.Settings) (pinstore.Agreed, error) {
	return pinstore.Agreed{Since: 1}, nil
}

// Notify implements Store. Notifications are lost.
func (p *modelProcess) Notify(func(string)) (stop func()) { return func() {} }

// knew is what p knew when its call began.
func (p *modelProcess) knew() [modelPlaces]uint64 {
	if p.op != nil {
		return p.op.view
	}
	return p.view
}
