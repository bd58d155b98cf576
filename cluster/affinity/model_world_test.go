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

// modelPlaces is the largest number of nodes in a world.
const modelPlaces = 3

const (
	modelTTL  = 6 * time.Second
	modelRoom = "room"
)

// modelFault says what a broken variant does wrong.
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

// modelLimits limits how often things may happen in a world.
type modelLimits struct {
	nodes                                        int
	resolves, hosts, sweeps, refreshes, releases int // calls on any node
	crashes, starts, pauses, cuts, deaf, outages int
	byName                                       int  // releases of the room, wherever it lives
	ticks                                        int  // TTLs that pass
	lost, late, failed, wipes                    int  // lost answers, late requests, failed calls, losses of all data
	copies, reverts                              int  // copies of the data, returns to the last copy
	jumps                                        int  // jumps of the store's clock, ahead by hours
	slow                                         int  // delayed answers
	confirmations                                bool // whether ends of processes are confirmed
}

// modelWorld contains a few processes with real resolvers, a real Memory, and everything that is under way between
// them. Only one goroutine runs at a time, either the world's goroutine or the goroutine of a call that does not yet
// wait for the store.
type modelWorld struct {
	fault modelFault
	left  modelLimits
	nodes int

	at       [modelPlaces]*modelProcess
	store    *modelStore
	copy     *modelStore // of the store's data, or nil
	redis    *modelRedis // repeats everything on a real Redis, or nil
	reverted uint64      // latest epoch of the room when the store returned to its copy
	away     bool        // the store answers no process
	late     []*modelAct // writes of calls that were given up
	direct   bool        // calls of the store are answered immediately
	events   chan *modelCall

	epochs []uint64 // of the room, in the order of its pins
	homes  map[uint64]lease.Incarnation
	heirs  map[pinstore.Pin]int
	claims map[uint64]*modelOp // by the epoch of the claim
	named  map[*Hosting]bool   // hostings of the room when it was released by name; true: they must end
	broken string
}

// modelProcess is one process of a node. It acts as the agent and the store of its resolver.
type modelProcess struct {
	w     *modelWorld
	self  lease.Incarnation
	place int

	gone       bool // the process has ended
	paused     bool
	deaf       bool   // it cannot reach the store
	overdue    bool   // its lease has ended, but its agent has not noticed
	silent     bool   // it sent no heartbeat to the store for a TTL
	seen       uint64 // latest epoch that its Resolve calls returned
	otherEpoch uint64 // latest epoch of another home that a refresh read while this process hosted the room
	hosting    uint64 // greatest epoch with which it began to host the room
	fences     uint64 // fences that its agent has noticed

	view  [modelPlaces]uint64 // incarnations that gossip knows; 0 = none
	ended [modelPlaces]uint64 // incarnations whose end is confirmed

	r  *Resolver
	k  *keeper
	op *modelOp

	shown  *cluster.Snapshot
	showed modelSight // what shown was made from
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

// start starts the next process of a node. If another process is running, the new process starts with that process's
// knowledge from gossip.
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

// heartbeatSince makes p believe that its heartbeats have reached the store for the given span.
func (p *modelProcess) heartbeatSince(span time.Duration) {
	l, begin := p.r.liveness, time.Now().Add(-span)
	l.HeartbeatArrived(begin.Add(-modelTTL)) // then there is a gap until begin
	for past := time.Duration(0); past <= span; past += modelTTL / 2 {
		l.HeartbeatArrived(begin.Add(past))
	}
}

// hearAll makes p know all running processes via gossip.
func (p *modelProcess) hearAll() {
	p.view = [modelPlaces]uint64{}
	for _, o := range p.w.running() {
		p.view[o.place] = o.self.Number
	}
}

// modelTables contains a table for each set of nodes.
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

// sees returns the incarnations that p considers live.
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

// Load implements agent.
func (p *modelProcess) Load() cluster.Load {
	return cluster.Load{Units: lease.NoLoad, Used: lease.NoLoad}
}

// modelStore is a real Memory that keeps the pin of one room. In a faulty variant, the store shows the pin with another
// epoch than the real one, and accepts the shown epoch in ops.
type modelStore struct {
	*pinstore.Memory
	own, shown uint64 // epochs, which differ only in a faulty variant
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

// pretend makes the store show a new pin with another epoch from now on.
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

// alive reports whether the store has a heartbeat of the incarnation that has not expired.
func (s *modelStore) alive(at lease.Incarnation) bool {
	alive, err := s.Heartbeat(context.Background(), lease.Incarnation{}, 0, []lease.Incarnation{at})
	return err == nil && alive[0]
}

func (s *modelStore) earlier() *modelStore { return &modelStore{s.Copy(), s.own, s.shown} }

// storeError returns err as a Store would return it.
func storeError(err error) error { return fmt.Errorf("%w: %w", pinstore.ErrStore, err) }

var (
	errModelFailed = storeError(errors.New("connection refused"))
	errModelLost   = storeError(context.DeadlineExceeded)
)

// modelOp is an operation of a process, such as a Resolve, that waits for the store.
type modelOp struct {
	what    string
	view    [modelPlaces]uint64 // the process's view when the operation began
	ended   [modelPlaces]uint64
	log     string // answers of the store so far
	call    *modelCall
	fences  uint64         // of the process, when the store last performed a call
	ends    uint64         // of hostings on this node, when the operation began
	foreign uint64         // epoch of another home's pin that a refresh has read
	hosted  *Hosting       // when the operation began
	dead    bool           // a refresh has read the pin of a dead home, and nothing says that the home lives
	did     func(*modelOp) // checks the result
}

// modelCall is one call of the store.
type modelCall struct {
	by      *modelProcess
	what    string
	acts    []*modelAct // of a Swap
	do      func()      // performs an Index or a Heartbeat
	results []pinstore.Result
	said    string // the result of do
	err     error
	taken   bool // the store has performed the call, and its answer is under way
	answer  chan struct{}
}

// modelAct is an op with the process that sent it, and what the process knew.
type modelAct struct {
	pinstore.Op
	by   *modelProcess
	of   *modelOp // the operation that contains the call, or nil
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

// take makes the store perform the call.
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

// Reserve implements Store. The model has no reservations.
func (p *modelProcess) Reserve(context.Context, pinstore.Reservation) error { return nil }

// Reservations implements Store.
func (p *modelProcess) Reservations(context.Context) ([]pinstore.Reservation, error) { return nil, nil }

// Notify implements Store. Notifications are lost.
func (p *modelProcess) Notify(func(string)) (stop func()) { return func() {} }

// knew returns what p knew when its operation began.
func (p *modelProcess) knew() [modelPlaces]uint64 {
	if p.op != nil {
		return p.op.view
	}
	return p.view
}
