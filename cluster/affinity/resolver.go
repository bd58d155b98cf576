package affinity

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/internal/agreement"
	"github.com/roost-cluster/roost/cluster/affinity/internal/capacity"
	"github.com/roost-cluster/roost/cluster/affinity/internal/latency"
	"github.com/roost-cluster/roost/cluster/affinity/internal/liveness"
	"github.com/roost-cluster/roost/cluster/affinity/internal/pincache"
	"github.com/roost-cluster/roost/cluster/affinity/internal/storeclient"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/logqueue"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Resolver finds the nodes of rooms, maintains the pins of the rooms that this node hosts, and moves the
// rooms of dead nodes to new nodes. All methods are safe for concurrent use.
//
// A Resolver has no lock. Some of its parts have their own lock. While a part holds its lock, it calls
// neither another part nor a user's callback.
type Resolver struct {
	agent    agent
	cfg      Config
	cache    *pincache.Cache
	reserved capacity.Reservations
	store    struct {
		*storeclient.Client
		agreement agreement.Agreement
	}
	liveness *liveness.Detector
	silence  liveness.Silence
	met      met
	hosts    hostTable
	growth   growth
	shared   struct { // shared by concurrent callers
		resolve, host flights // separate flights, because Host must not use a cached pin
		again         flights // second attempts of Host, which have less time
		reserve       flights // calls of Reserve, which need headroom
		looks         looks
	}
	feeds struct {
		moves     moves
		pressures pressures
	}
	work    work
	counts  counters
	history history
}

// agent contains the methods of *cluster.Agent that placement decisions use.
type agent interface {
	Snapshot() *cluster.Snapshot
	Place(key string) (*cluster.Member, error)
	Live() bool
	Load() cluster.Load
}

// work contains the pending work of the keeper and failover goroutines, and what Close needs to stop them.
type work struct {
	rooms      worklist[string]              // rooms whose pins may have changed
	all        atomic.Bool                   // any pin may have changed
	partitions worklist[placement.Partition] // partitions to sweep
	countAgain atomic.Int64                  // when to ask the Counter again, in Unix nanoseconds

	setLoad     func(units int64) // nil: the application measures the load
	aheadLoad   func(units int64) // sets what rooms do not use of their reservations
	releaseLoad func()
	stop        context.CancelFunc
	unnotify    func() // stops the calls of changed
	unregister  func() // stops the agent's Leave from calling Close
	endLog      func() // flushes the log
	closed      atomic.Bool
	close       sync.Once
	closeErr    error // of Close
	wait        sync.WaitGroup
}

// Start returns a running Resolver for a store that all nodes share. Start does not wait for the agent, and
// waits at most Config.Budget for the store. The agent's Leave closes the Resolver at the right moment, so
// don't close the Resolver before you call Leave.
//
// With Config.ReportLoad, Start fails with cluster.ErrLoadComputed if another Resolver of this agent already
// reports the load.
//
// Start fails with ErrSettings if other nodes of the cluster use another number of partitions, another
// Config.Cost, or another key prefix in the store. Start also fails with ErrSettings if another cluster uses
// the same keys in this store. Two clusters that share a Redis need different prefixes.
//
// If the store does not answer, Start succeeds and the node compares its settings later. If the settings
// differ then, all calls that need the store fail with ErrSettings, this node does not fail over any rooms,
// and the other nodes place no rooms here. Rooms that are hosted here stay. The same happens after a lease's
// TTL if the other nodes use a gossip key that this node does not accept, because this node then belongs to
// another cluster with the same name.
func Start(agent *cluster.Agent, store pinstore.Store, cfg Config) (*Resolver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	node := agent.Config()
	cfg.Budget = cmp.Or(cfg.Budget, BudgetOf(node.Network))
	cfg = cfg.WithDefaults()
	if least := 5 * node.HeartbeatInterval; cfg.PinTTL < least {
		return nil, fmt.Errorf("affinity: PinTTL is %v; with this agent's heartbeat it must be at least %v", cfg.PinTTL, least)
	}
	var endLog func()
	cfg.Log, _, endLog = logqueue.Through(cfg.Log.With("node", lease.NodeID(node.ID)))
	r := newResolver(agent, node.LeaseTTL, store, cfg)
	r.work.unnotify = store.Notify(r.changed)
	ctx, stop := context.WithCancel(context.Background())
	r.work.stop, r.work.endLog = stop, endLog
	r.store.agreement.Settings, r.store.agreement.Keys = settingsOf(node, cfg), agent.KeyFingerprints
	_ = r.agree(r.self()) // if the store fails, it is asked again with the first heartbeat
	err := r.store.agreement.Refused()
	r.work.aheadLoad = agent.ReserveLoad()
	if err == nil && cfg.ReportLoad {
		r.work.setLoad, r.work.releaseLoad, err = agent.ComputeLoad()
	}
	if err != nil {
		stop()
		r.work.unnotify()
		endLog()
		return nil, err
	}
	r.shared.looks.ended = agent.Ended
	r.work.unregister = agent.BeforeLeave(r.Close)
	r.work.wait.Go(func() { r.keep(ctx, agent) })
	r.work.wait.Go(func() { r.watchFence(ctx, agent) })
	r.work.wait.Go(func() { r.failOver(ctx) })
	return r, nil
}

// newResolver returns a Resolver without starting its goroutines.
func newResolver(agent agent, ttl time.Duration, store pinstore.Store, cfg Config) *Resolver {
	var unasked func(context.Context, error)
	if cfg.Tracer != nil {
		unasked = cfg.Tracer.Unasked
	}
	r := &Resolver{
		agent: agent, cfg: cfg,
		cache: pincache.New(cfg.MaxKnown),
		reserved: capacity.Reservations{
			Limits: capacity.Ceilings{Soft: cfg.SoftCeiling, Hard: cfg.HardCeiling},
			Settle: cfg.Settle,
			Keep:   cfg.PinTTL,
		},
		liveness: liveness.New(ttl),
		silence:  liveness.Silence{TTL: ttl},
		work:     work{rooms: newWorklist[string](), partitions: newWorklist[placement.Partition]()},
	}
	r.store.Client = storeclient.New(store, cfg.Budget, cfg.Log, unasked)
	r.store.agreement = agreement.Agreement{Store: store, Log: cfg.Log, TTL: ttl, Explain: explainCost}
	r.hosts.cache = r.cache
	r.growth.limit = math.MaxInt64 // until the keeper has measured the load
	r.hosts.fences.Store(agent.Snapshot().Stats.Fences)
	return r
}

// Close stops the Resolver, ends all hostings, and removes this node's heartbeat from the store. The agent's Leave
// calls Close right before other nodes learn that this node has left, so they take its rooms immediately. Call Close
// yourself only if the agent keeps running, or has stopped without Leave. While the agent is a member, its rooms stay
// pinned to this node. Close waits until all goroutines have stopped. It is safe to call Close more than once.
func (r *Resolver) Close() error {
	r.work.close.Do(func() {
		r.work.closed.Store(true)
		r.work.unregister()
		r.work.stop()
		r.work.wait.Wait()
		r.work.aheadLoad(0)
		if r.cfg.ReportLoad {
			r.work.releaseLoad()
		}
		r.work.unnotify()
		r.hosts.close(ErrClosed)
		r.feeds.moves.close()
		r.feeds.pressures.Close()
		const timeout = 500 * time.Millisecond
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if _, err := r.store.Store.Heartbeat(ctx, r.self(), 0, nil); err != nil {
			r.work.closeErr = fmt.Errorf("affinity: closed, but the store has not removed this node's heartbeat, so other nodes wait until it expires, unless this node leaves: %w",
				err)
		}
		r.store.agreement.Withdraw(ctx)
		r.shared.looks.wait()
		r.work.endLog()
	})
	return r.work.closeErr
}

// changed is the callback for the store's notifications. The store calls it when another client has changed a
// room's pin. If room is "", any pin may have changed.
func (r *Resolver) changed(room string) {
	if room == "" {
		r.storeAway(true)
		return
	}
	if known := r.cache.Invalidate(room); known || r.hosts.get(room) != nil {
		r.work.rooms.add(room)
	}
}

// storeAway is called after the store was unreachable, because any pin may have changed. lost reports whether
// the store may also have lost data.
func (r *Resolver) storeAway(lost bool) {
	r.liveness.StoreAway(lost, time.Now())
	r.cache.InvalidateAll()
	r.work.all.Store(true)
	r.work.rooms.signal()
}

// self returns this node's incarnation.
func (r *Resolver) self() lease.Incarnation { return incarnationOf(r.agent.Snapshot().Self) }

// living returns this node's incarnation, or the zero Incarnation if this node must not send a heartbeat.
func (r *Resolver) living() lease.Incarnation {
	if r.agent.Live() && !r.work.closed.Load() {
		return r.self()
	}
	return lease.Incarnation{}
}

func incarnationOf(m *cluster.Member) lease.Incarnation {
	return lease.Incarnation{Node: m.ID, Number: m.Incarnation}
}

// jittered returns d ± 20 %.
func jittered(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5+1)
}

// Stats counts what a Resolver has done since Start.
type Stats struct {
	Cached      uint64 `json:"cached"` // assignments by source
	Pinned      uint64 `json:"pinned"`
	Hash        uint64 `json:"hash"`
	Override    uint64 `json:"override"`
	Degraded    uint64 `json:"degraded"`
	Unplaced    uint64 `json:"unplaced"`     // first joins that Config.StrictCeiling refused
	Crowded     uint64 `json:"crowded"`      // rooms pinned above Config.SoftCeiling, because no node had headroom
	NoCapacity  uint64 `json:"no_capacity"`  // joins that Config.HardCeiling refused
	FailedOver  uint64 `json:"failed_over"`  // rooms of dead nodes that this instance failed over
	Conflicts   uint64 `json:"conflicts"`    // rooms that two nodes hosted and that this node lost
	StoreErrors uint64 `json:"store_errors"` // calls of the store that failed or that the breaker rejected
	Repinned    uint64 `json:"repinned"`     // pins of hosted rooms that were restored after the store lost them
	Requests    uint64 `json:"requests"`     // calls of Host
	Misrouted   uint64 `json:"misrouted"`    // calls of Host for a room that lives elsewhere
	Relays      uint64 `json:"relays"`       // calls of Relays
	Outgrown    uint64 `json:"outgrown"`     // joins that Config.LimitGrowth refused
	Rebalanced  uint64 `json:"rebalanced"`   // rooms that Config.Rebalance moved away from this node

	StoreCalls   uint64        `json:"store_calls"` // calls of the store that a caller waited for
	StoreTime    time.Duration `json:"store_ns"`    // sum of their times
	Failovers    uint64        `json:"failovers"`   // sweeps that failed over rooms
	FailoverTime time.Duration `json:"failover_ns"` // sum of their times
	Breaker      string        `json:"breaker"`     // closed, half-open or open; see StoreDoubt

	Hosted     int   `json:"hosted"`      // rooms hosted here now
	Ahead      int64 `json:"ahead"`       // units reserved for the rooms hosted here: see Reserve
	Excess     int64 `json:"excess"`      // units that this node wants to move away because it is overloaded
	Known      int64 `json:"known"`       // rooms in the pin cache now
	StoreDoubt bool  `json:"store_doubt"` // the store does not answer

	// Headroom is how many units new rooms can add to this node before it reaches Config.SoftCeiling. Headroom
	// is 0 if the node takes no new rooms, has no capacity or reports no load.
	Headroom int64 `json:"headroom"`

	// Store is the address of the store, without passwords. Store is empty if the store has no String method.
	Store string `json:"store,omitempty"`

	// StoreProblem is why the store does not answer: a timeout after Config.Budget, or an error of the
	// store's client. StoreProblem is empty if the store answers.
	StoreProblem string `json:"store_problem,omitempty"`

	// StoreUnnotified is why the store does not notify this node of changes immediately. While it is set, cached pins
	// expire after a second, and a host may need 5 s to detect that its room has moved. StoreUnnotified is always empty
	// for a store without a Notified method.
	StoreUnnotified string `json:"store_unnotified,omitempty"`

	// StoreRoundTrip is how long the store takes to answer a heartbeat. StoreRoundTrip is the shortest time
	// of the latest three heartbeats, and 0 before the third. StoreBudget is Config.Budget. If StoreRoundTrip
	// is above a third of StoreBudget, joins may be Degraded although the store answers.
	StoreRoundTrip time.Duration `json:"store_round_trip_ns"`
	StoreBudget    time.Duration `json:"store_budget_ns"`

	// CutOff lists the nodes, sorted by id, that have sent heartbeats to the store for longer than a lease's
	// TTL while gossip did not reach them. Either the network is partitioned or the nodes have never joined
	// each other. CutOff only includes a node if this node has found a room that is pinned to it. The rooms
	// of such a node stay there. If this node has never met the other node, it does not know its address.
	CutOff []lease.NodeID `json:"cut_off,omitempty"`

	// Silent lists the live members, sorted by id, that have sent no heartbeats to this store for a lease's
	// TTL and at least 10 s, although they have a capacity or have sent heartbeats before. A silent member
	// uses another store, uses no store, or does not reach its store. While other nodes can take new rooms,
	// this node places none on a silent member, but rooms that are pinned to a silent member stay there.
	Silent []lease.NodeID `json:"silent,omitempty"`

	// Refused is the text of the ErrSettings that prevents this node from placing rooms. Refused is empty if
	// the settings agree.
	Refused string `json:"refused,omitempty"`

	// StoreWithin maps each histogram bound to the number of store calls that took at most that long. Asked
	// counts the calls of Resolve that the pin cache did not answer. AskedTime is the sum of their times, and
	// AskedWithin is their histogram.
	StoreWithin map[time.Duration]uint64 `json:"-"`
	Asked       uint64                   `json:"-"`
	AskedTime   time.Duration            `json:"-"`
	AskedWithin map[time.Duration]uint64 `json:"-"`

	Evacuation *Evacuation `json:"-"` // the evacuation in progress or the latest one; nil: there was none
}

// Evacuation describes the progress of package evacuate, which moves all rooms away from this node.
type Evacuation struct {
	Left   int    `json:"left"`            // rooms that live on this node
	Moved  int    `json:"moved"`           // rooms that moved to other nodes
	Ended  int    `json:"ended"`           // rooms that ended by themselves
	Failed int    `json:"failed"`          // remaining rooms whose latest attempt to move failed
	Why    string `json:"why,omitempty"`   // reason of the latest failure
	Over   bool   `json:"over"`            // no room is left, or the evacuation ended with Error
	Error  string `json:"error,omitempty"` // for people
}

// Evacuating is for package evacuate. Evacuating starts a new Evacuation in Stats, and returns a function
// that updates the Evacuation until the next one starts.
func (r *Resolver) Evacuating() (show func(Evacuation)) {
	at := &r.counts.evacuation
	last := new(Evacuation)
	at.Store(last)
	return func(e Evacuation) {
		if at.CompareAndSwap(last, &e) {
			last = &e
		}
	}
}

type counters struct {
	sources      [Degraded + 1]atomic.Uint64
	failedOver   atomic.Uint64
	conflicts    atomic.Uint64
	unplaced     atomic.Uint64
	crowded      atomic.Uint64
	noCapacity   atomic.Uint64
	repinned     atomic.Uint64
	requests     atomic.Uint64
	misrouted    atomic.Uint64
	relays       atomic.Uint64
	rebalanced   atomic.Uint64
	outgrown     atomic.Uint64
	excess       atomic.Int64
	ahead        atomic.Int64
	asked        latency.Histogram
	failovers    atomic.Uint64
	failoverTime atomic.Int64
	evacuation   atomic.Pointer[Evacuation]
}

func (c *counters) add(s Source) { c.sources[s].Add(1) }

// Stats returns the counters.
func (r *Resolver) Stats() Stats {
	c := &r.counts
	s := Stats{
		Cached: c.sources[Cached].Load(), Pinned: c.sources[Pinned].Load(), Hash: c.sources[Hash].Load(),
		Override: c.sources[Override].Load(), Degraded: c.sources[Degraded].Load(), Unplaced: c.unplaced.Load(),
		Crowded: c.crowded.Load(), NoCapacity: c.noCapacity.Load(), Headroom: r.headroom(),
		FailedOver: c.failedOver.Load(), Conflicts: c.conflicts.Load(), Repinned: c.repinned.Load(),
		Requests: c.requests.Load(), Misrouted: c.misrouted.Load(), Relays: c.relays.Load(), Rebalanced: c.rebalanced.Load(), Excess: c.excess.Load(), Ahead: c.ahead.Load(), Outgrown: c.outgrown.Load(),
		Failovers: c.failovers.Load(), FailoverTime: time.Duration(c.failoverTime.Load()),
		Hosted: r.hosts.count(), Known: r.cache.Size(), Evacuation: c.evacuation.Load(),
		CutOff: r.liveness.CutOff(), Silent: r.silence.Named(),
	}
	if at, ok := r.store.Store.(fmt.Stringer); ok {
		s.Store = at.String()
	}
	if notifier, ok := r.store.Store.(interface{ Notified() error }); ok {
		if err := notifier.Notified(); err != nil {
			s.StoreUnnotified = err.Error()
		}
	}
	store := r.store.Stats()
	s.StoreCalls, s.StoreTime, s.StoreWithin, s.StoreErrors = store.Took.Calls, store.Took.Took, store.Took.Within, store.Errors
	asked := c.asked.Counts()
	s.Asked, s.AskedTime, s.AskedWithin = asked.Calls, asked.Took, asked.Within
	s.Breaker, s.StoreDoubt, s.StoreProblem = store.Breaker, store.Doubt, store.Problem
	s.StoreRoundTrip, s.StoreBudget = store.RoundTrip, r.cfg.Budget
	if err := r.store.agreement.Refused(); err != nil {
		s.Refused = err.Error()
	}
	return s
}

// worklist is a set of pending items, with a channel that wakes the goroutine that processes them.
type worklist[K comparable] struct {
	wake chan struct{} // contains a token while there may be items

	mu    sync.Mutex
	items map[K]struct{}
}

func newWorklist[K comparable]() worklist[K] {
	return worklist[K]{wake: make(chan struct{}, 1), items: make(map[K]struct{})}
}

// add adds items and wakes the goroutine.
func (w *worklist[K]) add(items ...K) {
	w.mu.Lock()
	for _, item := range items {
		w.items[item] = struct{}{}
	}
	w.mu.Unlock()
	w.signal()
}

func (w *worklist[K]) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // there is already a token
	}
}

// take removes and returns at most limit items. If more items remain, take signals again.
func (w *worklist[K]) take(limit int) []K {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := make([]K, 0, min(limit, len(w.items)))
	for item := range w.items {
		if len(taken) == limit {
			w.signal()
			break
		}
		delete(w.items, item)
		taken = append(taken, item)
	}
	return taken
}
