package clustertest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/simnet"
)

// Options configure a Cluster. The zero value is a fast network without faults.
type Options struct {
	Seed   uint64                // seed of the network's random faults
	Delay  time.Duration         // delay of every packet; default 1 ms
	Jitter time.Duration         // upper bound of a random addition to Delay
	Loss   float64               // share of packets that are lost, from 0 to 1
	Config func(*cluster.Config) // applied to every agent
	Log    slog.Handler          // default: discard
}

// Cluster is a set of agents on a simulated network.
type Cluster struct {
	t     testing.TB
	opts  Options
	net   *simnet.Network
	nodes map[string]*node
	gone  []*node // crashed, left or failed
	hosts int
}

// node is an agent from its start to its end. A restart creates a new node.
type node struct {
	id, addr  string
	agent     *cluster.Agent
	transport *simnet.Transport
	gate      gate
	record    *recorder
}

// NodeOption changes how StartWith starts a node.
type NodeOption func(*nodeOptions)

type nodeOptions struct {
	clock  time.Duration
	config func(*cluster.Config)
}

// WithClockOffset sets a node's wall clock ahead by d.
func WithClockOffset(d time.Duration) NodeOption { return func(o *nodeOptions) { o.clock = d } }

// WithConfig changes a node's configuration.
func WithConfig(f func(*cluster.Config)) NodeOption { return func(o *nodeOptions) { o.config = f } }

// New returns an empty cluster. The cluster is closed at the end of the test.
func New(tb testing.TB, opts Options) *Cluster {
	tb.Helper()
	if opts.Delay == 0 {
		opts.Delay = time.Millisecond
	}
	if opts.Log == nil {
		opts.Log = slog.DiscardHandler
	}
	c := &Cluster{
		t: tb, opts: opts, nodes: make(map[string]*node),
		net: simnet.New(simnet.Config{Seed: opts.Seed, Delay: opts.Delay, Jitter: opts.Jitter, Loss: opts.Loss}),
	}
	tb.Cleanup(c.close)
	return c
}

// close stops all agents, and then waits for memberlist's last timers. They must end before the synctest bubble ends.
func (c *Cluster) close() {
	for _, n := range append(c.all(), c.gone...) {
		n.gate.open()
		_ = n.agent.Close()
	}
	time.Sleep(time.Minute)
}

// Start starts agents at the same time and returns when all have joined. The seeds of the new nodes are three
// running nodes. If no nodes are running, the seeds are the first three of the new nodes.
func (c *Cluster) Start(ids ...string) {
	c.t.Helper()
	var wg sync.WaitGroup
	started := make([]*node, len(ids))
	hosts := make([]string, len(ids))
	for i := range ids {
		hosts[i] = c.newAddr()
	}
	seeds := c.seeds(hosts)
	for i, id := range ids {
		wg.Go(func() { started[i] = c.start(id, hosts[i], seeds) })
	}
	wg.Wait()
	for i, n := range started {
		if n == nil {
			c.t.Fatalf("clustertest: node %s did not start", ids[i])
		}
		c.adopt(n)
	}
}

// StartWith starts one agent with options.
func (c *Cluster) StartWith(id string, opts ...NodeOption) *cluster.Agent {
	c.t.Helper()
	addr := c.newAddr()
	n := c.start(id, addr, c.seeds([]string{addr}), opts...)
	if n == nil {
		c.t.Fatalf("clustertest: node %s did not start", id)
	}
	c.adopt(n)
	return n.agent
}

// adopt makes n the running node with its ID. If an earlier node with the same ID is still running, it
// continues, but Check no longer includes it.
func (c *Cluster) adopt(n *node) {
	if old := c.nodes[n.id]; old != nil {
		c.gone = append(c.gone, old)
	}
	c.nodes[n.id] = n
}

func (c *Cluster) newAddr() string {
	c.hosts++
	return fmt.Sprintf("10.0.%d.%d:7946", c.hosts/250, 1+c.hosts%250)
}

func (c *Cluster) seeds(starting []string) []string {
	seeds := starting
	if len(c.nodes) > 0 {
		seeds = nil
		for _, n := range c.all() {
			seeds = append(seeds, n.addr)
		}
	}
	return slices.Clone(seeds[:min(3, len(seeds))])
}

func (c *Cluster) start(id, addr string, seeds []string, opts ...NodeOption) *node {
	var o nodeOptions
	for _, opt := range opts {
		opt(&o)
	}
	transport, err := c.net.Listen(addr)
	if err != nil {
		c.t.Errorf("clustertest: %v", err)
		return nil
	}
	cfg := cluster.Config{ID: id, Join: seeds, Log: slog.New(c.opts.Log)}
	for _, change := range []func(*cluster.Config){c.opts.Config, o.config} {
		if change != nil {
			change(&cfg)
		}
	}
	n := &node{id: id, addr: addr, transport: transport}
	ctx := gossip.WithEnv(c.t.Context(), gossip.Env{Transport: transport, ClockOffset: o.clock, Gate: n.gate.wait})
	if n.agent, err = cluster.Start(ctx, cfg); err != nil {
		c.t.Errorf("clustertest: %v", err)
		return nil
	}
	n.record = record(n.agent)
	return n
}

// Agent returns the running agent with this ID.
func (c *Cluster) Agent(id string) *cluster.Agent {
	c.t.Helper()
	return c.node(id).agent
}

func (c *Cluster) node(id string) *node {
	c.t.Helper()
	n := c.nodes[id]
	if n == nil {
		c.t.Fatalf("clustertest: no node %s is running", id)
	}
	return n
}

// IDs returns the IDs of the running nodes, sorted.
func (c *Cluster) IDs() []string { return slices.Sorted(maps.Keys(c.nodes)) }

func (c *Cluster) all() []*node {
	return slices.SortedFunc(maps.Values(c.nodes), func(a, b *node) int { return strings.Compare(a.id, b.id) })
}

func (c *Cluster) remove(id string) *node {
	c.t.Helper()
	n := c.node(id)
	delete(c.nodes, id)
	c.gone = append(c.gone, n)
	return n
}

// Crash stops nodes without a leave message, like kill -9.
func (c *Cluster) Crash(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		n := c.remove(id)
		n.transport.Crash()
		_ = n.agent.Close()
	}
}

// Vanish stops nodes together with their hosts, like a power failure. Unlike after Crash, nothing answers at
// their addresses.
func (c *Cluster) Vanish(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		n := c.remove(id)
		n.transport.Vanish()
		_ = n.agent.Close()
	}
}

// ResetStreams breaks all TCP connections of a node, like a restarted firewall. New connections still work.
func (c *Cluster) ResetStreams(id string) {
	c.t.Helper()
	c.node(id).transport.Reset()
}

// Leave makes a node leave the cluster.
func (c *Cluster) Leave(id string) {
	c.t.Helper()
	n := c.remove(id)
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	if err := n.agent.Leave(ctx); err != nil {
		c.t.Errorf("clustertest: %s: %v", id, err)
	}
}

// Restart crashes a node and starts it again with the same ID on another address.
func (c *Cluster) Restart(id string) {
	c.t.Helper()
	c.Crash(id)
	c.Start(id)
}

// Pause stops a node, like SIGSTOP. The agent of a paused node does not send or receive, and incoming packets
// queue.
func (c *Cluster) Pause(id string) {
	n := c.node(id)
	n.gate.close()
	n.transport.Pause()
}

// Resume continues a paused node. The agent of the node runs before it receives the first queued packet,
// which is the worst case.
func (c *Cluster) Resume(id string) {
	n := c.node(id)
	n.gate.open()
	synctest.Wait()
	n.transport.Resume()
}

// Split cuts the network between the given groups of nodes.
func (c *Cluster) Split(groups ...[]string) {
	c.t.Helper()
	addrs := make([][]string, len(groups))
	for i, group := range groups {
		for _, id := range group {
			addrs[i] = append(addrs[i], c.node(id).addr)
		}
	}
	c.net.Split(addrs...)
}

// Cut drops all packets from one node to another, and breaks the streams between both nodes. Packets in the
// opposite direction still arrive.
func (c *Cluster) Cut(from, to string) {
	c.t.Helper()
	c.net.CutOneWay(c.node(from).addr, c.node(to).addr)
}

// Heal removes all splits and cuts.
func (c *Cluster) Heal() { c.net.HealAll() }

// SetLoss sets the share of packets that are lost, from 0 to 1.
func (c *Cluster) SetLoss(share float64) { c.net.SetLoss(share) }

// SetLossOf sets the shares of packets that are additionally lost when they leave and when they enter a
// node's host, from 0 to 1.
func (c *Cluster) SetLossOf(id string, out, in float64) {
	c.t.Helper()
	c.net.SetLossOf(c.node(id).addr, out, in)
}
