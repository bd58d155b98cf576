package sim

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Options configure a Cluster. The zero value means a fast LAN without faults.
type Options struct {
	Seed   uint64        // two runs with the same seed are identical
	Delay  time.Duration // delay of every packet; default 1 ms
	Jitter time.Duration // maximum random time that is added to Delay
	Loss   float64       // share of packets that are lost, 0 to 1

	// Config changes the configuration of every core, which begins with the defaults of cluster.LAN.
	Config func(*node.Config)

	// Unwatched disables watch streams, so that only leases detect crashes.
	Unwatched bool

	Log func(*Process, node.Event) // default: nothing

	Handlers *Handlers // of all nodes; default: none

	// Tap receives each message that a process sends: packets, and both halves of full exchanges. Default:
	// nothing.
	Tap func(message []byte)
}

// Setup configures how a process is started.
type Setup struct {
	Clock     time.Duration // how far its wall clock is ahead of the other clocks
	Config    func(*node.Config)
	Addr      string   // default: an address that no process has had before
	Seeds     []string // addresses; default: three running nodes, or if none run, nodes that start at the same time
	Bootstrap bool     // the node does not wait for the seeds
}

// Cluster is a set of processes on a network, with their time.
type Cluster struct {
	opts     Options
	begin    time.Time
	now      time.Time
	queue    queue
	net      network
	rng      *rand.Rand
	nodes    map[string]*Process // nodes that run or are paused
	hosts    int                 // number of addresses that were assigned
	outsider Process             // never runs
	probing  bool                // probes are already planned for this time
	doubt    string              // the first node that disagreed at the last check

	// measured is set during a trial, in which thousands of nodes must fit into memory. The nodes share equal
	// data and keep no batches.
	measured bool
	shared   shared
}

// New returns a cluster without a node. Its time starts at the same value in each run.
func New(opts Options) *Cluster {
	opts.Delay = cmp.Or(opts.Delay, time.Millisecond)
	if opts.Tap == nil {
		opts.Tap = func([]byte) {}
	}
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	return &Cluster{
		opts: opts, begin: begin, now: begin, nodes: make(map[string]*Process),
		rng: rand.New(rand.NewPCG(opts.Seed, 1)), outsider: Process{Addr: "203.0.113.1:7946"},
		net: network{
			delay:     opts.Delay,
			jitter:    opts.Jitter,
			loss:      opts.Loss,
			rng:       rand.New(rand.NewPCG(opts.Seed, 2)),
			lossOf:    make(map[string]loss),
			gone:      make(map[string]bool),
			refuses:   make(map[string]bool),
			streamRng: rand.New(rand.NewPCG(opts.Seed, 4)),
			byAddr:    make(map[string]*Process),
			cuts:      make(map[link]bool),
			resets:    make(map[link]bool),
		},
	}
}

// Elapsed returns the virtual time since New.
func (c *Cluster) Elapsed() time.Duration { return c.now.Sub(c.begin) }

// Run lets time pass.
func (c *Cluster) Run(d time.Duration) {
	end := c.now.Add(d)
	for at, ok := c.queue.next(); ok && !at.After(end); at, ok = c.queue.next() {
		e := c.queue.pop()
		c.now = at
		switch {
		case e.to == nil:
			e.do()
		case e.packet == nil:
			e.to.handle(e)
		case !c.net.cuts[link{e.from.Addr, e.to.Addr}]:
			c.net.byAddr[e.to.Addr].handle(e) // to the process that has this address now
		}
	}
	c.now = end
}

// look is the time between two checks of a condition.
const look = 10 * time.Millisecond

// RunUntil lets time pass until the condition holds, which it checks every 10 ms. It returns how long that
// took, and false if the condition did not hold within the limit.
func (c *Cluster) RunUntil(condition func() bool, limit time.Duration) (took time.Duration, ok bool) {
	begin := c.now
	for !condition() {
		if c.now.Sub(begin) >= limit {
			return limit, false
		}
		c.Run(look)
	}
	return c.now.Sub(begin), true
}

// after runs do on a process after the time d.
func (c *Cluster) after(p *Process, d time.Duration, do func()) {
	c.queue.push(event{at: c.now.Add(d), to: p, do: do, slept: p.slept})
}

// Start starts processes at the same time.
func (c *Cluster) Start(ids ...string) {
	seeds := c.seeds(len(ids))
	for _, id := range ids {
		c.start(id, seeds, Setup{})
	}
}

// StartWith starts one process.
func (c *Cluster) StartWith(id string, s Setup) *Process { return c.start(id, c.seeds(1), s) }

// seeds returns three running nodes. If none run, it returns the first of n new nodes.
func (c *Cluster) seeds(n int) (seeds []string) {
	for _, p := range c.all() {
		seeds = append(seeds, p.Addr)
	}
	for i := range n {
		if len(c.nodes) == 0 {
			seeds = append(seeds, addrOf(c.hosts+i))
		}
	}
	return seeds[:min(3, len(seeds))]
}

// NextAddr returns the address of the process that is started after n others.
func (c *Cluster) NextAddr(n int) string { return addrOf(c.hosts + n) }

func addrOf(host int) string {
	return fmt.Sprintf("10.%d.%d.%d:7946", host>>16, host>>8&0xff, host&0xff)
}

// start starts a process. If an earlier process with the same id still runs, it continues, but is no longer
// one of the nodes.
func (c *Cluster) start(id string, seeds []string, s Setup) *Process {
	p := &Process{
		ID: id, Addr: s.Addr, c: c, offset: s.Clock, boot: c.now, runs: make(map[placement.Partition]*run),
		rng: rand.New(rand.NewPCG(c.rng.Uint64(), 0)),
	}
	if p.Addr == "" {
		p.Addr = addrOf(c.hosts)
		c.hosts++
	}
	c.nodes[id], c.net.byAddr[p.Addr] = p, p
	delete(c.net.gone, p.Addr)
	if s.Seeds != nil {
		seeds = s.Seeds
	}
	cfg := lan()
	cfg.Seeds, cfg.Bootstrap = seeds, s.Bootstrap
	cfg.Self.ID, cfg.Self.Addr, cfg.Self.Incarnation = lease.NodeID(id), p.Addr, uint64(p.Now().UnixNano())
	for _, change := range []func(*node.Config){c.opts.Config, s.Config} {
		if change != nil {
			change(&cfg)
		}
	}
	if c.measured {
		cfg.Share, cfg.Compute = c.shared.record, c.shared.compute
	}
	p.ttl, p.bound = cfg.LeaseTTL, cfg.Handoff
	p.core = node.New(p.Now(), cfg, p.rng.Uint64())
	p.stale = true
	c.after(p, time.Duration(p.rng.Int64N(int64(time.Millisecond))), func() {})
	return p
}

// lan returns the defaults of cluster.LAN.
func lan() node.Config {
	return node.Config{
		Self: lease.Record{Profile: lease.Profile{Weight: 100}}, Partitions: placement.DefaultPartitions, Strategy: placement.Rendezvous(),
		HeartbeatInterval: 2 * time.Second, LeaseTTL: 6 * time.Second, MaxSkew: 5 * time.Second,
		Debounce: 250 * time.Millisecond, StartupGrace: 10 * time.Second, RejoinInterval: 10 * time.Second,
		GossipInterval: 200 * time.Millisecond, GossipNodes: 3, PacketBytes: 1331,
	}
}

// Node returns the process that runs with this id. It panics if there is none.
func (c *Cluster) Node(id string) *Process {
	if c.nodes[id] == nil {
		panic("sim: no node " + id)
	}
	return c.nodes[id]
}

// IDs returns the ids of the nodes, sorted.
func (c *Cluster) IDs() []string {
	var ids []string
	for _, p := range c.all() {
		ids = append(ids, p.ID)
	}
	return ids
}

func (c *Cluster) all() []*Process {
	all := make([]*Process, 0, len(c.nodes))
	for _, p := range c.nodes {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Process) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Crash ends processes like kill -9.
func (c *Cluster) Crash(ids ...string) {
	for _, id := range ids {
		p := c.Node(id)
		delete(c.nodes, id)
		c.exit(p)
		c.net.streams = slices.DeleteFunc(c.net.streams, func(s *stream) bool { return s.from == p.Addr })
	}
}

// Leave makes a node leave like an agent: it drains, sends a leave message, and exits a second later. The
// drain lasts until all nodes agree and the node's runs have returned, but at most for its TTL or the maximum
// wait of a handoff. Leave lets this time pass.
func (c *Cluster) Leave(id string) {
	p := c.Node(id)
	p.Drain()
	c.RunUntil(func() bool { return p.View().Diverged == 0 && p.View().RunsLeft == 0 }, max(p.ttl, p.bound))
	c.sendLeave(p)
	c.Run(lastWords)
	c.exit(p)
}

// LeaveAtOnce makes a node leave without a drain. Its process exits a second later.
func (c *Cluster) LeaveAtOnce(id string) {
	p := c.Node(id)
	c.sendLeave(p)
	c.after(p, lastWords, func() { c.exit(p) })
}

// lastWords is how long a process runs after its leave message.
const lastWords = time.Second

// sendLeave makes a node that owns nothing leave. Its process still runs.
func (c *Cluster) sendLeave(p *Process) {
	p.do(p.core.Leave)
	delete(c.nodes, p.ID)
}

// Restart crashes a process and starts it again, with the same id, at another address.
func (c *Cluster) Restart(id string) {
	c.Crash(id)
	c.Start(id)
}

// Pause stops a process, like SIGSTOP. Messages to it wait.
func (c *Cluster) Pause(id string) {
	p := c.Node(id)
	p.View() // the interrupted turn must not publish anything anymore
	p.status = paused
}

// Resume continues a paused process. The process finishes the interrupted turn. Then it reads the clock before it reads
// the waiting messages, because that is the worst case.
func (c *Cluster) Resume(id string) { c.Node(id).Resume() }

// Resume is like Cluster.Resume, but also works for a process whose id another process has taken over.
func (p *Process) Resume() {
	if p.status != paused {
		return
	}
	p.status = running
	if r := p.unfinished; r != nil {
		p.unfinished = nil
		p.carryOut(*r)
	}
	p.turn()
	waiting := p.backlog
	p.backlog, p.backlogBytes = nil, 0
	for _, e := range waiting {
		p.handle(e)
	}
}

// Suspend stops a process together with its host, like the suspension of a virtual machine. Its monotonic
// clock and its timers stand still, so the process does not notice. Most packets to it are lost.
func (c *Cluster) Suspend(id string) {
	p := c.Node(id)
	p.status, p.since = suspended, c.now
	c.net.gone[p.Addr] = true
	c.probe()
}

// Wake continues a suspended process. Its wall clock is right again, unless stale is set. If stale is set, the wall
// clock stood still during the suspension, too.
func (c *Cluster) Wake(id string, stale bool) {
	p := c.Node(id)
	if p.status != suspended {
		return
	}
	delete(c.net.gone, p.Addr)
	d := c.now.Sub(p.since)
	p.status, p.wake = running, p.wake.Add(d)
	if p.slept += d; stale {
		p.offset -= d
	}
	waiting := p.backlog
	p.backlog, p.backlogBytes = nil, 0
	for _, e := range waiting {
		p.handle(e)
	}
	for _, w := range p.watches { // the other end of the stream is gone, and the next probe detects that
		if w.open {
			c.end(w, leastIdleTimeout+time.Duration(c.net.streamRng.Int64N(int64(mostIdleTimeout-leastIdleTimeout))))
		}
	}
}

// Crash is like Cluster.Crash, but also works for a process whose id another process has taken over.
func (p *Process) Crash() { p.c.exit(p) }

// Fingerprint identifies what every node knows and has done so far. Two runs with the same seed have the same
// fingerprint.
func (c *Cluster) Fingerprint() uint64 {
	h := fnv.New64a()
	for _, p := range c.all() {
		v := p.View()
		_, _ = fmt.Fprintln(h, p.ID, v.Phase, v.Live.Digest(), v.Table.Digest(), v.Stats, p.sent, len(p.ledger.Batches), p.wake)
	}
	return h.Sum64()
}
