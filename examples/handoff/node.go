package main

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/placement"
)

const partitions = 64

// node is one member of the store: its agent, and the partitions that it holds.
type node struct {
	agent *cluster.Agent
	peers *sync.Map // all nodes by id; in production, connections to each Member's APIAddr

	mu   sync.Mutex
	held map[placement.Partition]*shard
}

// shard is the data of one partition. While it is open, its node serves the partition, and no other node has
// a copy.
type shard struct {
	open bool
	data map[string]entry
}

// entry is a versioned value. If there are two entries for a key, the one with the later version wins.
// Merging the same data twice, or merging old data late, is therefore safe.
type entry struct {
	value   string
	version int
}

func merge(dst, src map[string]entry) {
	for key, e := range src {
		if e.version > dst[key].version {
			dst[key] = e
		}
	}
}

func start(ctx context.Context, peers *sync.Map, cfg cluster.Config) (*node, error) {
	cfg.Bind, cfg.Network, cfg.Partitions = "127.0.0.1:0", cluster.Local, partitions
	cfg.LeaseTTL = 20 * time.Second // no node crashes here, and agents can lack CPU time on a busy machine
	cfg.Handoff = time.Minute       // a new owner's serve starts after the old owner's has returned
	cfg.Log = slog.New(slog.DiscardHandler)
	agent, err := cluster.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	n := &node{agent: agent, peers: peers, held: make(map[placement.Partition]*shard)}
	peers.Store(agent.Snapshot().Self.ID, n)
	go func() { _ = agent.RunOwned(context.Background(), n.serve) }() //nolint:gosec // ends with the agent
	return n, agent.WaitConverged(ctx)
}

// serve runs while this node owns p. The node answers requests for p once it has the data.
func (n *node) serve(ctx context.Context, p placement.Partition) {
	for !n.takeOver(p) {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done(): // no longer the owner
			return
		}
	}
	<-ctx.Done()
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.held[p]; s != nil {
		s.open = false // kept until the next owner has the data
	}
}

// takeOver copies p from every node that holds it, which is usually only the previous owner. Then takeOver
// makes these nodes drop their copies, and opens p here. takeOver returns false if another node believes that
// it owns p, or does not answer. takeOver is safe to repeat.
func (n *node) takeOver(p placement.Partition) bool {
	var others []*node
	for _, m := range n.agent.Members() {
		peer, ok := n.peers.Load(m.ID)
		if !ok {
			return false // it could hold p, so wait until it is no longer a member
		}
		if peer != n {
			others = append(others, peer.(*node))
		}
	}
	for _, peer := range others {
		data, ok := peer.give(p)
		if !ok || !n.update(p, func(s *shard) { merge(s.data, data) }) {
			return false
		}
	}
	for _, peer := range others {
		if !peer.drop(p) {
			return false
		}
	}
	return n.update(p, func(s *shard) { s.open = true })
}

// update changes p and returns true. If this node no longer owns p, update does nothing and returns false,
// because the next owner could already have copied the data.
func (n *node) update(p placement.Partition, change func(*shard)) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.agent.Owns(p) {
		return false
	}
	if n.held[p] == nil {
		n.held[p] = &shard{data: make(map[string]entry)}
	}
	change(n.held[p])
	return true
}

// give returns a copy of p to the next owner. After that, this node no longer changes the data.
func (n *node) give(p placement.Partition) (map[string]entry, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.held[p]
	switch {
	case n.agent.Owns(p):
		return nil, false
	case s == nil:
		return nil, true
	}
	s.open = false
	return maps.Clone(s.data), true
}

// drop drops the copy of p. The next owner calls drop when it has the data.
func (n *node) drop(p placement.Partition) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent.Owns(p) {
		return false
	}
	delete(n.held, p)
	return true
}

// put and get can be called on any node, and call the owner of the key. If the key is moving to its next
// owner, put and get wait.
func (n *node) put(ctx context.Context, key, value string) error {
	return n.ask(ctx, key, func(data map[string]entry) { data[key] = entry{value, data[key].version + 1} })
}

func (n *node) get(ctx context.Context, key string) (value string, err error) {
	err = n.ask(ctx, key, func(data map[string]entry) { value = data[key].value })
	return value, err
}

func (n *node) ask(ctx context.Context, key string, f func(map[string]entry)) error {
	return until(ctx, func() bool {
		owner, err := n.agent.Place(key)
		if err != nil {
			return false
		}
		peer, ok := n.peers.Load(owner.ID)
		return ok && peer.(*node).use(key, f)
	})
}

// use calls f with the data of the partition of key, if this node serves that partition.
func (n *node) use(key string, f func(map[string]entry)) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.held[n.agent.Partition(key)]
	if s == nil || !s.open || !n.agent.IsOwner(key) {
		return false
	}
	f(s.data)
	return true
}

// settled reports whether this node serves exactly the partitions that the table assigns to it, and holds no
// others. settled returns false during a handoff, because the old owner still owns the partition.
func (n *node) settled() bool {
	now := n.agent.Snapshot()
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range placement.Partition(partitions) {
		s := n.held[p]
		owner, _ := now.Table.Owner(p)
		if mine := owner == now.Self.ID; mine != n.agent.Owns(p) || mine != (s != nil) || mine && !s.open {
			return false
		}
	}
	return true
}

// count returns the number of partitions that this node holds, the number of open ones, and the number of
// keys in the open ones.
func (n *node) count() (held, open, keys int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.held {
		if s.open {
			open, keys = open+1, keys+len(s.data)
		}
	}
	return len(n.held), open, keys
}
