package affinity

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/sync/singleflight"
)

// Resolver tells where rooms live, keeps the pins of those that are hosted here,
// and gives the rooms of nodes that die a new home. All its methods may be
// called from any goroutine.
type Resolver struct {
	agent  *cluster.Agent
	store  Store
	cfg    Config
	self   lease.NodeID
	limits ceilings
	log    *slog.Logger

	known   known
	joins   singleflight.Group // Resolve's questions to the store
	hosts   singleflight.Group // Host's, which must not be answered from what is known
	breaker *gobreaker.CircuitBreaker[[]Result]
	counts  counters
	moves   moves
	strain  pressures

	mu       sync.Mutex
	hosted   map[string]*Hosting
	reserved reservations
	cut      map[lease.Incarnation]struct{}   // dead by gossip, alive by the store
	gone     map[lease.Incarnation]time.Time  // dead by both, as of then
	dirty    map[string]struct{}              // rooms whose pin somebody changed
	audits   map[placement.Partition]struct{} // where to look for rooms of the dead
	fences   uint64
	trust    trust

	wake   chan struct{} // there is something dirty
	audit  chan struct{} // there are audits
	stop   context.CancelFunc
	closed atomic.Bool
	away   atomic.Bool // the store has not answered several signings in a row

	closing  sync.Once
	farewell error // of Close
	wait     sync.WaitGroup
}

// Start returns a running Resolver over a store that all nodes share. It does
// not wait for the agent or for the store. Close it before the agent leaves.
func Start(agent *cluster.Agent, store Store, cfg Config) (*Resolver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	self := lease.NodeID(agent.Config().ID)
	if least := 5 * agent.Config().HeartbeatInterval; cfg.PinTTL < least {
		return nil, fmt.Errorf("affinity: PinTTL is %v; with this agent's heartbeat it must be at least %v", cfg.PinTTL, least)
	}
	r := &Resolver{
		agent: agent, store: store, cfg: cfg, self: self,
		limits: ceilings{cfg.SoftCeiling, cfg.HardCeiling},
		log:    cfg.Log.With("node", self),
		known:  known{max: int64(cfg.MaxKnown)},
		hosted: make(map[string]*Hosting),
		reserved: reservations{
			settle: cfg.Settle, nodes: make(map[lease.NodeID]*reserved),
		},
		cut: make(map[lease.Incarnation]struct{}), gone: make(map[lease.Incarnation]time.Time),
		dirty: make(map[string]struct{}), audits: make(map[placement.Partition]struct{}),
		wake: make(chan struct{}, 1), audit: make(chan struct{}, 1),
	}
	r.breaker = newBreaker(r)
	r.fences = agent.Snapshot().Stats.Fences
	store.Notify(r.changed)
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	if cfg.ReportLoad {
		agent.SetLoad(0)
	}
	r.wait.Go(func() { r.keep(ctx) })
	r.wait.Go(func() { r.rehome(ctx) })
	return r, nil
}

// Close ends the resolver and everything that is hosted here, and tells the
// store so: once the agent has left, others take the rooms at once. It waits, and
// may be called again.
func (r *Resolver) Close() error {
	r.closing.Do(func() {
		r.closed.Store(true)
		r.stop()
		r.wait.Wait()
		r.loseAll(ErrClosed)
		r.moves.close()
		r.strain.Close()
		ctx, cancel := context.WithTimeout(context.Background(), farewellTime)
		defer cancel()
		if _, err := r.store.Sign(ctx, r.selfLife(), 0, nil); err != nil {
			r.farewell = fmt.Errorf("affinity: closed, but others have yet to find out: %w", err)
		}
	})
	return r.farewell
}

// Resolve returns where a room lives. A room that is not pinned is pinned now:
// to the owner of its partition if that has headroom for the demand, else to the
// least loaded node that has. However many ask at once, from wherever, all get
// the same answer.
//
// It takes no round trip to the store if the pin is known here to stand, one
// otherwise, and up to three more if the pin names a node that has just died. If
// the store does not answer within Config.Budget, the assignment is Degraded: by
// what is known here, else by the hash alone.
//
// It fails with ErrName, ErrDemand, ErrNoCapacity, ErrChanged (several times in a
// row), ErrClosed, what Agent.Place fails with, or ctx.Err() if ctx ends before
// the budget does.
func (r *Resolver) Resolve(ctx context.Context, room string, d Demand) (Assignment, error) {
	ctx, end := r.begin(ctx, "resolve", room)
	if end == nil {
		return r.resolve(ctx, room, d)
	}
	a, err := r.resolve(ctx, room, d)
	end(a, err)
	return a, err
}

func (r *Resolver) resolve(ctx context.Context, room string, d Demand) (Assignment, error) {
	if err := check(room, d); err != nil {
		return Assignment{}, err
	}
	if a, ok := r.cached(room); ok {
		return a, nil
	}
	return r.ask(ctx, &r.joins, room, d, func() (Assignment, bool) {
		return r.cached(room) // it may have been answered while this caller was on the way here
	})
}

// cached answers by a pin that is known here to stand.
func (r *Resolver) cached(room string) (Assignment, bool) {
	m := r.known.get(room)
	if m == nil || !r.known.isFresh(m, time.Now()) {
		return Assignment{}, false
	}
	s := r.agent.Snapshot()
	node := findLife(s, m.pin.Incarnation)
	if node == nil {
		return Assignment{}, false
	}
	r.counts.add(Cached)
	return Assignment{
		Room: room, Partition: placement.Of(room, s.Table.Partitions()), Incarnation: m.pin.Incarnation, Epoch: m.pin.Epoch,
		Source: Cached, Reason: "its pin is known to stand", Member: node,
	}, true
}

// ask asks the store, unless there is a shortcut by then. Whoever asks for the
// same room by the same flight meanwhile shares the answer.
func (r *Resolver) ask(ctx context.Context, flight *singleflight.Group, room string, d Demand, shortcut func() (Assignment, bool)) (Assignment, error) {
	answer := flight.DoChan(room, func() (any, error) {
		if a, ok := shortcut(); ok {
			return a, nil
		}
		budget, cancel := r.budget(ctx)
		defer cancel()
		a, err := r.settle(budget, room, d)
		r.counts.add(a.Source)
		return a, err
	})
	select {
	case got := <-answer:
		return got.Val.(Assignment), got.Err
	case <-ctx.Done():
		return Assignment{}, ctx.Err()
	}
}

// Lookup returns where a room lives without pinning one that is not: then it
// fails with ErrNoPin. If the store does not answer, it says what is known here,
// as Degraded, or fails with ErrStore.
func (r *Resolver) Lookup(ctx context.Context, room string) (Assignment, error) {
	if err := CheckName(room); err != nil {
		return Assignment{}, err
	}
	s, err := r.ready(room)
	if err != nil {
		return Assignment{}, err
	}
	pin, err := r.read(ctx, s, room)
	m := r.known.get(room)
	switch {
	case err != nil && m != nil && findLife(s, m.pin.Incarnation) != nil:
		return r.assign(s, room, Pin{Incarnation: m.pin.Incarnation}, Degraded, "it was known to live here when the store was last heard"), nil
	case err != nil:
		return Assignment{}, err
	case pin == (Pin{}):
		return Assignment{}, fmt.Errorf("%w: %q", ErrNoPin, room)
	}
	if findLife(s, pin.Incarnation) == nil {
		return r.assign(s, room, pin, Pinned, "its node is not live here; it gets a new one when somebody asks for it"), nil
	}
	return r.assign(s, room, pin, Pinned, "its pin stands"), nil
}

// Explanation says why a room lives where it does, or would.
type Explanation struct {
	Assignment Assignment  // as it is, or what Resolve would choose; nothing is pinned
	Pinned     bool        // it is
	Candidates []Candidate // every live member, best for the room's partition first
}

// Explain returns why a room lives where it does, or where it would be pinned
// now, with every candidate and why it was taken or was not. It changes nothing.
func (r *Resolver) Explain(ctx context.Context, room string, d Demand) (Explanation, error) {
	if err := check(room, d); err != nil {
		return Explanation{}, err
	}
	s, err := r.ready(room)
	if err != nil {
		return Explanation{}, err
	}
	a, err := r.Lookup(ctx, room)
	e := Explanation{Assignment: a, Pinned: err == nil && a.Source != Degraded}
	q := r.question(s, room, d.Size)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && !errors.Is(err, ErrNoPin) && !errors.Is(err, ErrStore) {
		return Explanation{}, err
	}
	if err != nil {
		if c, cause := choose(s, q, r.limits, r.reserved.of); cause == nil {
			if errors.Is(err, ErrStore) {
				c.source, c.reason = Degraded, "the store does not answer, so it may be pinned elsewhere; else "+c.reason
			}
			e.Assignment = r.assign(s, room, Pin{Incarnation: c.life()}, c.source, c.reason)
		} else {
			e.Assignment = Assignment{Room: room, Partition: q.partition, Reason: cause.Error()}
		}
	}
	e.Candidates = explain(s, q, e.Assignment.Node, r.limits, r.reserved.of)
	return e, nil
}

// Edges returns the n best nodes for a room beside the one where it lives, for a
// room that has outgrown one node: those with headroom for the demand first, then
// in the order of Owners. There are fewer if there are fewer nodes.
func (r *Resolver) Edges(ctx context.Context, room string, d Demand, n int) ([]*cluster.Member, error) {
	e, err := r.Explain(ctx, room, d)
	if err != nil {
		return nil, err
	}
	cost := r.cfg.Cost(d.Size)
	var free, full []*cluster.Member
	for _, c := range e.Candidates {
		switch {
		case c.Taken || !takesRooms(c.Member):
		case c.Member.Capacity > 0 && c.Member.Load != lease.NoLoad && c.used()+cost <= c.Ceiling:
			free = append(free, c.Member)
		default:
			full = append(full, c.Member)
		}
	}
	all := append(free, full...)
	return all[:min(max(0, n), len(all))], nil
}

// Rooms returns at most limit rooms that are pinned to a node, or to any if it
// is empty, in no particular order. It is for people: it asks the store about
// every partition.
func (r *Resolver) Rooms(ctx context.Context, node lease.NodeID, limit int) ([]Entry, error) {
	s := r.agent.Snapshot()
	if s.Table == nil {
		return nil, cluster.ErrNotReady
	}
	all := make([]placement.Partition, s.Table.Partitions())
	for i := range all {
		all[i] = placement.Partition(i)
	}
	return r.store.Index(ctx, all, func(l lease.Incarnation) bool {
		return l.Number != 0 && (node == "" || l.Node == node)
	}, limit)
}

// Moves returns the rooms that get another home, for as long as ctx lasts: those
// that this instance moves, and those known here that others move, as far as the
// store notifies. A slow reader holds nobody up; what happens meanwhile merges.
func (r *Resolver) Moves(ctx context.Context) iter.Seq[MovedBatch] { return r.moves.watch(ctx) }

// Pressures returns this node's pressure whenever it changes: that it carries
// more than its soft ceiling and which rooms weigh most, and when that is over.
// Nothing moves by itself: see Move.
func (r *Resolver) Pressures(ctx context.Context) iter.Seq[Pressure] { return r.strain.watch(ctx) }

// assign completes an assignment.
func (r *Resolver) assign(s *cluster.Snapshot, room string, pin Pin, source Source, reason string) Assignment {
	return Assignment{
		Room: room, Partition: placement.Of(room, s.Table.Partitions()), Incarnation: pin.Incarnation, Epoch: pin.Epoch,
		Source: source, Reason: reason, Member: find(s, pin.Node),
	}
}

// ready returns a snapshot that can place the room.
func (r *Resolver) ready(room string) (*cluster.Snapshot, error) {
	s := r.agent.Snapshot()
	if r.closed.Load() {
		return s, ErrClosed
	}
	_, err := s.Place(room)
	return s, err
}

func (r *Resolver) question(s *cluster.Snapshot, room string, size int) question {
	return question{
		room: room, partition: placement.Of(room, s.Table.Partitions()), size: size, cost: r.cfg.Cost(size),
	}
}

func (r *Resolver) selfLife() lease.Incarnation {
	return lease.Incarnation{Node: r.self, Number: r.agent.Snapshot().Self.Incarnation}
}

func check(room string, d Demand) error { return errors.Join(CheckName(room), checkSize(d.Size)) }

// jittered returns d ± 20 %.
func jittered(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5+1)
}
