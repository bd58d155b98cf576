package cluster

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/events/latest"
	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/logqueue"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Agent is a node of a cluster that runs inside this process. All its methods are safe for concurrent use.
type Agent struct {
	cfg    Config
	self   lease.NodeID
	gossip *gossip.Node
	env    gossip.Env

	// The loop publishes these fields.
	snap  latest.Value[Snapshot]
	feed  events.Feed
	ready chan struct{}

	cluster atomic.Pointer[lease.ClusterID] // the cluster's identity

	// These fields pass data to the loop.
	packets chan []byte
	calls   chan call
	load    atomic.Int64 // own.Total()
	in      traffic

	reporting sync.Mutex // protects own
	own       Load

	registering sync.Mutex // protects beforeLeave
	beforeLeave []*func() error
	parting     sync.Once     // runs the functions of beforeLeave
	parted      chan struct{} // closed when the functions of beforeLeave have returned; parting creates it
	partErr     error         // valid once parted is closed

	started time.Time    // monotonic start time; Snapshot.lease and turned are relative to it
	turned  atomic.Int64 // when the loop last completed a round, in ns since started
	lines   *logqueue.Queue
	stop    context.CancelFunc
	wait    sync.WaitGroup
	ended   chan struct{} // closed when the loop has stopped; it then answers no more calls
	done    chan struct{} // closed when everything has stopped
	err     error         // valid once done is closed

	// Arrived increments these counters. They are far from snap, in another cache line, because every lookup reads
	// snap.
	requests, misrouted atomic.Uint64

	history atomic.Pointer[History]

	join        atomic.Pointer[[]string] // seeds set by SetJoin; nil means Config.Join
	discovering chan struct{}            // holds a token while Config.Discover runs

	rekeying sync.Mutex // serializes changes of the gossip keys

	scopes atomic.Pointer[[]*Scope] // replaced by the loop; nil means none
}

// Start joins the cluster and returns the running agent. ctx limits only the join. Start returns when a seed has
// answered, or immediately if there are no seeds. If no seed answers, Start tries each of them, waits for StartupGrace,
// and returns an agent that runs alone and keeps trying. Start waits longer if a seed accepts connections but does not
// answer. Start does not wait longer if a seed closes connections without sending a byte, because a proxy does that
// when its target is down. The agent owns nothing until Ready is closed.
//
// Start fails if cfg is invalid, if Bind is in use, if ctx ends first, or if every seed that answers refuses this node.
// If the seeds refuse the node, the error wraps a *SettingsError, ErrKey or ErrCluster. Start also fails if other nodes
// cannot reach this node. This is the case if the node has a loopback address but no seed has one, and if the node must
// guess its address but the host has no suitable address.
func Start(ctx context.Context, cfg Config) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults().clone()
	cfg.Log = cfg.Log.With("node", cfg.ID)
	log, lines, endLog := logqueue.Through(cfg.Log)
	for _, w := range cfg.warnings() {
		log.Warn("risky configuration", "why", w)
	}
	a := &Agent{
		cfg: cfg, self: lease.NodeID(cfg.ID), env: gossip.EnvOf(ctx),
		ready: make(chan struct{}), ended: make(chan struct{}), done: make(chan struct{}),
		packets: make(chan []byte, queuedPackets), calls: make(chan call),
		lines: lines, discovering: make(chan struct{}, 1),
	}
	running, stop := context.WithCancel(context.Background())
	a.stop = stop
	a.cluster.Store(new(lease.ClusterID))
	incarnation := uint64(a.now().UnixNano())
	var err error
	own := settingsOf(cfg)
	refusals := make(chan error, 8)
	seeds, _ := cfg.seeds()
	a.gossip, err = gossip.Start(ctx, gossip.Config{
		Name: fmt.Sprintf("%s#%d", cfg.ID, incarnation),
		Bind: cfg.Bind, Advertise: cfg.Advertise, Cluster: cfg.Cluster, Key: cfg.Key, OldKeys: cfg.OldKeys, Allow: cfg.GossipAllow,
		Seeds: seeds, LookUp: a.lookUpSeeds,
		Profile: cfg.Network.timings().profile, Log: log,
		Meta:          func() []byte { return own.meta(*a.cluster.Load()) },
		Ours:          func(meta []byte) bool { return ofCluster(*a.cluster.Load(), meta) },
		StreamTimeout: cfg.Network.timings().stream,
		Accept: func(peer string, meta []byte) error {
			err := own.accept(peer, meta)
			if err != nil {
				select {
				case refusals <- err:
				default: // drop the error: the log is rate-limited anyway
				}
			}
			return err
		},
		Live: a.live, Self: a.peer, Ended: a.streamEnded, IdleTimeout: cfg.LeaseTTL / 2,
		Meet: func(p gossip.Peer) error { return a.met(node.Exchange{}, p) },
	}, receiver{a})
	if err != nil {
		stop()
		endLog()
		return nil, fmt.Errorf("cluster: start %s: %w", cfg.ID, err)
	}
	a.own = noLoad(cfg)
	a.load.Store(a.own.Total())
	a.started = time.Now()
	now := a.startedAt()
	l := &loop{
		agent: a, log: log, endLog: endLog, refusals: refusals,
		history: history{public: &a.history, fenced: make(map[lease.NodeID]struct{})},
		core:    node.New(now, cfg.core(a.gossip, incarnation), rand.Uint64()),
	}
	l.show()
	if cfg.Health != nil {
		a.wait.Go(func() { a.watchHealth(running) })
	}
	go func() {
		l.run(running)
		a.reap(l)
	}()
	if err := a.awaitJoin(ctx); err != nil {
		_ = a.Close()
		return nil, err
	}
	return a, nil
}

// reap stops everything else after the loop has stopped. Exchanges and DNS lookups can still be waiting for
// the network or, via memberlist, for the loop.
func (a *Agent) reap(l *loop) {
	a.stop()
	close(a.ended)
	_ = a.gossip.Close()
	a.wait.Wait()
	a.err = l.err
	a.feed.Close()
	for _, sc := range a.Scopes() {
		sc.feed.Close()
	}
	l.endLog()
	close(a.done)
}

// now returns the current time for the core, with a monotonic and a wall clock reading. Tests can set the
// wall clock ahead. startedAt returns the start time in the same way.
func (a *Agent) now() time.Time       { return time.Now().Add(a.env.ClockOffset) }
func (a *Agent) startedAt() time.Time { return a.started.Add(a.env.ClockOffset) }

// Place returns the member that owns key. Don't modify the member. Place takes no lock and allocates nothing:
// it hashes the key and reads two arrays. A node that is isolated or fenced uses its last table: see
// Snapshot.Stale. Place returns ErrNotReady until Ready is closed, ErrNoMembers if no member can own
// anything, and ErrClosed after the agent has stopped.
func (a *Agent) Place(key string) (*Member, error) { return a.snap.Load().Place(key) }

// IsOwner reports whether this node owns key and its own lease is still valid. If the process was paused for
// longer than the TTL, IsOwner returns false as soon as the process runs again. IsOwner takes no lock,
// allocates nothing, and reads the monotonic clock.
func (a *Agent) IsOwner(key string) bool { return a.Owns(a.Partition(key)) }

// Arrived is like IsOwner, for a request that was routed to this node by its key. Arrived also counts the
// request in [Stats], where the share of misrouted requests shows how often clients use an old table.
// Counting costs one or two atomic additions.
func (a *Agent) Arrived(key string) (owner bool) {
	owner = a.IsOwner(key)
	a.requests.Add(1)
	if !owner {
		a.misrouted.Add(1)
	}
	return owner
}

// Owns is like IsOwner, for a partition.
func (a *Agent) Owns(p placement.Partition) bool {
	s := a.snap.Load()
	return s.owns(p) && s.lease.Holds(time.Since(a.started))
}

// Live reports whether other nodes that can reach this node consider it live: it is active, draining or
// isolated, and its own lease is still valid. If the process was paused for longer than the TTL, Live returns
// false as soon as the process runs again.
func (a *Agent) Live() bool {
	s := a.snap.Load()
	return (s.Phase == PhaseActive || s.Phase == PhaseIsolated) && s.lease.Holds(time.Since(a.started))
}

// Owned returns the partitions that this node owns now, in ascending order. Owned returns no partitions if
// the node's own lease has expired. The call costs O(partitions).
func (a *Agent) Owned() []placement.Partition { return a.owned(a.snap.Load()) }

// owned is like Owned, for a snapshot of the agent or of a scope.
func (a *Agent) owned(s *Snapshot) []placement.Partition {
	if s.State == nil || !s.lease.Holds(time.Since(a.started)) {
		return nil
	}
	return s.State.Owned()
}

// Owners returns the n best members for key, all different and the best first: the owner, then the member
// that would own key without the owner, and so on. Owners allocates its result. For n up to 3, Owners costs
// little more than Place. For a greater n, and for the first call for a partition after the table has
// changed, Owners costs O(members).
func (a *Agent) Owners(key string, n int) []*Member { return a.snap.Load().Owners(key, n) }

// OwnersNear returns the same members as Owners, but lists the members in zone first. Use OwnersNear for
// readers that can read any of n replicas.
func (a *Agent) OwnersNear(key string, n int, zone string) []*Member {
	return a.snap.Load().OwnersNear(key, n, zone)
}

// Subset returns n members for a tenant (shuffle sharding). Subset selects one member of each zone before it
// selects a second member of any zone. All nodes with the same table return the same members, and a node that
// joins or leaves replaces at most one of them. See placement.Table.Subset.
func (a *Agent) Subset(tenant string, n int) []*Member { return a.snap.Load().Subset(tenant, n) }

// Partition returns the partition of key. The partition of a key is the same on every node.
func (a *Agent) Partition(key string) placement.Partition {
	return placement.Of(key, a.cfg.Partitions)
}

// OwnerOf returns the owner of p, and false if p has no owner. OwnerOf costs as much as Place without the
// hash.
func (a *Agent) OwnerOf(p placement.Partition) (*Member, bool) { return a.snap.Load().OwnerOf(p) }

// Members returns the live members, sorted by ID. While the node is fenced, Members returns the last known
// members. The slice is shared and must not be modified.
func (a *Agent) Members() []*Member { return a.snap.Load().Members }

// Member returns the live member with this ID, and false if no live member has it. The lookup costs O(log
// members). Don't modify the member.
func (a *Agent) Member(id lease.NodeID) (*Member, bool) { return a.snap.Load().Member(id) }

// Snapshot returns everything that this node knows as of the latest change. Ages and loads are from the
// latest heartbeats.
func (a *Agent) Snapshot() *Snapshot { return a.snap.Load() }

// Latest returns the Snapshot, and a channel that is closed when a later snapshot replaces it. Each change
// creates a new snapshot, and so do new ages and loads, about ten times a second. After the agent has
// stopped, the channel remains open.
func (a *Agent) Latest() (*Snapshot, <-chan struct{}) { return a.snap.Get() }

// Config returns the configuration that the agent runs with, including the defaults but without the keys.
func (a *Agent) Config() Config {
	cfg := a.cfg.clone()
	cfg.Key, cfg.OldKeys = nil, nil
	if join := a.join.Load(); join != nil {
		cfg.Join = slices.Clone(*join)
	}
	return cfg
}

// Addr returns the ip:port at which other nodes reach this one. If the agent guessed the address, it changes
// when the host gets another address: see Config.Advertise.
func (a *Agent) Addr() string { return a.gossip.Addr() }

// Watch returns the changes of ownership and membership; see events.Watch. The first batch contains all
// partitions that the node owns now.
func (a *Agent) Watch(ctx context.Context) iter.Seq[events.Batch] { return events.Watch(ctx, &a.feed) }

// Subscribe is like Watch, for select loops; see events.Subscribe.
func (a *Agent) Subscribe(ctx context.Context) <-chan events.Batch {
	return events.Subscribe(ctx, &a.feed)
}

// RunOwned runs f for each partition that this node owns, and cancels the context of f when the node no
// longer owns the partition. RunOwned returns when ctx has ended and all calls of f have returned. See
// events.RunOwned and Config.Handoff.
func (a *Agent) RunOwned(ctx context.Context, f func(context.Context, placement.Partition)) error {
	return events.RunOwned(ctx, &a.feed, f)
}

// Reader returns a reader of the changes. Watch, Subscribe and RunOwned are built on it; see events.Reader. The caller
// must close it.
func (a *Agent) Reader(name string) *events.Reader { return a.feed.Reader(name) }

// ReaderStats reports who reads the agent's changes and how far behind each reader is. The readers' names are
// "watch", "subscribe", "run_owned" and the names passed to Reader.
func (a *Agent) ReaderStats() []events.ReaderStats { return a.feed.ReaderStats() }

// Ready returns a channel that is closed when the node has computed its first table.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// LoopAge returns how long ago the agent's loop last completed a round. The loop completes a round at least
// once per heartbeat. If the loop is blocked for LeaseTTL, because a Strategy does not return or the process
// gets no CPU, the node has lost its lease. A liveness probe should then fail, as /healthz of package
// clusterhttp does.
func (a *Agent) LoopAge() time.Duration {
	return time.Since(a.started) - time.Duration(a.turned.Load())
}

// Converged reports whether all live members have the same table, as far as this node knows.
func (a *Agent) Converged() bool { return a.snap.Load().Converged() }

// WaitConverged waits until Converged is true.
func (a *Agent) WaitConverged(ctx context.Context) error {
	return a.await(ctx, (*Snapshot).Converged)
}

// await waits until a snapshot meets the condition.
func (a *Agent) await(ctx context.Context, condition func(*Snapshot) bool) error {
	for {
		s, replaced := a.snap.Get()
		select {
		case <-a.ended:
			return ErrClosed
		default:
		}
		if condition(s) {
			return nil
		}
		select {
		case <-replaced:
		case <-a.ended:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Done returns a channel that is closed when the agent has stopped for any reason.
func (a *Agent) Done() <-chan struct{} { return a.done }

// Err returns why the agent stopped by itself, as a *DuplicateIDError. Err returns nil if the agent is
// running or was closed.
func (a *Agent) Err() error {
	select {
	case <-a.done:
		return a.err
	default:
		return nil
	}
}
