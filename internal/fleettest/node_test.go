package fleettest

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// setup is the configuration of a node. It can be sent to another process.
type setup struct {
	ID       string
	Cluster  string
	Join     []string
	URL      string // of Redis
	Capacity int64
	TTL      time.Duration // of leases
	LAN      bool          // the timings for a data center, not for a single machine
	Zones    bool          // the ID begins with region and zone: eu-1-a is in zone eu-1 of region eu

	// Settings that all nodes must share; 0 and "" are the defaults.
	Partitions int
	Prefix     string // of keys
	CostTimes  int64  // a multiple of the default

	// As in affinity.Config.
	Budget      time.Duration
	Settle      time.Duration
	HardCeiling int
	ReportLoad  bool
}

// node is a member of a fleet: an agent, its own connection to Redis, and a resolver.
type node struct {
	agent *cluster.Agent
	store *meter
	rooms *affinity.Resolver
}

func startNode(ctx context.Context, s setup) (*node, error) {
	quiet := slog.New(slog.DiscardHandler)
	network := cluster.Local
	if s.LAN {
		network = cluster.LAN
	}
	var zone string
	var labels map[string]string
	if s.Zones {
		region, rest, _ := strings.Cut(s.ID, "-")
		number, _, _ := strings.Cut(rest, "-")
		zone, labels = region+"-"+number, map[string]string{"region": region}
	}
	// All nodes share a clock, so skew only appears to exist when the machine is busy.
	agent, err := cluster.Start(ctx, cluster.Config{
		Zone: zone, Labels: labels,
		ID: s.ID, Cluster: s.Cluster, Bind: "127.0.0.1:0", Join: s.Join, Capacity: s.Capacity,
		Partitions: s.Partitions, Network: network, LeaseTTL: s.TTL, MaxSkew: s.TTL, Log: quiet,
	})
	if err != nil {
		return nil, err
	}
	n := &node{agent: agent}
	conn, err := rueidisconn.Open(ctx, rueidisconn.Options{URL: s.URL})
	if err != nil {
		return nil, errors.Join(err, agent.Close())
	}
	redis, err := redisstore.New(conn, redisstore.Options{Prefix: s.Prefix})
	if err != nil {
		return nil, errors.Join(err, agent.Close())
	}
	n.store = &meter{Store: redis, moves: make(map[string]int)}
	cfg := affinity.Config{Budget: s.Budget, Settle: s.Settle, HardCeiling: s.HardCeiling, ReportLoad: s.ReportLoad, Log: quiet}
	if s.CostTimes != 0 {
		cfg.Cost = func(d affinity.Demand) int64 { return s.CostTimes * d.Streams() }
	}
	if n.rooms, err = affinity.Start(agent, n.store, cfg); err != nil {
		return nil, errors.Join(err, redis.Close(), agent.Close())
	}
	if !cfg.ReportLoad {
		agent.SetLoad(0)
	}
	return n, nil
}

func (n *node) incarnation() lease.Incarnation {
	self := n.agent.Snapshot().Self
	return lease.Incarnation{Node: self.ID, Number: self.Incarnation}
}

// close ends the node. It ignores the error, because Redis may have ended earlier.
func (n *node) close() {
	_ = n.rooms.Close()
	_ = n.agent.Close()
	_ = n.store.Close()
}

// meter counts the calls to a store. It can also block them for a moment, so that no call is in progress while the
// server's own counters are read.
type meter struct {
	*redisstore.Store
	gate              sync.RWMutex
	swaps, heartbeats atomic.Int64 // a comparison of settings takes two commands, and counts as two heartbeats
	swapped           atomic.Int64 // ops in swaps
	lists             atomic.Int64 // of reservations

	mu    sync.Mutex
	moves map[string]int // by room
}

func (m *meter) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	m.gate.RLock()
	defer m.gate.RUnlock()
	m.swaps.Add(1)
	m.swapped.Add(int64(len(ops)))
	results := m.Store.Swap(ctx, ops...)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, op := range ops {
		if from := op.If.Incarnation; results[i].Done && from.Number != 0 && op.Set.Number != 0 && from != op.Set.Incarnation {
			m.moves[op.Room]++
		}
	}
	return results
}

// moved returns how many times this node moved each room.
func (m *meter) moved() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.moves)
}

func (m *meter) Index(
	ctx context.Context,
	parts []placement.Partition,
	want func(lease.Incarnation) bool,
	limit int,
) ([]pinstore.Entry, error) {
	m.gate.RLock()
	defer m.gate.RUnlock()
	return m.Store.Index(ctx, parts, want, limit)
}

func (m *meter) Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	m.gate.RLock()
	defer m.gate.RUnlock()
	m.heartbeats.Add(1)
	return m.Store.Heartbeat(ctx, self, ttl, ask)
}

func (m *meter) Agree(ctx context.Context, self lease.Incarnation, ttl time.Duration, s pinstore.Settings) (pinstore.Agreed, error) {
	m.gate.RLock()
	defer m.gate.RUnlock()
	m.heartbeats.Add(2)
	return m.Store.Agree(ctx, self, ttl, s)
}

func (m *meter) Reserve(ctx context.Context, r pinstore.Reservation) error {
	m.gate.RLock()
	defer m.gate.RUnlock()
	return m.Store.Reserve(ctx, r)
}

func (m *meter) Reservations(ctx context.Context) ([]pinstore.Reservation, error) {
	m.gate.RLock()
	defer m.gate.RUnlock()
	m.lists.Add(1)
	return m.Store.Reservations(ctx)
}

// each calls f for every item, with limited concurrency.
func each[T any](atOnce int, items []T, f func(i int, item T)) {
	var next atomic.Int64
	var wait sync.WaitGroup
	for range atOnce {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(items)); i = next.Add(1) - 1 {
				f(int(i), items[i])
			}
		})
	}
	wait.Wait()
}
