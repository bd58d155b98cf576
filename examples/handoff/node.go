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

// shard is the data of one partition. It is open while its node serves it, and is then the only copy.
type shard struct {
	open bool
	data map[string]entry
}

// entry is a value. Of two entries for the same key the later version counts, so merging the same data twice,
// or old data late, does no harm.
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
	cfg.LeaseTTL = 20 * time.Second // no node crashes here, and four agents may starve on one busy machine
	cfg.Handoff = time.Minute       // serve begins when it has returned on the old owner
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

// serve runs while this node owns p. The node answers for p once it has the data.
func (n *node) serve(ctx context.Context, p placement.Partition) {
	for !n.takeOver(p) {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done(): // lost again
			return
		}
	}
	<-ctx.Done()
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.held[p]; s != nil {
		s.open = false // but kept until the next owner has the data
	}
}

// takeOver copies p from each node that holds it, usually the previous owner, makes that node drop its copy,
// and opens p here. It returns false while another node believes that it owns p, or does not answer.
// Repeating it does no harm.
func (n *node) takeOver(p placement.Partition) bool {
	var others []*node
	for _, m := range n.agent.Members() {
		peer, ok := n.peers.Load(m.ID)
		if !ok {
			return false // it may hold p: wait until it is not a member
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

// update changes p, unless this node has lost p, because the next owner may have fetched the data already.
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

// give returns a copy to the next owner of p. The data does not change afterwards.
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

// drop is called by the next owner of p when it has the data.
func (n *node) drop(p placement.Partition) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent.Owns(p) {
		return false
	}
	delete(n.held, p)
	return true
}

// put and get work on any node, which calls the owner. They wait while the key is
// moving to its next owner.
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

// use gives f the data of key, if this node serves it.
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

// settled reports whether this node serves the partitions that the table gives it, and holds nothing else.
// Until a handoff ends, the old owner still owns the partition.
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

// count returns the number of partitions that this node holds, how many of them are open, and the number of
// their keys.
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
